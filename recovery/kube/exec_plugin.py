"""Runs the credential plugin that a kubeconfig names (`users[].user.exec`), as client-go does.

It follows k8s.io/client-go plugin/pkg/client/auth/exec/exec.go and the page "client-go credential plugins" of the
Kubernetes documentation. kubernetes_asyncio's runner lacks `provideClusterInfo`, `installHint` and relative commands.
"""

import asyncio
import base64
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from kubernetes_asyncio.config import ConfigException

PLUGIN_SECONDS_MAX = 55.0
"""A plugin that waits for a login must not hang us. Below `session.LOAD_SECONDS_MAX`, so that we quote its stderr."""
STDERR_CHARACTERS_MAX = 2000
"""How much of a plugin's stderr is kept, from its end: that is where the error is."""
_CLUSTER_FIELDS = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
_CONFIG_EXTENSION = "client.authentication.k8s.io/exec"

Settings = Mapping[str, Any]


class PluginCredentials(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of an ExecCredential: a token, or a certificate with its key, or both."""

    token: str = ""
    client_certificate_data: str = ""
    """PEM."""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    status: PluginCredentials


async def run_plugin(settings: Settings, folder: Path, cluster: Settings, cluster_folder: Path) -> PluginCredentials:
    """`settings` is the section `exec`, from a kubeconfig in `folder`; `cluster` is the section of the cluster.

    Raises ConfigException. Its message quotes what the plugin wrote to stderr.
    """
    for key in ("command", "apiVersion"):
        if not settings.get(key):
            raise ConfigException(f"exec: the section has no {key}")
    mode = settings.get("interactiveMode", "IfAvailable")
    interactive = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not interactive:
        raise ConfigException(f"exec: {settings['command']} needs a terminal (interactiveMode: Always)")
    spec: dict[str, Any] = {"interactive": interactive}
    if settings.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(cluster, cluster_folder)
    asked = {"apiVersion": settings["apiVersion"], "kind": "ExecCredential", "spec": spec}
    environment = {str(each["name"]): str(each["value"]) for each in settings.get("env") or ()}
    output = await _output(
        settings,
        _command(str(settings["command"]), folder),
        {**os.environ, **environment, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
        stdin=None if interactive else asyncio.subprocess.DEVNULL,
    )
    return _credentials(output, settings)


def _command(command: str, folder: Path) -> str:
    """A command with a slash is relative to the folder of its kubeconfig; one without is found by PATH."""
    return str(folder / command) if os.sep in command else command


def _cluster_info(cluster: Settings, folder: Path) -> dict[str, Any]:
    """`spec.cluster` of the ExecCredential. A CA file is passed by its content."""
    info = {field: cluster[field] for field in _CLUSTER_FIELDS if field in cluster}
    authority = cluster.get("certificate-authority-data")
    if not authority and (file := cluster.get("certificate-authority")):
        authority = base64.b64encode((folder / file).read_bytes()).decode()
    if authority:
        info["certificate-authority-data"] = authority
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == _CONFIG_EXTENSION:
            info["config"] = extension.get("extension")
    return info


async def _output(settings: Settings, command: str, environment: Mapping[str, str], *, stdin: int | None) -> bytes:
    """What the plugin wrote to stdout, if it succeeded."""
    pipe = asyncio.subprocess.PIPE
    arguments = [str(each) for each in settings.get("args") or ()]
    try:
        plugin = await asyncio.create_subprocess_exec(
            command, *arguments, env=environment, stdin=stdin, stdout=pipe, stderr=pipe
        )
    except OSError as error:
        missing = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be run ({error.strerror})"
        raise ConfigException(_joined(f"exec: {command} {missing}", str(settings.get("installHint") or ""))) from error
    assert plugin.stdout is not None, "a pipe"
    assert plugin.stderr is not None, "a pipe"
    said = bytearray()

    async def listen(stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(4096):
            said.extend(chunk)
            del said[:-STDERR_CHARACTERS_MAX]

    try:
        async with asyncio.timeout(PLUGIN_SECONDS_MAX):
            output, _, code = await asyncio.gather(plugin.stdout.read(), listen(plugin.stderr), plugin.wait())
    except TimeoutError:
        words = f"exec: {command} gave no credentials within {PLUGIN_SECONDS_MAX:.0f} s"
        raise ConfigException(_joined(words, said.decode(errors="replace"))) from None
    finally:
        if plugin.returncode is None:
            plugin.kill()
            await plugin.wait()
    if code != 0:
        raise ConfigException(_joined(f"exec: {command} exited with {code}", said.decode(errors="replace")))
    return output


def _credentials(output: bytes, settings: Settings) -> PluginCredentials:
    command = settings["command"]
    try:
        found = msgspec.json.decode(output, type=_ExecCredential)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigException(f"exec: {command} wrote no ExecCredential: {error}") from error
    if found.api_version != settings["apiVersion"]:
        raise ConfigException(
            f"exec: {command} answered with {found.api_version}, and the kubeconfig says {settings['apiVersion']}"
        )
    status = found.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigException(f"exec: {command} gave a certificate without its key, or a key without its certificate")
    if not status.token and not status.client_key_data:
        raise ConfigException(f"exec: {command} gave neither a token nor a certificate")
    return status


def _joined(words: str, more: str) -> str:
    return f"{words}: {more.strip()}" if more.strip() else words
