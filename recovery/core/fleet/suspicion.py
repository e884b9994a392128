"""Suspicion: which nodes are suspected, because of which incidents, and for how long."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec

from recovery.core.diagnosis.classify import DisruptionClass, Finding, classify
from recovery.core.diagnosis.evidence import Evidence
from recovery.core.diagnosis.membership import place
from recovery.core.diagnosis.signature_table import rests_on_message, shows_another_loss
from recovery.core.model.facts import Snapshot
from recovery.core.model.fleet_ledger import REMEMBERED_MAX, FleetLedger, FleetLimits, Suspicion
from recovery.core.model.ledger import Incident
from recovery.core.model.rules import Rule, RuleAction


def counts(at: datetime, limits: FleetLimits, now: datetime) -> bool:
    """A suspicion of that time still counts against its node."""
    return counts_within(at, limits.suspected_within_seconds, now)


def suspected(ledger: FleetLedger, limits: FleetLimits, node: str, now: datetime) -> tuple[str, ...]:
    """Ids of the incidents that make the node suspect and still count, oldest first."""
    within = limits.suspected_within_seconds
    found = (each for each in ledger.suspicions if each.node == node and counts_within(each.at, within, now))
    return tuple(dict.fromkeys(each.incident for each in found))


def confirmed_elsewhere(ledger: FleetLedger, limits: FleetLimits, node: str, namespace: str, now: datetime) -> bool:
    """Something confirms the messages of that namespace about the node: jobs of another namespace failed on the node as
    well, or RecoveryConfig trusts the namespace."""
    if namespace in limits.trusted_namespaces:
        return True
    return any(
        each.node == node and each.namespace != namespace and counts(each.at, limits, now) for each in ledger.suspicions
    )


def held_against(
    ledger: FleetLedger, limits: FleetLimits, node: str, now: datetime, *, confirmed: bool
) -> tuple[str, ...]:
    """Ids of the incidents that count towards a quarantine of the node, oldest first. `confirmed`: messages count."""
    kept = tuple(each for each in ledger.suspicions if confirmed or not each.by_message)
    return suspected(msgspec.structs.replace(ledger, suspicions=kept), limits, node, now)


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
    kept: list[Suspicion] = []
    of_namespace: Counter[str] = Counter()
    for each in sorted(known.values(), key=lambda each: (each.at, each.node, each.incident), reverse=True):
        of_namespace[each.namespace] += 1
        if of_namespace[each.namespace] <= _REMEMBERED_OF_NAMESPACE:
            kept.append(each)
    return tuple(reversed(kept[:REMEMBERED_MAX]))


_REMEMBERED_OF_NAMESPACE = REMEMBERED_MAX // 4
"""The failures of one tenant must not push out what other tenants reported about their nodes."""

_SUSPICIOUS = frozenset(
    {
        DisruptionClass.HARDWARE_FAULT,
        DisruptionClass.CRASHED,
        DisruptionClass.COMMUNICATION_FAILURE,
        DisruptionClass.UNKNOWN,
    }
)
"""Classes that may be the node's fault. NodeLost is not among them, because a lost node gets no pods anyway."""


def may_be_the_nodes(finding: Finding) -> bool:
    """The node on which it happened may be at fault. That makes the node suspect, no more."""
    return finding.disruption_class in _SUSPICIOUS and not shows_another_loss(finding.signature)


def suspicion_of(open_: Incident, evidence: tuple[Evidence, ...], snapshot: Snapshot) -> Suspicion | None:
    """The suspicion that this disruption adds against a node, dated by the incident. None: it adds none.

    A ReplaceNode rule that decided because of a message adds one too: a failure of a job of another namespace on the
    same node confirms it.
    """
    if not evidence or open_.storm or open_.drill is not None:
        return None
    root = classify(evidence, snapshot).root
    pod = root.evidence.pod
    rule = next((each for each in open_.pinned.rules if each.name == open_.rule), None)
    by_rule = rule is not None and rule.action is RuleAction.REPLACE_NODE and decided_by_message(root, rule)
    if pod is None or not pod.node or not (by_rule or may_be_the_nodes(root)):
        return None
    why = f"{place(pod)}: {root.signature or root.disruption_class}"
    by_message = by_rule or rests_on_message(root.signature)
    return Suspicion(pod.node, open_.id, open_.started_at, why, snapshot.key.namespace, by_message)


def decided_by_message(finding: Finding, rule: Rule | None) -> bool:
    """The decision about the finding rests on a text that the job may have written: on the pattern of the rule, or on a
    class or a signature that comes from a message. `rule` None: the default decides."""
    if rule is not None and rule.when.on_message_pattern is not None:
        return True
    return (rule is None or bool(rule.when.on_class)) and rests_on_message(finding.signature)
