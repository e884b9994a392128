"""What a recovery asks of the fleet: nodes to be quarantined, nodes to be suspected, a recovery that was in vain.

Derived from the ledger alone, so that a crash between its write and the fleet's neither loses nor doubles it: every
entry names the incident, and what stands there already is not asked for again.
"""

from datetime import timedelta

import msgspec

from recovery.core import matching, quarantine
from recovery.core.attempts import restart_of
from recovery.core.classify import DisruptionClass
from recovery.core.evidence import Evidence
from recovery.core.fleet import FleetChange, Futile, Quarantined, Suspicion
from recovery.core.incident import incident_of
from recovery.core.ledger import Ledger
from recovery.core.look import Look
from recovery.core.plan import Action, ChangeFleet
from recovery.core.policy import Policy
from recovery.core.verdict import Call, Verdict, not_replaced, suspicion_of


def admitted(look: Look, ledger: Ledger, verdict: Verdict) -> Verdict:
    """ReplaceNode within the caps, or RecreateGroup with the reason why the node is not quarantined."""
    fleet = look.snapshot.fleet
    if verdict.call is not Call.REPLACE_NODE or fleet is None or not isinstance(look.policy, Policy):
        return verdict
    wanted = _wanted(look, ledger, verdict.node, verdict.rule, verdict.why)
    if wanted is None:
        return msgspec.structs.replace(verdict, call=Call.RECREATE_GROUP, node="")
    refused = quarantine.spared(wanted.node, fleet, incident_of(ledger).ranks)
    if refused is None:
        answer = quarantine.admitted(look.policy.fleet, look.policy.limits, wanted, nodes=fleet.nodes, now=look.now)
        refused = answer if isinstance(answer, quarantine.Refused) else None
    if refused is None:
        return verdict
    return not_replaced(verdict, f"node {wanted.node} is not quarantined: {refused.why}")


def change(look: Look, ledger: Ledger, evidence: tuple[Evidence, ...]) -> tuple[Action, ...]:
    """What the latest restart of ours asks of the fleet and what does not stand there yet; empty: nothing."""
    policy, fleet = look.policy, look.snapshot.fleet
    open_, restart = incident_of(ledger), restart_of(ledger)
    if not isinstance(policy, Policy) or fleet is None or restart is None:
        return ()
    quarantined = []
    for node in restart.nodes:
        wanted = _wanted(look, ledger, node, open_.rule, restart.reason)
        if wanted is None:
            continue
        # A cap that has been filled since must not keep the group from its restart.
        answer = quarantine.admitted(policy.fleet, policy.limits, wanted, nodes=fleet.nodes, now=look.now)
        if not isinstance(answer, quarantine.Refused) and answer != policy.fleet:
            quarantined.append(wanted)
    suspicions = _suspicions(look, ledger, evidence)
    futile: tuple[Futile, ...] = ()
    by_hand = open_.disruption_class == DisruptionClass.MANUAL
    in_vain = policy.limits.breaker_recoveries is not None and ledger.attempts_in_row > 1 and not by_hand
    if in_vain and all(each.incident != open_.id for each in policy.fleet.futile):
        futile = (Futile(open_.id, restart.started_at),)
    wish = FleetChange(tuple(quarantined), suspicions, futile)
    return (ChangeFleet(ledger.epoch, wish),) if wish != FleetChange() else ()


def _suspicions(look: Look, ledger: Ledger, evidence: tuple[Evidence, ...]) -> tuple[Suspicion, ...]:
    open_, policy = incident_of(ledger), look.policy
    if not isinstance(policy, Policy) or not policy.limits.may_cordon:
        return ()
    suspect = suspicion_of(open_, evidence, look)
    if suspect is None:
        return ()
    node, what = suspect
    if any((each.node, each.incident) == (node, open_.id) for each in policy.fleet.suspicions):
        return ()
    return (Suspicion(node, open_.id, look.now, what),)


def _wanted(look: Look, ledger: Ledger, node: str, rule: str, why: str) -> Quarantined | None:
    """The entry for the node. None: it does not exist any more.

    Dated by the restart that it is for, not by this look: whoever releases the node after that is not overruled.
    """
    facts, policy = look.snapshot.nodes.get(node), look.policy
    if facts is None or not isinstance(policy, Policy):
        return None
    lasts, restart = policy.limits.release_after_seconds, restart_of(ledger)
    since = restart.started_at if restart is not None and node in restart.nodes else look.now
    asked = next((each.when for each in incident_of(ledger).terms.rules if each.name == rule), None)
    return Quarantined(
        node=node,
        node_uid=facts.uid,
        reason=why,
        since=since,
        incident=incident_of(ledger).id,
        release_at=since + timedelta(seconds=lasts) if lasts is not None else None,
        release_when=matching.node_sign(asked, facts) if asked is not None else "",
        cordoned=not facts.unschedulable,
    )
