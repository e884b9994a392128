"""Nodes that one group avoids: the evidence against them is enough for this group, but not for all pods.

A quarantine keeps all pods off a node, so it needs evidence about the node. Without that, or if a quarantine is not
allowed, only this group moves elsewhere, by its birth settings. A group never avoids a node that it needs.

A node whose kubelet refuses pods of the group again and again is avoided as well, but only for `REFUSED_FOR`.
"""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from recovery.core.decision.verdict import Alternative, Call, Verdict
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.diagnosis.refusals import RefusingNode, refusing_nodes
from recovery.core.fleet import quarantine
from recovery.core.model.annotations import HOSTNAME_LABEL
from recovery.core.model.durations import in_words
from recovery.core.model.earlier_failures import NO_PROCESS
from recovery.core.model.group_size import AvoidedNode
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, all_of, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.resolved import Policy

MAX_AVOIDED = 16
"""One group avoids at most this many nodes at a time. The next one replaces the oldest."""


REFUSED_FOR = timedelta(minutes=15)
"""How long a group avoids a node that has refused its pods. While a device plugin is rolled out, each node refuses pods
for a moment, and a group that avoided them for longer would soon avoid all."""


def instead(context: ReconcileContext, ledger: Ledger, verdict: Verdict) -> Verdict:
    """The verdict. If it restarts the group only, the group avoids nodes meanwhile: those whose quarantine was refused,
    and those that refuse its pods."""
    if verdict.call is not Call.RECREATE_GROUP or verdict.why.reason is Reason.AVOIDANCE_ENDED:
        return verdict
    names: list[str] = []
    refusals: list[Alternative] = []
    why = verdict.why
    for each in verdict.considered:
        if each.call is Call.REPLACE_NODE and each.node and _refused(context, each.node, names) is None:
            names.append(each.node)
    for found in _refusing(context, ledger):
        refused = _refused(context, found.node, names)
        if refused is not None:
            refusals.append(Alternative(Call.AVOID_NODE, refused, found.node))
        elif found.node not in names:
            names.append(found.node)
            why = explained(Sentence.AND, why.reason, why=why, more=_refuses(found))
    considered = (*verdict.considered, *refusals)
    if not names:
        return msgspec.structs.replace(verdict, considered=considered)
    why = explained(Sentence.AVOIDS, why.reason, why=why, node=", node ".join(names))
    return msgspec.structs.replace(
        verdict, call=Call.AVOID_NODE, node_names=tuple(names), why=why, considered=considered
    )


def off_refusing(context: ReconcileContext, ledger: Ledger) -> tuple[Explanation, Verdict] | None:
    """What a starting group has seen of nodes that refuse its pods, and the restart that takes it off them, or what is
    left of that if it cannot avoid them. None: it waits for none, or has considered this before.

    The Job waits longer before each further pod, and the scheduler picks the same node for it.
    """
    tried = {each.node for each in ledger.current_incident.considered if each.action == Call.AVOID_NODE}
    blocking = [found for found in _refusing(context, ledger) if found.blocks and found.node not in tried]
    if not blocking:
        return None
    names = tuple(found.node for found in blocking)
    lasts, joined = in_words(REFUSED_FOR), ", node ".join(names)
    why = explained(Sentence.AVOIDS_FOR, Reason.NODE_REFUSES_PODS, node=joined, lasts=lasts)
    wish = Verdict(Call.AVOID_NODE, why, node_names=names, still_runs=True)
    return all_of(tuple(map(_refuses, blocking))), admitted(context, wish)


def _refusing(context: ReconcileContext, ledger: Ledger) -> tuple[RefusingNode, ...]:
    """The nodes that refuse the group and that it does not avoid yet. None once it found no room on the others."""
    open_ = ledger.current_incident
    if any(attempt.reason is Reason.AVOIDANCE_ENDED for attempt in open_.attempts):
        return ()
    known = {each.node for each in current(context, ledger)}
    found = refusing_nodes(context.snapshot, _refused_earlier(context, ledger))
    return tuple(each for each in found if each.node not in known)


def _refused_earlier(context: ReconcileContext, ledger: Ledger) -> list[str]:
    """The node of each refusal for which the group was restarted: the restart has removed the pod."""
    since = context.now - REFUSED_FOR
    return [mark.node for mark in ledger.failures if mark.exit_code == NO_PROCESS and mark.at > since]


def _refuses(found: RefusingNode) -> Explanation:
    return because(Reason.NODE_REFUSES_PODS, node=found.node, count=found.count, status=found.reason)


