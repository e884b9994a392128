"""Which namespace a command means when it is not told."""

import asyncio
import os
from pathlib import Path

from kubernetes_asyncio.config import list_kube_config_contexts
from kubernetes_asyncio.config.incluster_config import SERVICE_HOST_ENV_NAME

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT = "default"


async def default_namespace(kubeconfig: str | None, context: str | None) -> str:
    """The namespace of the context, or of the pod; `default` where neither names one.

    For the same arguments as `open_session`, after which it is called: what that could read can be read again.
    """
    source = kubeconfig or os.environ.get("KUBECONFIG")
    if not source and context is None and os.environ.get(SERVICE_HOST_ENV_NAME):
        return await asyncio.to_thread(_POD_NAMESPACE.read_text)
    return await asyncio.to_thread(_of_context, source or None, context)


def _of_context(source: str | None, name: str | None) -> str:
    contexts, current = list_kube_config_contexts(source)
    chosen = next((context for context in contexts if context["name"] == name), current)
    return (chosen or {}).get("context", {}).get("namespace") or _DEFAULT
