"""Credential plugins of a kubeconfig: how they are found and run, and how their failures are reported."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from recovery.kube import session
from recovery.kube.exec_plugin import PLUGIN_SECONDS_MAX
from recovery.kube.session import SessionError, open_session
from tests.unit.patience import comes, time_passes

Object = dict[str, Any]
API_VERSION = "client.authentication.k8s.io/v1"
CREDENTIAL = json.dumps({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": {"token": "theirs"}})


class Plugin:
    """A script in the folder `bin`, beside a kubeconfig that names it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = folder / "asked"
        (folder / "bin").mkdir()

    def does(self, script: str) -> None:
        path = self.folder / "bin" / "login"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def kubeconfig(self, cluster: Object | None = None, **settings: Any) -> str:
        plugin = {"apiVersion": API_VERSION, "command": "./bin/login", **settings}
        text = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://one:1", **(cluster or {})}}],
            "users": [{"name": "u", "user": {"exec": plugin}}],
        }
        path = self.folder / "config"
        path.write_text(json.dumps(text))
        return str(path)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


async def header(kubeconfig: str) -> str:
    async with open_session(kubeconfig=kubeconfig) as session:
        return (await session.authorization())["authorization"]


async def failure(kubeconfig: str) -> str:
    with pytest.raises(SessionError) as caught:
        await header(kubeconfig)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_command_with_a_slash_is_found_from_the_folder_of_the_kubeconfig(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    plugin.does(f"echo '{CREDENTIAL}'")
    assert await header(plugin.kubeconfig()) == "Bearer theirs"


async def test_one_without_is_found_by_path(plugin: Plugin) -> None:
    assert await header(plugin.kubeconfig(command="sh", args=["-c", f"echo '{CREDENTIAL}'"])) == "Bearer theirs"


async def test_it_gets_its_environment_and_no_cluster_unless_the_kubeconfig_says_so(plugin: Plugin) -> None:
    plugin.does(f"echo \"$REGION $KUBERNETES_EXEC_INFO\" > {plugin.asked}; echo '{CREDENTIAL}'")
    await header(plugin.kubeconfig(env=[{"name": "REGION", "value": "north"}], interactiveMode="Never"))
    region, _, asked = plugin.asked.read_text().partition(" ")
    assert region == "north"
    assert json.loads(asked) == {"apiVersion": API_VERSION, "kind": "ExecCredential", "spec": {"interactive": False}}


async def test_with_provide_cluster_info_it_is_told_the_cluster_and_its_authority_by_content(plugin: Plugin) -> None:
    (plugin.folder / "ca.pem").write_bytes(b"authority")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"certificate-authority": "ca.pem", "tls-server-name": "api", "extensions": [extension]}
    plugin.does(f"echo \"$KUBERNETES_EXEC_INFO\" > {plugin.asked}; echo '{CREDENTIAL}'")
    await header(plugin.kubeconfig(cluster, provideClusterInfo=True))
    assert json.loads(plugin.asked.read_text())["spec"]["cluster"] == {
        "server": "http://one:1",
        "tls-server-name": "api",
        "certificate-authority-data": base64.b64encode(b"authority").decode(),
        "config": {"audience": "a"},
    }


async def test_the_error_has_what_the_plugin_wrote_to_stderr(plugin: Plugin) -> None:
    plugin.does("echo 'session expired,\nlog in' >&2; exit 3")
    assert (await failure(plugin.kubeconfig())).endswith("bin/login exited with 3: session expired, log in")


async def test_one_that_does_not_answer_is_ended_and_what_it_wrote_is_shown(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PLUGIN_SECONDS_MAX < session.LOAD_SECONDS_MAX
    monkeypatch.setattr(session, "LOAD_SECONDS_MAX", 600.0)  # a slow machine takes the difference to start the plugin
    plugin.does(f"echo 'open https://login' >&2; echo $$ > {plugin.asked}; exec sleep 600")
    failing = asyncio.create_task(failure(plugin.kubeconfig()))
    await comes(lambda: plugin.asked.exists() and plugin.asked.read_text().endswith("\n"))
    time_passes(PLUGIN_SECONDS_MAX, monkeypatch)
    assert (await failing).endswith("gave no credentials within 55 s: open https://login")
    assert not Path(f"/proc/{plugin.asked.read_text().strip()}").exists()


async def test_of_a_command_that_is_missing_the_hint_is_shown(plugin: Plugin) -> None:
    message = await failure(plugin.kubeconfig(command="no-such-login", installHint="Install it:\nget login"))
    assert message.endswith("exec: no-such-login is not there: Install it: get login")


BAD_ANSWERS: dict[str, tuple[Object | str, str]] = {
    "no JSON": ("hello", "wrote no ExecCredential"),
    "another version": ({"apiVersion": "v2", "kind": "ExecCredential", "status": {"token": "a"}}, "answered with v2"),
    "nothing": ({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": {}}, "neither a token nor"),
    "half a pair": (
        {"apiVersion": API_VERSION, "kind": "ExecCredential", "status": {"clientKeyData": "k"}},
        "a key without its certificate",
    ),
}


@pytest.mark.parametrize(("answer", "why"), BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
async def test_an_answer_that_is_none_is_named(plugin: Plugin, answer: Object | str, why: str) -> None:
    plugin.does(f"echo '{answer if isinstance(answer, str) else json.dumps(answer)}'")
    assert why in await failure(plugin.kubeconfig())


async def test_one_that_needs_a_terminal_says_so_where_there_is_none(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert "needs a terminal" in await failure(plugin.kubeconfig(interactiveMode="Always"))