def admitted(context: ReconcileContext, verdict: Verdict) -> Verdict:
    """The verdict of a rule with AvoidNode. If no node can be avoided, only the restart is left."""
    if verdict.call is not Call.AVOID_NODE:
        return verdict
    names: list[str] = []
    refusals: list[Alternative] = []
    for node in verdict.node_names:
        facts = context.snapshot.nodes.get(node)
        if node and (facts is None or not facts.ready or quarantine.takes_no_pods(facts)):
            continue
        refused = _refused(context, node, names)
        if refused is None:
            names.append(node)
        else:
            refusals.append(Alternative(Call.AVOID_NODE, refused, node))
    if names:
        considered = (*verdict.considered, *refusals)
        return msgspec.structs.replace(verdict, node_names=tuple(names), considered=considered)
    if refusals:
        return not_avoided(verdict, *refusals)
    return msgspec.structs.replace(verdict, call=Call.RECREATE_GROUP, node_names=())


def not_avoided(verdict: Verdict, *refusals: Alternative) -> Verdict:
    """What is left of AvoidNode if no node is avoided: only the restart. While the member still runs there, not even
    that: the group could come back on the same node. The first refusal is quoted."""
    call = Call.NONE if verdict.still_runs else Call.RECREATE_GROUP
    runs = verdict.still_runs and verdict.why.reason is not Reason.NODE_REFUSES_PODS
    sentence = Sentence.BUT_MEMBER_RUNS if runs else Sentence.BUT
    why = explained(sentence, verdict.why.reason, why=verdict.why, refused=refusals[0].why)
    considered = (*verdict.considered, *refusals)
    return msgspec.structs.replace(verdict, call=call, node_names=(), why=why, considered=considered)


def _refused(context: ReconcileContext, node: str, besides: Sequence[str]) -> Explanation | None:
    """Why the group cannot avoid the node. None: it can, or the fleet was not asked. `besides`: it avoids these too."""
    facts, fleet = context.snapshot.nodes.get(node), context.snapshot.fleet
    if facts is None:
        return because(Reason.NODE_UNKNOWN)
    if not facts.labels.get(HOSTNAME_LABEL):
        return because(Reason.NODE_NOT_AVOIDED, node=node, why=f"it has no label {HOSTNAME_LABEL}")
    jobs = member_jobs(context.snapshot)
    if len(jobs) != 1:
        return because(Reason.NODE_NOT_AVOIDED, node=node, why="the group has several Jobs")
    if jobs[0].pinned:
        return because(Reason.NODE_NOT_AVOIDED, node=node, why="Kueue chooses the node of each pod by its topology")
    if fleet is None:
        return None
    all_ = {node, *besides}
    there = sum(pod.node in all_ and pod.gone_at is None for pod in context.snapshot.pods)
    # The lost member has left room on the very node that is to be avoided.
    elsewhere = [name for name in fleet.room.nodes if name not in all_] if fleet.room is not None else []
    if len(elsewhere) < max(there, len(all_)):
        return because(Reason.NODE_NOT_AVOIDED, node=node, why="there may be no room for the group on other nodes")
    return None


def entered(context: ReconcileContext, ledger: Ledger, node: str, why: str) -> Ledger:
    """The ledger with this node among those that the group avoids, for as long as a suspicion counts. A node that only
    refuses pods is avoided for less."""
    facts, policy = context.snapshot.nodes.get(node), context.policy
    if facts is None or not isinstance(policy, Policy):
        return ledger
    refuses = any(each.node == node for each in refusing_nodes(context.snapshot, _refused_earlier(context, ledger)))
    lasts = REFUSED_FOR if refuses else timedelta(seconds=policy.limits.suspected_within_seconds)
    until = context.now + lasts
    others = tuple(each for each in current(context, ledger) if each.node != node)
    new = AvoidedNode(node, facts.labels[HOSTNAME_LABEL], context.now, until, why)
    return msgspec.structs.replace(ledger, avoided=(*others, new)[-MAX_AVOIDED:])


def current(context: ReconcileContext, ledger: Ledger) -> tuple[AvoidedNode, ...]:
    """The nodes that the group still avoids."""
    return tuple(each for each in ledger.avoided if context.now < each.until)


def hosts(avoided: tuple[AvoidedNode, ...]) -> tuple[str, ...]:
    """The values of their hostname labels, sorted."""
    return tuple(sorted({each.host for each in avoided}))
