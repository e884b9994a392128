"""Reads the namespace and the user from the context of the kubeconfig."""

import asyncio
import os
from pathlib import Path
from typing import Any

from kubernetes_asyncio.config import list_kube_config_contexts
from kubernetes_asyncio.config.incluster_config import SERVICE_HOST_ENV_NAME

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT = "default"


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


def _of_context(source: str | None, name: str | None) -> str:
    return _context(source, name).get("namespace") or _DEFAULT


def _context(source: str | None, name: str | None) -> dict[str, Any]:
    contexts, current = list_kube_config_contexts(source)
    chosen = next((context for context in contexts if context["name"] == name), current)
    found: dict[str, Any] = (chosen or {}).get("context", {})
    return found
