"""Suspicion: which nodes are held against, for which incidents, and for how long."""

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
    """A suspicion of that time is held against its node."""
    return counts_within(at, limits.suspected_within_seconds, now)


def suspected(ledger: FleetLedger, limits: FleetLimits, node: str, now: datetime) -> tuple[str, ...]:
    """Ids of the incidents that the node is suspected for and that still count, oldest first."""
    within = limits.suspected_within_seconds
    found = (each for each in ledger.suspicions if each.node == node and counts_within(each.at, within, now))
    return tuple(dict.fromkeys(each.incident for each in found))


def confirmed_elsewhere(ledger: FleetLedger, limits: FleetLimits, node: str, namespace: str, now: datetime) -> bool:
    """A message of that namespace about the node is more than the word of one tenant: jobs of another namespace failed
    on the node as well, or RecoveryConfig trusts the namespace."""
    if namespace in limits.trusted_namespaces:
        return True
    return any(
        each.node == node and each.namespace not in ("", namespace) and counts(each.at, limits, now)
        for each in ledger.suspicions
    )


def held_against(
    ledger: FleetLedger, limits: FleetLimits, node: str, now: datetime, *, confirmed: bool
) -> tuple[str, ...]:
    """Ids of the incidents that count toward the quarantine of the node, oldest first. `confirmed`: messages count."""
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
        if not each.namespace or of_namespace[each.namespace] <= _REMEMBERED_OF_NAMESPACE:
            kept.append(each)
    return tuple(reversed(kept[:REMEMBERED_MAX]))


_REMEMBERED_OF_NAMESPACE = REMEMBERED_MAX // 4
"""One tenant's failures must not push out of the memory what others reported of their nodes."""

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
    return finding.disruption_class in _SUSPICIOUS and not shows_another_loss(finding.signature)


def suspicion_of(open_: Incident, evidence: tuple[Evidence, ...], snapshot: Snapshot) -> Suspicion | None:
    """The suspicion that this disruption brings upon a node, dated by the incident. None: it brings none.

    Also where a rule asked for another node on account of a message: a job of a second namespace that says the same
    confirms it.
    """
    if not evidence or open_.storm:
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
    """What decides about the finding is a text that the job may have written: the pattern of the rule, or the class or
    the signature that was read from it. `rule` None: the default decides."""
    if rule is not None and rule.when.on_message_pattern is not None:
        return True
    return (rule is None or bool(rule.when.on_class)) and rests_on_message(finding.signature)
