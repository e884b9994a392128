"""What a disruption calls for: the user's rules decide first, then the default, then failures that repeat.

The default escalates: RecreateGroup; ReplaceNode if there is proof against the node, or it is suspected again; Hold if
the same error returns wherever it runs. `budget.onExhausted` applies after all of that (`hold.hold_back`).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from recovery.core.decision import failure_marks
from recovery.core.diagnosis import matching, native_policies
from recovery.core.diagnosis.classify import Disruption, DisruptionClass, Finding, classify
from recovery.core.diagnosis.collective import collective_of
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.matching import Answer, Match
from recovery.core.diagnosis.signature_table import rests_on_message, sign_of_node
from recovery.core.fleet import quarantine, suspicion
from recovery.core.fleet.storm import Storm, charged_before, storm_of
from recovery.core.fleet.suspicion import may_be_the_nodes
from recovery.core.incident import drills
from recovery.core.model.collective import Collective
from recovery.core.model.earlier_failures import NO_PROCESS, FailureMark
from recovery.core.model.facts import NodeFacts
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.rules import Rule, RuleAction
from recovery.core.model.sentence import Sentence
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import OnNativeIgnore, Restart

_STORM_QUIET = timedelta(seconds=3)
"""In a storm the trigger waits until no node was lost for this long: the next loss would take the new group down."""
_STORM_WAIT_MAX = timedelta(seconds=30)
_FREE_OF_CHARGE = "PreemptionByScheduler"
"""A pod of higher priority took the node: nothing of the job has failed."""


class Call(StrEnum):
    """What is to be done."""

    RECREATE_GROUP = "RecreateGroup"
    REPLACE_NODE = "ReplaceNode"
    AVOID_NODE = "AvoidNode"
    SHRINK = "Shrink"
    GROW = "Grow"
    FAIL_JOB = "FailJob"
    IGNORE = "Ignore"
    HOLD = "Hold"
    WAIT = "Wait"
    NONE = "None"


RESTARTS = frozenset({Call.RECREATE_GROUP, Call.REPLACE_NODE, Call.AVOID_NODE, Call.SHRINK, Call.GROW})
"""Calls for a trigger."""


class Alternative(msgspec.Struct, frozen=True):
    """What was considered and not done."""

    call: Call
    why: Explanation
    node: str = ""
    """ReplaceNode, AvoidNode: the node. Empty: none is known."""


class Verdict(msgspec.Struct, frozen=True):
    """What a disruption calls for, and why."""

    call: Call
    why: Explanation
    rule: str = ""
    """The rule that decided; empty: the default did."""
    in_place: bool = False
    """RecreateGroup: the agents may start the processes again instead, where that fits (`in_place.unfit`)."""
    charge: bool = True
    node_names: tuple[str, ...] = ()
    """ReplaceNode, AvoidNode: the nodes, that of the root first. One without a name is not known."""
    nodes: int = 0
    """Shrink, Grow: the size that the group gets."""
    still_runs: bool = False
    """Nothing has been lost yet: a rule acts on the fault of a node on which a member still runs."""
    considered: tuple[Alternative, ...] = ()
    requeue_at: datetime | None = None
    """Wait: when the wait ends. Otherwise: when time alone may change the verdict. None: never."""
    storm: Storm | None = None
    """The storm that took the root away. None: none did."""
    spared_by: Explanation | None = None
    """The podFailurePolicy rule that ignores all that was lost, so that the restart is not charged. None: there is
    none."""
    paid_by: str = ""
    """The incident that was charged for the same storm, so that this one is not. Empty: `charge` has another reason."""
    drill: str = ""
    """The drill that caused the root, so that it costs nothing and is not remembered as a failure. Empty: no drill
    did."""
    mark: FailureMark | None = None
    """How the root failed, to recognise it if it returns. None: it has no exit to recognise."""


def of(
    context: ReconcileContext, ledger: Ledger, evidence: tuple[Evidence, ...], *, news: tuple[Evidence, ...] = ()
) -> Verdict:
    """The verdict on this evidence, or the default without any. It does not check the caps."""
    pinned = ledger.current_incident.pinned
    if not evidence:
        return _default(ledger, None)
    disruption = _of_news(classify(evidence, context.snapshot), news)
    answer = matching.ask(pinned.rules, disruption, context.snapshot, context.now)
    storm = _storm(context, ledger, disruption)
    waiting = _settling(context, ledger, disruption) or _in_storm(context, ledger, storm)
    if waiting is not None:
        return waiting
    if answer.match is None and answer.ignored and len(answer.ignored) >= len(causes(disruption)):
        first = answer.ignored[0]
        return Verdict(Call.IGNORE, _says(first), rule=first.rule.name)
    root = _root(disruption, answer)
    # With one real loss among the node faults, the other ranks hang.
    only_faults = all(each.kind is LossKind.NODE_FAULT for each in evidence)
    spared = _spared(context, ledger, disruption)
    # The Job's own rule keeps the job alive, so a rule of ours must not fail it for the same pod.
    fails = answer.match is not None and answer.match.rule.action is RuleAction.FAIL_JOB
    verdict = (
        _by_rule(context, ledger, answer.match, answer.also, only_faults=only_faults)
        if answer.match is not None and not (fails and spared is not None)
        else _by_default(context, ledger, root)
    )
    if spared is not None:
        verdict = msgspec.structs.replace(verdict, charge=False, spared_by=spared)
    if storm is not None:
        verdict = _of_storm(verdict, storm, ledger)
    drill = ledger.current_incident.drill
    if drill is not None and drills.caused(ledger, context.snapshot, disruption, root.evidence, context.now):
        return msgspec.structs.replace(verdict, charge=False, drill=drill.name, requeue_at=answer.changes_at)
    return msgspec.structs.replace(verdict, mark=failure_marks.mark_of(root, ledger), requeue_at=answer.changes_at)


def recreates_ignored(context: ReconcileContext, ledger: Ledger) -> bool:
    """A pod that a podFailurePolicy rule ignores is no reason to stand aside: the policy says so, and without the pod
    the other ranks hang."""
    pinned = ledger.current_incident.pinned
    if pinned.override_native or pinned.on_native_ignore != OnNativeIgnore.RECREATE_GROUP:
        return False
    return collective_of(context.snapshot).collective is Collective.REQUIRED


def _spared(context: ReconcileContext, ledger: Ledger, disruption: Disruption) -> Explanation | None:
    """The podFailurePolicy rule for which the disruption costs nothing. None: a cause of it counts."""
    if not recreates_ignored(context, ledger):
        return None
    return native_policies.ignored(context.snapshot, [finding.evidence for finding in causes(disruption)])


def causes(disruption: Disruption) -> tuple[Finding, ...]:
    """The findings that are not mere consequences. If all of them are, all of them."""
    return tuple(finding for finding in disruption.findings if not finding.cascade) or disruption.findings


def _of_news(disruption: Disruption, news: tuple[Evidence, ...]) -> Disruption:
    """The causes among the news. All of the evidence shows which are consequences. No cause: the whole disruption."""
    keys = {item.key for item in news}
    found = tuple(each for each in disruption.findings if each.evidence.key in keys and not each.cascade)
    return Disruption(found) if found else disruption


def _root(disruption: Disruption, answer: Answer) -> Finding:
    """The finding that decides: the root of what is not ignored."""
    if answer.match is not None:
        return answer.match.finding
    ignored = {match.finding.evidence.key for match in answer.ignored}
    return next((each for each in causes(disruption) if each.evidence.key not in ignored), disruption.root)


_BY_RULE = {
    RuleAction.RECREATE_GROUP: Reason.RULE_RECREATE_GROUP,
    RuleAction.REPLACE_NODE: Reason.RULE_REPLACE_NODE,
    RuleAction.AVOID_NODE: Reason.RULE_AVOID_NODE,
    RuleAction.SHRINK: Reason.RULE_SHRINK,
    RuleAction.RESTART_IN_PLACE: Reason.RULE_RESTART_IN_PLACE,
    RuleAction.FAIL_JOB: Reason.RULE_FAIL_JOB,
    RuleAction.IGNORE: Reason.RULE_IGNORE,
}


def _says(match: Match) -> Explanation:
    """The rule, which part of the disruption it matches, and what it says."""
    reason = _BY_RULE[match.rule.action]
    sentence = Sentence.RULE_IGNORES if reason is Reason.RULE_IGNORE else Sentence.RULE_SAYS
    return explained(sentence, reason, rule=match.rule.name, match=match.why, action=match.rule.action)


def _settling(context: ReconcileContext, ledger: Ledger, disruption: Disruption) -> Verdict | None:
    """Wait for `settle`: late evidence could make a rule with Ignore or FailJob decide, or keep one from deciding."""
    if ledger.phase is Phase.HELD:  # a verdict was reached, whatever a clock that has jumped says now
        return None
    open_ = ledger.current_incident
    began = open_.attempts[-1].started_at if open_.attempts else open_.detected_at
    # Counted from the first sign, so that a cascade of many ranks does not put the verdict off without end. A sign
    # dated by this reconcile, or by a clock ahead of ours, does not count. Nor does one that the last attempt judged.
    signs = (item.at for item in disruption.evidence if item.at is not None and item.at < context.now)
    first = min((at for at in signs if at >= began.replace(microsecond=0)), default=began)
    until = max(open_.detected_at, first) + timedelta(seconds=open_.pinned.settle_seconds)
    if context.now >= until or not matching.may_change(open_.pinned.rules, disruption, context.snapshot):
        return None
    if until - context.now > timedelta(seconds=open_.pinned.settle_seconds):  # a clock that lags behind the kubelets'
        return None
    return Verdict(Call.WAIT, because(Reason.SETTLING), requeue_at=until)


def _in_storm(context: ReconcileContext, ledger: Ledger, storm: Storm | None) -> Verdict | None:
    """Nodes are being lost right now: the group would come back on the next one of them."""
    if storm is None or ledger.phase is Phase.HELD:
        return None
    quiet_at, longest = storm.latest_at + _STORM_QUIET, ledger.current_incident.detected_at + _STORM_WAIT_MAX
    if not context.now < quiet_at or context.now >= longest:
        return None
    why = because(Reason.STORM, what=storm.what, storm=storm.id)
    return Verdict(Call.WAIT, why, requeue_at=min(quiet_at, longest), storm=storm)


def _storm(context: ReconcileContext, ledger: Ledger, disruption: Disruption) -> Storm | None:
    """The storm that took the root away. None: none did, or the fleet was not asked."""
    fleet, pod = context.snapshot.fleet, disruption.root.evidence.pod
    if fleet is None or pod is None or disruption.disruption_class is not DisruptionClass.NODE_LOST:
        return None
    return storm_of(pod.node, fleet, ledger, context.now)


def _of_storm(verdict: Verdict, storm: Storm, ledger: Ledger) -> Verdict:
    """The verdict in a storm: each storm charges a group once, whatever the deciding rule says."""
    verdict = msgspec.structs.replace(verdict, storm=storm)
    paid = charged_before(ledger, storm)
    if paid is None or not verdict.charge:
        return verdict
    return msgspec.structs.replace(verdict, charge=False, paid_by=paid.id)


# --- by rule, by default -------------------------------------------------------------------------------------------


def _by_rule(
    context: ReconcileContext, ledger: Ledger, match: Match, also: tuple[Match, ...], *, only_faults: bool
) -> Verdict:
    """What the rule calls for. `also`: its matches on other nodes. If the group left only the first one, it would run
    on the others, and be restarted for each of them."""
    rule, says = match.rule, _says(match)
    match rule.action:
        case RuleAction.FAIL_JOB:
            if isinstance(context.policy, Policy) and context.policy.may_fail_jobs:
                return Verdict(Call.FAIL_JOB, says, rule=rule.name, charge=rule.charge)
            why = because(Reason.RULE_FAIL_JOB_NOT_ALLOWED, says=says)
            not_done = (Alternative(Call.FAIL_JOB, why),)
            return Verdict(Call.HOLD, why, rule=rule.name, charge=rule.charge, considered=not_done)
        case RuleAction.REPLACE_NODE:
            wishes = []
            for finding in (each.finding for each in (match, *also)):
                wish = _replacing(context, finding, says, rule.name, charge=rule.charge, only_faults=only_faults)
                wishes.append(_confirmed(context, ledger, wish, finding, rule))
            return _joined(wishes)
        case RuleAction.AVOID_NODE:
            pods = (each.finding.evidence.pod for each in (match, *also))
            names = tuple(pod.node if pod is not None else "" for pod in pods)
            avoids = Verdict(Call.AVOID_NODE, says, rule=rule.name, charge=rule.charge, node_names=names)
            return msgspec.structs.replace(avoids, still_runs=only_faults)
        case _:
            in_place = rule.action is RuleAction.RESTART_IN_PLACE
            return Verdict(Call.RECREATE_GROUP, says, rule=rule.name, in_place=in_place, charge=rule.charge)


def _joined(wishes: Sequence[Verdict]) -> Verdict:
    """One verdict of those that a rule has for each node: it replaces what may be replaced, and restarts at least."""
    first = min(wishes, key=lambda wish: (Call.REPLACE_NODE, Call.RECREATE_GROUP, Call.NONE).index(wish.call))
    return msgspec.structs.replace(
        first,
        node_names=tuple(name for wish in wishes if wish.call is Call.REPLACE_NODE for name in wish.node_names),
        considered=tuple(each for wish in wishes for each in wish.considered),
    )


def _by_default(context: ReconcileContext, ledger: Ledger, root: Finding) -> Verdict:
    verdict = _default(ledger, root)
    if verdict.call is Call.NONE:
        return verdict
    again = failure_marks.comes_back(root, ledger)
    if again is not None:
        return Verdict(Call.HOLD, again, considered=(Alternative(verdict.call, again),))
    against = _case_against(context, ledger, root)
    if against is None:
        return verdict
    why = explained(Sentence.AND, against.reason, why=verdict.why, more=against)
    wish = _replacing(context, root, why, "", charge=verdict.charge, only_faults=False)
    return _confirmed(context, ledger, wish, root, None)


def _default(ledger: Ledger, root: Finding | None) -> Verdict:
    pinned = ledger.current_incident.pinned
    if pinned.restart == Restart.NONE:
        return Verdict(Call.NONE, because(Reason.RESTART_NONE, policy=pinned.policy_name))
    charge = root is None or root.evidence.disrupted_by != _FREE_OF_CHARGE
    why = because(Reason.DEFAULT_RESTART, policy=pinned.policy_name, restart=pinned.restart)
    return Verdict(Call.RECREATE_GROUP, why, in_place=True, charge=charge)


def _replacing(
    context: ReconcileContext, finding: Finding, why: Explanation, rule: str, *, charge: bool, only_faults: bool
) -> Verdict:
    """ReplaceNode, if there is a node to replace and permission for it. The caps are checked at the trigger."""
    node = finding.evidence.pod.node if finding.evidence.pod is not None else ""
    wish = Verdict(Call.REPLACE_NODE, why, rule=rule, charge=charge, node_names=(node,), still_runs=only_faults)
    if not node:
        return not_replaced(wish, not_quarantined(node, because(Reason.NODE_UNKNOWN)))
    facts = context.snapshot.nodes.get(node)
    if facts is None or not facts.ready or _keeps_pods_off(context, facts):
        return msgspec.structs.replace(wish, call=Call.RECREATE_GROUP, node_names=())
    if not isinstance(context.policy, Policy) or not context.policy.limits.may_cordon:
        why_not = explained(Sentence.NODE_MAY_NOT_BE_CORDONED, Reason.QUARANTINE_NOT_ALLOWED, node=node)
        return not_replaced(wish, not_quarantined(node, why_not))
    return wish


def _confirmed(
    context: ReconcileContext, ledger: Ledger, wish: Verdict, finding: Finding, rule: Rule | None
) -> Verdict:
    """ReplaceNode, unless it rests on a message that nothing else confirms: anyone who runs a job can write one, and a
    quarantine affects every job. `rule` None: the default asks for it."""
    if wish.call is not Call.REPLACE_NODE or not suspicion.decided_by_message(finding, rule):
        return wish
    [node] = wish.node_names
    if message_counts(context, node) or (rule is not None and sign_of_rule(context, ledger, node, rule)):
        return wish
    namespace = context.snapshot.key.namespace
    why_not = because(Reason.MESSAGE_UNCONFIRMED, node=node, namespace=namespace)
    return not_replaced(wish, not_quarantined(node, why_not))


def message_counts(context: ReconcileContext, node: str) -> bool:
    """What a message says of the node is confirmed: by the node itself, by another namespace, or by RecoveryConfig."""
    snapshot, policy = context.snapshot, context.policy
    facts = snapshot.nodes.get(node)
    if facts is not None and sign_of_node(facts, snapshot.pods):
        return True
    if not isinstance(policy, Policy):
        return False
    namespace = snapshot.key.namespace
    return suspicion.confirmed_elsewhere(policy.fleet, policy.limits, node, namespace, context.now)


def sign_of_rule(context: ReconcileContext, ledger: Ledger, node: str, rule: Rule) -> str:
    """The node's conditions and taints that an administrator's rule calls a fault. Empty: there are none.

    A tenant's own rule does not count: it could name `Ready`, or the taint that all GPU nodes have. The author of a
    rule is known only while the policy in force is the one that the incident has pinned.
    """
    policy, facts = context.policy, context.snapshot.nodes.get(node)
    if not isinstance(policy, Policy) or facts is None or policy.uid != ledger.current_incident.pinned.policy_uid:
        return ""
    if policy.namespace and policy.namespace not in policy.limits.trusted_namespaces:
        return ""
    return matching.node_signs(rule.when, facts)


def not_quarantined(node: str, why: Explanation) -> Alternative:
    """ReplaceNode was considered for that node. `node` empty: it is not known."""
    return Alternative(Call.REPLACE_NODE, why, node)


def not_replaced(wish: Verdict, *refusals: Alternative) -> Verdict:
    """What is left of ReplaceNode if no node may be quarantined: only the restart. The first refusal is quoted.

    While the member still runs, not even that: the group could come back on the same node, and nothing would be gained.
    """
    refused, considered = refusals[0].why, (*wish.considered, *refusals)
    changed = msgspec.structs.replace(wish, call=Call.RECREATE_GROUP, node_names=(), considered=considered)
    if wish.still_runs:
        why = explained(Sentence.BUT_MEMBER_RUNS, refused.reason, why=wish.why, refused=refused)
        return msgspec.structs.replace(changed, call=Call.NONE, why=why)
    why = explained(Sentence.BUT, wish.why.reason, why=wish.why, refused=refused)
    return msgspec.structs.replace(changed, why=why)


def _keeps_pods_off(context: ReconcileContext, node: NodeFacts) -> bool:
    """The node is cordoned or quarantined, or has a taint that this group's pods do not tolerate. Another taint alone
    says nothing: GPU nodes of most clouds have one that all training pods tolerate. Without the fleet (a reconcile from
    the cache), and before it is known which nodes accept the pods, only the cordon and the quarantine are known.
    """
    fleet = context.snapshot.fleet
    feasible = fleet.feasible if fleet is not None else None
    return quarantine.takes_no_pods(node) or (feasible is not None and node.ready and node.name not in feasible)


def _case_against(context: ReconcileContext, ledger: Ledger, root: Finding) -> Explanation | None:
    """Why the node should be replaced although no rule asks for it. None: there is no reason."""
    pod, open_ = root.evidence.pod, ledger.current_incident
    if pod is None or not pod.node or not isinstance(context.policy, Policy):
        return None
    if root.blames_node:
        return because(Reason.NODE_PROVEN, proof=str(root.signature or root.disruption_class), node=pod.node)
    if open_.drill is not None or not may_be_the_nodes(root):
        return None
    limits, confirmed = context.policy.limits, message_counts(context, pod.node)
    if rests_on_message(root.signature) and not confirmed:
        return None
    known = suspicion.held_against(context.policy.fleet, limits, pod.node, context.now, confirmed=confirmed)
    others = [each for each in known if each != open_.id]
    if len(others) + 1 >= limits.suspicions:
        return suspected(pod.node, others, limits.suspicions)
    # A node that refuses pods is avoided by this group, and may accept pods again within minutes.
    failed = (mark for mark in ledger.failures if mark.exit_code != NO_PROCESS)
    marks = (mark for mark in failed if mark.incident == open_.id and mark.node == pod.node)
    if any(not quarantine.cleared(mark.at, context.snapshot.nodes.get(pod.node), context.now) for mark in marks):
        return because(Reason.NODE_SUSPECTED_TWICE, node=pod.node)
    return None


def suspected(node: str, others: Sequence[str], most: int) -> Explanation:
    """The node is suspected by `others` and by this incident. `most`: how many incidents have it replaced."""
    before = others[-1] if others else ""
    return because(Reason.NODE_SUSPECTED, node=node, count=len(others) + 1, most=most, before=before)


# --- the same failure again ----------------------------------------------------------------------------------------
