"""Nodes."""

import msgspec

from recovery.core.facts import NodeFacts
from recovery.kube.projections.metadata import Entry, Metadata, RawCondition


class _NodeSpec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class _NodeStatus(msgspec.Struct, frozen=True):
    conditions: list[RawCondition] = []


class _Node(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


_decode = msgspec.json.Decoder(_Node).decode


def decode_node(raw: bytes | msgspec.Raw) -> Entry[NodeFacts]:
    """A node without a Ready condition has never reported: it is not ready, and there is no moment since when."""
    node = _decode(raw)
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
    facts = NodeFacts(
        name=node.metadata.name,
        ready=ready is not None and ready.status == "True",
        ready_since=ready.last_transition_time if ready is not None else None,
        ready_reason=ready.reason if ready is not None else "",
        unschedulable=node.spec.unschedulable,
    )
    return node.metadata.entry(facts)
