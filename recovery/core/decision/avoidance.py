"""Nodes that one group avoids: the evidence against them is enough for this group, but not for all pods.

A quarantine keeps all pods off a node, so it needs evidence about the node. Without that, or if a quarantine is not
allowed, only this group moves elsewhere, by its birth settings. A group never avoids a node that it needs.
"""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from recovery.core.decision.verdict import Alternative, Call, Verdict
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.fleet import quarantine
from recovery.core.model.annotations import HOSTNAME_LABEL
from recovery.core.model.group_size import AvoidedNode
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, Sentence, because, explained
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.resolved import Policy

MAX_AVOIDED = 16
"""One group avoids at most this many nodes at a time. The next one replaces the oldest."""


def instead(context: ReconcileContext, verdict: Verdict) -> Verdict:
    """The verdict. If it considered quarantines that were refused, the group avoids those nodes instead."""
    if verdict.call is not Call.RECREATE_GROUP:
        return verdict
    names: list[str] = []
    for each in verdict.considered:
        if each.call is Call.REPLACE_NODE and each.node and _refused(context, each.node, names) is None:
            names.append(each.node)
    if not names:
        return verdict
    why = explained(Sentence.AVOIDS, verdict.why.reason, why=verdict.why, node=", node ".join(names))
    return msgspec.structs.replace(verdict, call=Call.AVOID_NODE, node_names=tuple(names), why=why)


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
    sentence, call = (
        (Sentence.BUT_MEMBER_RUNS, Call.NONE) if verdict.still_runs else (Sentence.BUT, Call.RECREATE_GROUP)
    )
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
    """The ledger with this node among those that the group avoids, for as long as a suspicion counts."""
    facts, policy = context.snapshot.nodes.get(node), context.policy
    if facts is None or not isinstance(policy, Policy):
        return ledger
    until = context.now + timedelta(seconds=policy.limits.suspected_within_seconds)
    others = tuple(each for each in current(context, ledger) if each.node != node)
    new = AvoidedNode(node, facts.labels[HOSTNAME_LABEL], context.now, until, why)
    return msgspec.structs.replace(ledger, avoided=(*others, new)[-MAX_AVOIDED:])


def current(context: ReconcileContext, ledger: Ledger) -> tuple[AvoidedNode, ...]:
    """The nodes that the group still avoids."""
    return tuple(each for each in ledger.avoided if context.now < each.until)


def hosts(avoided: tuple[AvoidedNode, ...]) -> tuple[str, ...]:
    """The values of their hostname labels, sorted."""
    return tuple(sorted({each.host for each in avoided}))
