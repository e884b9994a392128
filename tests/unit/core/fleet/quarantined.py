"""Ledgers, nodes and entries that the tests of quarantine share."""

from typing import Any

import msgspec

from recovery.core.fleet.quarantine import (
    mark_of,
    reviewed,
    taint_value,
)
from recovery.core.model.annotations import QUARANTINE_ANNOTATION
from recovery.core.model.facts import NodeFacts, Taint
from recovery.core.model.fleet_ledger import (
    QUARANTINE_TAINT,
    FleetLedger,
    FleetLimits,
    Quarantined,
    Suspicion,
)
from tests.unit.core.world import at

LIMITS = FleetLimits(may_cordon=True)


def entry(node: str = "gpu-1", **fields: Any) -> Quarantined:
    """An entry that an incident made and its node confirmed, without an end. `fields` override this."""
    made = Quarantined(
        node=node, node_uid=f"uid-{node}", reason="XID 79", since=at(0), incident="inc-1", node_sign="GpuFaultOnNode"
    )
    return msgspec.structs.replace(made, **fields)


def node(name: str = "gpu-1", bears: Quarantined | None = None, **fields: Any) -> NodeFacts:
    """`bears`: the quarantine that is set on the node, in the form in which the executor sets it."""
    facts = NodeFacts(name=name, ready=True, uid=f"uid-{name}")
    if bears is not None:
        mark = msgspec.json.encode(mark_of(bears, cordoned=True)).decode()
        facts = msgspec.structs.replace(
            facts,
            unschedulable=True,
            taints=(Taint(QUARANTINE_TAINT, taint_value(bears)),),
            annotations={QUARANTINE_ANNOTATION: mark},
        )
    return msgspec.structs.replace(facts, **fields)


def ledger(*entries: Quarantined) -> FleetLedger:
    return FleetLedger(quarantined=entries)


def reconcile(before: FleetLedger, *nodes: NodeFacts, seconds: float = 10, limits: FleetLimits = LIMITS) -> FleetLedger:
    return reviewed(before, limits, {each.name: each for each in nodes}, at(seconds))


def only(found: FleetLedger) -> Quarantined:
    (one,) = found.quarantined
    return one


def suspicion(incident: str, seconds: float = 0, node_: str = "gpu-1") -> Suspicion:
    return Suspicion(node_, incident, at(seconds), "an exit", "ml")
