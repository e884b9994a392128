"""A quarter of all nodes are lost, or become unhealthy, within half a minute: what is decided, when, and at what cost.

Times are virtual. The cost is printed in CPU-seconds, including the cluster's own work.
"""

import os
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec
import pytest

from recovery.core.model.facts import GroupKey
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT, FleetLedger
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Reason
from recovery.ports import LEASES, NODES, RECOVERY_CONFIGS
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.trials.dice import Dice
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.ledger_history import LedgerWrite, ledger_writes
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial

GROUPS = int(os.environ.get("STORM_GROUPS", "8"))
"""40 groups of 37 pods, each pod on its own node, use 1,480 of 1,500 nodes."""
PODS = 37
SPARES = max(GROUPS // 2, 4)
NODES_IN_ALL = GROUPS * PODS + SPARES
STRUCK = NODES_IN_ALL // 4
STORM_SECONDS = 30.0
EVERY_SECONDS = 45.0
"""A storm that continues takes a node this often."""
BEGINS_SECONDS = 120.0
DECIDED_WITHIN_SECONDS = 5.0
WRITES_PER_GROUP_MOST = 40
WRITES_PER_POD_MOST = 3

ILL: dict[str, object] = {
    "mode": "Enforce",
    "rules": [
        {
            "name": "bad-gpu",
            "when": {"onNodeConditions": [{"type": "GpuUnhealthy", "status": "True"}]},
            "action": "ReplaceNode",
        }
    ],
}
DEAD: dict[str, object] = {
    "mode": "Enforce",
    "teardown": {"fencing": {"mode": "AssumeDead", "assumeDeadAfter": "0s"}},
}


def storm(kind: FaultKind, policy: dict[str, object], cap_percent: int) -> TrialPlan:
    """A quarter of all nodes, chosen at random, each at its own time."""
    jobs = tuple(
        JobPlan(namespace="team-a", name=f"llm-{number}", runtime=PlannedRuntime.PREPARED, pods=PODS, policy=policy)
        for number in range(GROUPS)
    )
    nodes = sorted(range(NODES_IN_ALL), key=lambda number: Dice(7, "node", number).throw())
    faults = tuple(
        TrialFault(
            FaultKey("world", number, kind),
            seconds=300.0,
            at_seconds=round(BEGINS_SECONDS + STORM_SECONDS * number / STRUCK, 3),
            node=f"node-{node}",
        )
        for number, node in enumerate(nodes[:STRUCK])
    )
    return TrialPlan(
        seed=7,
        jobs=jobs,
        faults=faults,
        active_seconds=600.0,
        healing_seconds=600.0,
        replicas=2,
        lease_seconds=15,
        config={
            "allow": {"cordon": True, "assumeDead": True, "failJob": False},
            "quarantine": {"maxPercent": cap_percent},
        },
        spare_nodes=SPARES,
        manager_requests_per_second=500.0,
        manager_burst=500,
    )


def last_event(outcome: TrialOutcome, kind: str, status: str) -> datetime:
    """When the last node of the storm showed that it was hit."""
    moments = []
    for change, at in zip(outcome.evidence.changes, outcome.evidence.change_times, strict=True):
        if change.resource == NODES and change.before is not None:
            is_now, was = _status(change.body, kind), _status(change.before, kind)
            if is_now == status != was:
                moments.append(at)
    assert len(moments) == STRUCK, "every one of them was seen"
    return moments[-1]


def _status(node: dict[str, object], kind: str) -> str:
    conditions = msgspec.convert(node.get("status") or {}, dict[str, object]).get("conditions") or []
    assert isinstance(conditions, list)
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")


def ledgers_at(outcome: TrialOutcome, moment: datetime) -> dict[GroupKey, Ledger]:
    """The ledger of each group at that moment."""
    return {write.group: write.after for write in _until(outcome, moment)}


def _until(outcome: TrialOutcome, moment: datetime) -> Iterator[LedgerWrite]:
    return (write for write in ledger_writes(outcome.evidence) if write.at <= moment)


def writes(outcome: TrialOutcome) -> int:
    """Writes of all controllers, without those of the Lease."""
    return sum(each.request.writes and each.request.resource != LEASES for each in outcome.evidence.requests)


def tell(outcome: TrialOutcome, record_property: Callable[[str, object], None], **more: object) -> None:
    figures = {
        "nodes": NODES_IN_ALL,
        "struck": STRUCK,
        "groups": GROUPS,
        "writes": writes(outcome),
        "requests": outcome.requests,
        "CPU-seconds": round(outcome.cpu_seconds, 1),
        **more,
    }
    for name, value in figures.items():
        record_property(name, value)
    print(", ".join(f"{name}: {value}" for name, value in figures.items()))


def decided(ledger: Ledger) -> bool:
    """The incident has a restart, or a reason against one; it does not merely wait for a reconcile."""
    incident = ledger.incident
    closed = bool(ledger.history) and incident is None
    return closed or (incident is not None and (bool(incident.attempts) or ledger.phase is Phase.HELD))


@pytest.mark.long
def test_a_quarter_of_all_nodes_dies(record_property: Callable[[str, object], None]) -> None:
    outcome = run_trial(storm(FaultKind.NODE_POWER_LOSS, DEAD, 30))
    last = last_event(outcome, "Ready", "Unknown")
    ledgers = ledgers_at(outcome, last + timedelta(seconds=DECIDED_WITHIN_SECONDS))
    late = [str(key) for key in outcome.evidence.jobs if not decided(ledgers.get(key, Ledger()))]
    most = GROUPS * (WRITES_PER_GROUP_MOST + WRITES_PER_POD_MOST * PODS)
    tell(outcome, record_property, late=len(late), most_writes=most)
    assert not late, f"not decided {DECIDED_WITHIN_SECONDS:g} s after the last node was lost: {late}"
    assert writes(outcome) <= most
    assert not outcome.violations, str(outcome.violations[0])
    charges = [write.after.totals.charged for write in ledger_writes(outcome.evidence)]
    assert max(charges) == 1, "one cause, one charge for each group"


@pytest.mark.long
def test_a_storm_that_goes_on_is_charged_once() -> None:
    """A rack dies, then node after node. Two of these carry the group after it was restarted. The verdict on the first
    node comes before the others of its rack are known to be lost.
    """
    elsewhere = [f"node-{number}" for number in range(20, 25)]
    faults = [_dies(0, FaultKind.RACK_POWER_LOSS, 0, index=0)]
    faults += [_dies(number, FaultKind.NODE_POWER_LOSS, number, node=node) for number, node in enumerate(elsewhere, 1)]
    faults += [_dies(6, FaultKind.NODE_POWER_LOSS, 2, index=1), _dies(7, FaultKind.NODE_POWER_LOSS, 5, index=2)]
    job = JobPlan(namespace="team-a", name="llm", runtime=PlannedRuntime.PREPARED, pods=6, policy=DEAD)
    plan = storm(FaultKind.NODE_POWER_LOSS, DEAD, 30)
    outcome = run_trial(msgspec.structs.replace(plan, jobs=(job,), faults=tuple(faults), spare_nodes=20))
    assert not outcome.violations, str(outcome.violations[0])
    latest = [write.after for write in ledger_writes(outcome.evidence)][-1]
    assert latest.totals.incidents == 3, "it had come back in between"
    assert {each.storm for each in latest.history} == {latest.history[-1].storm}
    assert latest.history[-1].storm.startswith("storm-rack-")
    assert latest.totals.charged == 1
    same = f"not charged to the budget: the same storm as incident {latest.history[-1].id}"
    assert all(same in each.message for each in latest.history[:-1])


def _dies(number: int, kind: FaultKind, after: int, *, index: int | None = None, node: str = "") -> TrialFault:
    """A fault of the node that runs the group's pod of that index, or of the node with that name."""
    struck = () if index is None else (index,)
    at_seconds = BEGINS_SECONDS + EVERY_SECONDS * after
    job = "" if index is None else "team-a/llm"
    return TrialFault(FaultKey("world", number, kind), 600.0, at_seconds=at_seconds, job=job, indexes=struck, node=node)


@pytest.mark.long
@pytest.mark.parametrize("percent", [30, 5])
def test_a_quarter_of_all_nodes_falls_ill(percent: int, record_property: Callable[[str, object], None]) -> None:
    """Nodes are quarantined up to the cap. For every other node the ledger gives the reason against it."""
    outcome = run_trial(storm(FaultKind.NODE_UNHEALTHY, ILL, percent))
    last = last_event(outcome, "GpuUnhealthy", "True")
    cap = NODES_IN_ALL * percent // 100
    ledgers = ledgers_at(outcome, last + timedelta(seconds=DECIDED_WITHIN_SECONDS))
    late = [str(key) for key in outcome.evidence.jobs if not decided(ledgers.get(key, Ledger()))]
    most_at_once = max(len(fleet.quarantined) for fleet in fleets(outcome))
    unexplained = [str(write.group) for write in _until(outcome, last) if not explained(write.after)]
    tell(outcome, record_property, cap=cap, quarantined=most_at_once, late=len(late))
    assert not late, f"not decided {DECIDED_WITHIN_SECONDS:g} s after the last node fell ill: {late}"
    assert most_at_once <= cap
    assert tainted_most(outcome) <= cap
    assert not unexplained, f"an ill node is neither replaced nor is it said why: {unexplained}"
    assert not outcome.violations, str(outcome.violations[0])


def fleets(outcome: TrialOutcome) -> Iterator[FleetLedger]:
    for change in outcome.evidence.changes:
        if change.resource == RECOVERY_CONFIGS:
            yield msgspec.convert(change.body.get("status") or {}, FleetLedger)


def tainted_most(outcome: TrialOutcome) -> int:
    """The most nodes that carried our taint at the same time."""
    tainted: dict[str, None] = {}
    most = 0
    for change in outcome.evidence.changes:
        if change.resource != NODES:
            continue
        name = change.body["metadata"]["name"]
        taints = change.body["spec"].get("taints") or ()
        if change.type != "DELETED" and any(taint["key"] == QUARANTINE_TAINT for taint in taints):
            tainted[name] = None
        else:
            tainted.pop(name, None)
        most = max(most, len(tainted))
    return most


def explained(ledger: Ledger) -> bool:
    """The rule's restart names its nodes, or the ledger says why there are none."""
    incident = ledger.incident
    if incident is None or incident.rule != "bad-gpu" or incident.attempt is None:
        return True
    refused = any(each.action == "ReplaceNode" for each in incident.considered)
    # A group that is just starting is not checked for its nodes. They are checked once it has started.
    return bool(incident.attempt.nodes) or refused or incident.attempt.reason is Reason.MEMBER_REPLACED
