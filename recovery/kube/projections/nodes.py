"""Decodes nodes, and the Lease by which a node's kubelet shows that it is alive."""

from datetime import datetime
from sys import intern

import msgspec

from recovery.core.model.annotations import OWN_ANNOTATION_PREFIX
from recovery.core.model.facts import NodeFacts, Taint
from recovery.kube.projections.accelerators import accelerators
from recovery.kube.projections.metadata import Date, Metadata, ObjectEntry, RawCondition, clamped_if_any, conditions

_PRESSURE = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure"})
"""Conditions that every kubelet sets. Their normal status is False."""


class _NodeMetadata(Metadata, frozen=True, rename="camel"):
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Taint(msgspec.Struct, frozen=True, rename="camel"):
    key: str
    effect: str
    value: str = ""
    time_added: Date | None = None

    def facts(self) -> Taint:
        return Taint(intern(self.key), intern(self.value), intern(self.effect), clamped_if_any(self.time_added))


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False
    taints: list[_Taint] = []


class _NodeStatus(msgspec.Struct, frozen=True):
    conditions: list[RawCondition] = []
    allocatable: dict[str, str] = {}


class _Node(msgspec.Struct, frozen=True):
    metadata: _NodeMetadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


_decode = msgspec.json.Decoder(_Node).decode


def decode_node(raw: bytes | msgspec.Raw) -> ObjectEntry[NodeFacts]:
    """A node without a Ready condition has never reported. It is not ready, and `ready_since` is None.

    It does not count as unreachable: the node lifecycle controller marks that by setting Ready to Unknown.
    """
    node = _decode(raw)
    meta, spec, status = node.metadata, node.spec, node.status
    ready = next((condition for condition in status.conditions if condition.type == "Ready"), None)
    facts = NodeFacts(
        name=meta.name,
        ready=ready is not None and ready.status == "True",
        ready_since=clamped_if_any(ready.last_transition_time) if ready is not None else None,
        ready_reason=intern(ready.reason) if ready is not None else "",
        unschedulable=spec.unschedulable,
        uid=meta.uid,
        resource_version=meta.resource_version,
        reachable=ready is None or ready.status != "Unknown",
        taints=tuple(taint.facts() for taint in spec.taints),
        conditions=conditions(each for each in status.conditions if not _says_nothing(each)),
        labels={intern(key): intern(value) for key, value in meta.labels.items()},
        annotations={key: value for key, value in meta.annotations.items() if key.startswith(OWN_ANNOTATION_PREFIX)},
        gpus=accelerators(status.allocatable),
        deleting_since=meta.deleting_since,
    )
    return meta.entry(facts)


def _says_nothing(condition: RawCondition) -> bool:
    return condition.type == "Ready" or (condition.type in _PRESSURE and condition.status == "False")


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    renew_time: Date | None = None


class _Lease(msgspec.Struct, frozen=True):
    spec: _LeaseSpec = _LeaseSpec()


_decode_lease = msgspec.json.Decoder(_Lease).decode


def decode_renewal(raw: bytes | msgspec.Raw) -> datetime | None:
    """`spec.renewTime` of a Lease. None: it was never renewed."""
    return clamped_if_any(_decode_lease(raw).spec.renew_time)
