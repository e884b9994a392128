"""Suspicion: which nodes are held against, for which incidents, and for how long."""

from collections.abc import Iterable
from datetime import datetime

from recovery.core.diagnosis.classify import DisruptionClass, Finding, classify
from recovery.core.diagnosis.evidence import Evidence
from recovery.core.diagnosis.membership import place
from recovery.core.diagnosis.signature_table import tells_of_another
from recovery.core.model.facts import Snapshot
from recovery.core.model.fleet_ledger import REMEMBERED_MAX, FleetLedger, FleetLimits, Suspicion
from recovery.core.model.ledger import Incident


def counts(at: datetime, limits: FleetLimits, now: datetime) -> bool:
    """A suspicion of that time is held against its node."""
    return counts_within(at, limits.suspected_within_seconds, now)


def suspected(ledger: FleetLedger, limits: FleetLimits, node: str, now: datetime) -> tuple[str, ...]:
    """Ids of the incidents that the node is suspected for and that still count, oldest first."""
    within = limits.suspected_within_seconds
    found = (each for each in ledger.suspicions if each.node == node and counts_within(each.at, within, now))
    return tuple(dict.fromkeys(each.incident for each in found))


def counts_within(at: datetime, within_seconds: float, now: datetime) -> bool:
    return (now - at).total_seconds() < within_seconds


def with_suspicions(
    before: tuple[Suspicion, ...], limits: FleetLimits, more: Iterable[Suspicion], now: datetime
) -> tuple[Suspicion, ...]:
    known = {(each.node, each.incident): each for each in before}
    for each in more:
        if counts_within(each.at, limits.suspected_within_seconds, now):
            known.setdefault((each.node, each.incident), each)
    if len(known) == len(before):
        return before
    return tuple(sorted(known.values(), key=lambda each: (each.at, each.node, each.incident))[-REMEMBERED_MAX:])


_SUSPICIOUS = frozenset(
    {
        DisruptionClass.HARDWARE_FAULT,
        DisruptionClass.CRASHED,
        DisruptionClass.COMMUNICATION_FAILURE,
        DisruptionClass.UNKNOWN,
    }
)
"""Classes that may be the node's fault. A node that is lost keeps pods off by itself."""


def may_be_the_nodes(finding: Finding) -> bool:
    """The node on which it happened may be at fault: it is suspected for it, no more."""
    return finding.disruption_class in _SUSPICIOUS and not tells_of_another(finding.signature)


def suspicion_of(open_: Incident, evidence: tuple[Evidence, ...], snapshot: Snapshot) -> tuple[str, str] | None:
    """The node that is suspected for this disruption, and for what. None: no node is."""
    if not evidence or open_.storm:
        return None
    root = classify(evidence, snapshot).root
    pod = root.evidence.pod
    if pod is None or not pod.node or not may_be_the_nodes(root):
        return None
    return pod.node, f"{place(pod)}: {root.signature or root.disruption_class}"
