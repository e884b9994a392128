"""Reads a kubeconfig with kubernetes_asyncio. Credential plugins are run by `exec_plugin` instead."""

import asyncio
import os
from pathlib import Path
from typing import Any

from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import list_kube_config_contexts
from kubernetes_asyncio.config.incluster_config import SERVICE_HOST_ENV_NAME
from kubernetes_asyncio.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader, KubeConfigMerger

from recovery.kube.exec_plugin import run_plugin

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT_NAMESPACE = "default"


class _Loader(KubeConfigLoader):
    async def load_from_exec_plugin(self) -> bool:
        assert self._user is not None, "asked of a user with a plugin"
        assert self._cluster is not None, "the context has been read"
        credentials = await run_plugin(
            self._user["exec"].value, _folder(self._user), self._cluster.value, _folder(self._cluster)
        )
        if credentials.token:
            self.token = f"Bearer {credentials.token}"
        if credentials.client_key_data:
            self.cert_file = _file(credentials.client_certificate_data)
            self.key_file = _file(credentials.client_key_data)
        return True


async def load_kubeconfig(paths: str, context: str | None, configuration: Configuration) -> None:
    """Load the kubeconfig into the configuration. `paths`: one file, or several to merge. `context` None: the current.

    Raises ConfigException, and other exceptions for a file that is no kubeconfig (`session._LOAD_ERRORS`).
    """
    merged = KubeConfigMerger(paths).config
    loader = _Loader(config_dict=merged, config_base_path=None, active_context=context)
    await loader.load_and_set(configuration)


async def default_namespace(kubeconfig: str | None, context: str | None) -> str:
    """The namespace of the context, or of the pod; `default` where neither names one.

    Takes the arguments of `open_session` and is called after it: what `open_session` could read can be read again.
    """
    source = kubeconfig or os.environ.get("KUBECONFIG")
    if not source and context is None and os.environ.get(SERVICE_HOST_ENV_NAME):
        return await asyncio.to_thread(_POD_NAMESPACE.read_text)
    return await asyncio.to_thread(_of_context, source or None, context)


async def context_user(kubeconfig: str | None, context: str | None) -> str:
    """The context's name for its credentials; empty in a pod. Called like `default_namespace`."""
    source = kubeconfig or os.environ.get("KUBECONFIG")
    if not source and context is None and os.environ.get(SERVICE_HOST_ENV_NAME):
        return ""
    return str((await asyncio.to_thread(_context, source or None, context)).get("user") or "")


async def context_name(kubeconfig: str | None, context: str | None) -> str:
    """The name of the context; empty in a pod. Called like `default_namespace`."""
    source = kubeconfig or os.environ.get("KUBECONFIG")
    if not source and context is None and os.environ.get(SERVICE_HOST_ENV_NAME):
        return ""
    return await asyncio.to_thread(_name_of_context, source or None, context)


def _folder(section: ConfigNode) -> Path:
    """The folder of the file that the section is from."""
    return Path(section.path or "").absolute().parent


def _file(content: str) -> str | None:
    """The path of a temporary file with the content, because Python's TLS reads certificates only from files. The file
    is removed when the process ends."""
    data = {"content": content}
    return FileOrData(data, None, data_key_name="content", base64_file_content=False).as_file()


def _of_context(source: str | None, name: str | None) -> str:
    return _context(source, name).get("namespace") or _DEFAULT_NAMESPACE


def _name_of_context(source: str | None, name: str | None) -> str:
    return str(_named_context(source, name).get("name") or "")


def _context(source: str | None, name: str | None) -> dict[str, Any]:
    found: dict[str, Any] = _named_context(source, name).get("context", {})
    return found


def _named_context(source: str | None, name: str | None) -> dict[str, Any]:
    contexts, current = list_kube_config_contexts(source)
    return next((context for context in contexts if context["name"] == name), current) or {}
