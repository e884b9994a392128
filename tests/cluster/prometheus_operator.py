"""The CRDs of the Prometheus operator, and what docs/monitoring.md applies with them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import REPOSITORY, Object, apply


@asynccontextmanager
async def prometheus_operator(installed: ControlPlane) -> AsyncIterator[None]:
    """The cluster has them meanwhile."""
    kinds = [definition("ServiceMonitor"), definition("PodMonitor"), definition("PrometheusRule")]
    await apply(installed, None, *kinds)
    names = [each["metadata"]["name"] for each in kinds]
    await installed.kubectl("wait", "--for=condition=Established", "--timeout=180s", "crd", *names)
    await installed.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "manifests" / "prometheus"))
    yield
    await installed.kubectl("delete", "crd", *names)


def definition(kind: str) -> Object:
    plural, group = f"{kind.lower()}s", "monitoring.coreos.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
