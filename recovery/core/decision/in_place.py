"""Restarts in place: the agents in the pods start all processes of a group again, and no pod is deleted.

The ledger names the epoch that has ended before the agents get the answer, so the restart happens once. It fits only
where nothing but a process was lost. Everything else is for the recreation of the group, in the same incident and for
the same charge.
"""

from datetime import datetime, timedelta

from recovery.core.decision import failure_marks
from recovery.core.decision.verdict import Verdict
from recovery.core.diagnosis.agent_view import one_job
from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.incident import lifecycle, phases
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.model.agent_facts import AgentFacts, AgentState
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Attempt, AttemptAction, Ledger, Phase, Target
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import as_before, attempt


def epoch_ended(agent: AgentFacts | None) -> str:
    """The epoch about which the agents ask. Empty: they ask about none."""
    if agent is None or agent.state is not AgentState.ASKING or not agent.ended:
        return ""
    last = agent.ended[-1]
    return agent.key_of(last.epoch) if last.epoch == agent.epoch and last.by is None else ""


def unfit(context: ReconcileContext, ledger: Ledger, evidence: tuple[Evidence, ...]) -> Explanation | None:
    """Why the group has to be recreated for this evidence. None: the agents can start its processes again."""
    snapshot, open_ = context.snapshot, ledger.current_incident
    in_place, epoch = open_.pinned.in_place, epoch_ended(snapshot.agent)
    if in_place is None or snapshot.agent is None or not epoch:
        return because(Reason.AGENTS_DO_NOT_ASK)
    if any(item.kind is not LossKind.PROCESS_ENDED for item in evidence):
        return because(Reason.MORE_THAN_A_PROCESS)
    if not any(item.process is not None and item.process.epoch == epoch for item in evidence):
        return because(Reason.AGENTS_DO_NOT_ASK)
    if not one_job(snapshot, snapshot.agent) or snapshot.agent.missing_count or not _pods_stay(snapshot):
        return because(Reason.MORE_THAN_A_PROCESS)
    if lifecycle.restarted(ledger):
        return because(Reason.RESTARTED_ALREADY)
    if ledger.in_place_in_row >= in_place.max_in_a_row:
        return because(Reason.IN_PLACE_IN_A_ROW, count=ledger.in_place_in_row)
    root = classify(evidence, snapshot).root
    if root.blames_node:
        return because(
            Reason.NODE_PROVEN, proof=str(root.signature or root.disruption_class), node=_node(root.evidence)
        )
    if failure_marks.seen_before(root, ledger):
        return because(Reason.SAME_ERROR_IN_PLACE)
    return None


def _pods_stay(snapshot: Snapshot) -> bool:
    """No pod of the group is being deleted, and every node answers."""
    return all(
        pod.deleting_since is None and pod.dead_since is None and not phases.may_live_unseen(snapshot, pod)
        for pod in snapshot.pods
        if pod.gone_at is None
    )


def _node(item: Evidence) -> str:
    return item.pod.node if item.pod is not None else ""


def begin(context: ReconcileContext, ledger: Ledger, why: Explanation, verdict: Verdict) -> Plan:
    """The ledger with the restart, which the agents get as the answer to their next report."""
    epoch = epoch_ended(context.snapshot.agent)
    after = attempted(context, ledger, why, epoch, free=not verdict.charge)
    after = failure_marks.remembered(after, verdict.mark)
    return as_before(phases.enter(after, Phase.DECIDED, context.now), requeue_at=deadline(after))


def attempted(context: ReconcileContext, ledger: Ledger, why: Explanation, epoch: str, *, free: bool) -> Ledger:
    """The ledger with the restart in place after that epoch."""
    before = lifecycle.target_of(context.snapshot)
    target = Target(job_set_uid=before.job_set_uid, from_restarts=before.from_restarts, epoch=epoch)
    return attempt(ledger, AttemptAction.RESTART_IN_PLACE, target, why, context.now, free_of_charge=free)


def under_way(ledger: Ledger) -> Attempt | None:
    """The restart in place that the open incident follows. None: its latest restart is another one."""
    restart = restart_of(ledger)
    return restart if restart is not None and restart.action is AttemptAction.RESTART_IN_PLACE else None


def deadline(ledger: Ledger) -> datetime | None:
    """When the group is recreated instead. None: no restart in place is under way."""
    restart, pinned = under_way(ledger), ledger.current_incident.pinned.in_place
    if restart is None or pinned is None:
        return None
    return restart.started_at + timedelta(seconds=pinned.timeout_seconds)
