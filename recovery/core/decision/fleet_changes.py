"""What a recovery asks of the fleet: to quarantine nodes, to suspect nodes, and to note a recovery that was in vain.

It is derived from the ledger alone, so that a crash between the ledger's write and the fleet's neither loses nor
doubles it: every entry names the incident, and an entry that the fleet already has is not asked for again.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.decision.verdict import Alternative, Call, Verdict, not_quarantined, not_replaced, sign_of_rule
from recovery.core.diagnosis import matching
from recovery.core.diagnosis.evidence import Evidence
from recovery.core.diagnosis.signature_table import proof_of_node
from recovery.core.fleet import quarantine
from recovery.core.fleet.suspicion import suspicion_of
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.incident.preconditions import stale_nodes
from recovery.core.model.facts import FleetFacts
from recovery.core.model.fleet_ledger import FleetChange, FleetLedger, Futile, Quarantined, Suspicion
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import Action, ChangeFleet
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import message_of
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode

UNKNOWN_AGAIN_AFTER = timedelta(seconds=30)
"""The fleet is asked again after this long at the latest. The store reports once it knows, mostly within a second."""


def admitted(context: ReconcileContext, ledger: Ledger, verdict: Verdict) -> Verdict:
    """ReplaceNode of the nodes within the caps, or RecreateGroup with the reason why no node is quarantined.

    While it is not known whether a node may be quarantined, a group that has lost a member restarts without a
    quarantine. A group whose members all run waits, because it loses nothing by waiting.
    """
    fleet, policy = context.snapshot.fleet, context.policy
    if verdict.call is not Call.REPLACE_NODE or fleet is None or not isinstance(policy, Policy):
        return verdict
    taken: list[str] = []
    refusals: list[Alternative] = []
    for node in verdict.node_names:
        wanted = _wanted(context, ledger, node, verdict.rule, message_of(verdict.why))
        if wanted is None:
            continue
        why = refused(context, policy, wanted, ledger.current_incident.ranks)
        if why is None:
            taken.append(node)
            policy = _with(context, policy, wanted)
        elif why.reason is Reason.FEASIBLE_NODES_UNKNOWN and verdict.still_runs:
            return msgspec.structs.replace(
                verdict, call=Call.WAIT, why=why, node_names=(), requeue_at=context.now + UNKNOWN_AGAIN_AFTER
            )
        else:
            said = explained(Sentence.NOT_QUARANTINED, why.reason, node=node, why=why)
            refusals.append(not_quarantined(node, said))
    if taken:
        considered = (*verdict.considered, *refusals)
        return msgspec.structs.replace(verdict, node_names=tuple(taken), considered=considered)
    if refusals:
        return not_replaced(verdict, *refusals)
    return msgspec.structs.replace(verdict, call=Call.RECREATE_GROUP, node_names=())


def _with(context: ReconcileContext, policy: Policy, wanted: Quarantined) -> Policy:
    """The policy, whose fleet has that quarantine as well: the caps count it for the next node."""
    fleet = context.snapshot.fleet
    assert fleet is not None, "without the fleet no cap is checked"
    after = _admitted(context, policy, fleet, wanted)
    return policy if isinstance(after, quarantine.Refused) else msgspec.structs.replace(policy, fleet=after)


def refused(context: ReconcileContext, policy: Policy, wanted: Quarantined, members: int) -> Explanation | None:
    """Why the node may not be quarantined. None: it may, or the fleet was not asked. `members`: pods of the group."""
    fleet = context.snapshot.fleet
    if fleet is None:
        return None
    unseen = stale_nodes(context.snapshot)
    if unseen is not None:
        return unseen
    answer = quarantine.spared(policy.fleet, wanted.node, fleet, members)
    if answer is not None:
        return answer.why
    after = _admitted(context, policy, fleet, wanted)
    return after.why if isinstance(after, quarantine.Refused) else None


def _admitted(
    context: ReconcileContext, policy: Policy, fleet: FleetFacts, wanted: Quarantined
) -> FleetLedger | quarantine.Refused:
    shows = context.snapshot.nodes.get(wanted.node)
    return quarantine.admitted(policy.fleet, policy.limits, wanted, nodes=fleet.nodes, now=context.now, shows=shows)


def change(context: ReconcileContext, ledger: Ledger, evidence: tuple[Evidence, ...]) -> tuple[Action, ...]:
    """What the latest restart asks of the fleet and the fleet does not have yet. Empty: nothing.

    A person who forces a restart under Observe wants only the restart, not its consequences for nodes.
    """
    policy, fleet = context.policy, context.snapshot.fleet
    open_, restart = ledger.current_incident, restart_of(ledger)
    if not isinstance(policy, Policy) or policy.mode is not Mode.ENFORCE or fleet is None or restart is None:
        return ()
    quarantined = []
    for node in restart.nodes:
        wanted = _wanted(context, ledger, node, open_.rule, restart.whole_message)
        if wanted is None:
            continue
        # A cap that has been filled since, or another group that now waits for the node, must not keep this group from
        # its restart.
        if refused(context, policy, wanted, open_.ranks) is not None:
            continue
        after = _with(context, policy, wanted)
        if after.fleet != policy.fleet:
            quarantined.append(wanted)
        policy = after
    suspicions = _suspicions(context, ledger, evidence)
    futile: tuple[Futile, ...] = ()
    # The recovery before this one was in vain. A restart that is uncharged, or by hand, does not count and ends
    # the row.
    in_vain = policy.limits.breaker_recoveries is not None and ledger.charged_in_row > 1
    if in_vain and all(each.incident != open_.id for each in policy.fleet.futile):
        key = context.snapshot.key
        futile = (Futile(open_.id, restart.started_at, key.namespace, key.name),)
    wish = FleetChange(tuple(quarantined), suspicions, futile)
    return (ChangeFleet(ledger.epoch, wish),) if wish != FleetChange() else ()


def _suspicions(context: ReconcileContext, ledger: Ledger, evidence: tuple[Evidence, ...]) -> tuple[Suspicion, ...]:
    open_, policy = ledger.current_incident, context.policy
    if not isinstance(policy, Policy) or not policy.limits.may_cordon:
        return ()
    suspect = suspicion_of(open_, evidence, context.snapshot)
    if suspect is None:
        return ()
    if any((each.node, each.incident) == (suspect.node, open_.id) for each in policy.fleet.suspicions):
        return ()
    # Dated by the restart that it is for, like the quarantine, and not by this reconcile.
    restart = restart_of(ledger)
    at = restart.started_at if restart is not None else context.now
    if quarantine.cleared(at, context.snapshot.nodes.get(suspect.node), context.now):
        return ()
    return (msgspec.structs.replace(suspect, at=at),)


def _wanted(context: ReconcileContext, ledger: Ledger, node: str, rule: str, why: str) -> Quarantined | None:
    """The entry for the node. None: the node does not exist any more.

    It is dated by its restart, not by this reconcile, so that a user who releases the node later is not overruled.
    """
    restart = restart_of(ledger)
    since = restart.started_at if restart is not None and node in restart.nodes else context.now
    asked = next((each for each in ledger.current_incident.pinned.rules if each.name == rule), None)
    facts = context.snapshot.nodes.get(node)
    if asked is None or facts is None:
        return entry(context, node, ledger.current_incident.id, why, since)
    signs, node_sign = matching.node_signs(asked.when, facts), sign_of_rule(context, ledger, node, asked)
    return entry(context, node, ledger.current_incident.id, why, since, release_when=signs, node_sign=node_sign)


def entry(
    context: ReconcileContext,
    node: str,
    name: str,
    why: str,
    since: datetime,
    *,
    release_when: str = "",
    node_sign: str = "",
) -> Quarantined | None:
    """The quarantine of the node since then, under the name of an incident. None: the node does not exist any more.

    `release_when`: the node's conditions and taints for which a rule asks for the quarantine. Empty: none. `node_sign`:
    those of them that count as a sign of the node. Empty: only the signature table can name one.
    """
    facts, policy = context.snapshot.nodes.get(node), context.policy
    if facts is None or not isinstance(policy, Policy):
        return None
    node_sign = node_sign or proof_of_node(facts, context.snapshot.pods)
    lasts = quarantine.lasts_seconds(policy.limits, node_sign)
    return Quarantined(
        node=node,
        node_uid=facts.uid,
        reason=why,
        since=since,
        incident=name,
        release_at=since + timedelta(seconds=lasts) if lasts is not None else None,
        release_when=release_when,
        cordoned=quarantine.cordons(facts, wanted=policy.limits.cordons),
        namespace=context.snapshot.key.namespace,
        node_sign=node_sign,
    )
