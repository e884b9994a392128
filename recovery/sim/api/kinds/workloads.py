"""Workloads of Kueue 0.19: what the CRD fills in. The rest of the schema and the webhook's checks are not modelled."""

from recovery.ports import Resource
from recovery.sim.api.kinds.kind import Body, ServedKind

WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")


def workload_kind() -> ServedKind:
    return ServedKind(resource=WORKLOADS, default=_default)


def _default(body: Body, before: Body | None) -> None:
    if before is None or before["spec"] is not body["spec"]:
        body["spec"].setdefault("active", True)
