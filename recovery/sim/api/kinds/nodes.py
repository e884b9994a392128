"""Nodes.

Sources: Kubernetes 1.36 `plugin/pkg/admission/nodetaint`, `pkg/registry/core/node/strategy.go` (no generation is
counted, and a kubelet may create a Node together with its status), `pkg/apis/core/v1/defaults.go`.
"""

from collections.abc import Iterable

from recovery.ports import NODES
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.status_error import FieldCause

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
"""Taint of each new node: no pod is scheduled to it before the node lifecycle controller has seen it Ready."""


def node_kind() -> ServedKind:
    return ServedKind(resource=NODES, counts_generation=False, default=_default, validate=_wrong)


def _default(body: Body, before: Body | None) -> None:
    """Allocatable defaults to the capacity if the kubelet does not set it (SetDefaults_NodeStatus)."""
    if before is None:
        spec = body.get("spec") or {}
        taints = spec.get("taints") or []
        if not any((taint["key"], taint["effect"]) == tuple(NOT_READY.values()) for taint in taints):
            taints = [*taints, NOT_READY]
        body["spec"] = {**spec, "taints": taints}
        body.setdefault("status", {})
    status = body.get("status", {})
    if "capacity" in status and "allocatable" not in status:
        body["status"] = {**status, "allocatable": status["capacity"]}


def _wrong(body: Body, before: Body | None) -> Iterable[FieldCause]:
    """The pair of key and effect must be unique among the taints (validateNodeTaints)."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(body.get("spec", {}).get("taints") or ()):
        which = (taint["key"], taint["effect"])
        if which in seen:
            # The real server prints the taint with Go's field names, and reports the field below metadata.
            shown = f'{{"Key":"{which[0]}","Value":"{taint.get("value", "")}","Effect":"{which[1]}","TimeAdded":null}}'
            message = f"Duplicate value: {shown}: taints must be unique by key and effect pair"
            yield FieldCause(f"metadata.taints[{index}]", message, "FieldValueDuplicate")
        seen.add(which)
