"""A group that the agent keeps from starting is created again without it, once for a job, and free of charge.

No training is stopped for it: its ranks have not met yet. Where that is not possible or not allowed, only the status
says what the group waits for.
"""

from datetime import datetime

import msgspec

from recovery.core.decision.another_attempt import try_again
from recovery.core.decision.guards import Move, Question, first_stop
from recovery.core.decision.judging import carry_out
from recovery.core.decision.verdict import Call, Verdict
from recovery.core.diagnosis.agent_blocked import AgentBlocked, blocked
from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.membership import place
from recovery.core.incident import attempt_limits, lifecycle
from recovery.core.incident.preconditions import barred
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import message_of
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode


def before_meeting(context: ReconcileContext, ledger: Ledger, policy: Policy) -> Plan | datetime | None:
    """The incident that creates the group again without the agent, or when that is due. None: it is not called for."""
    found = _blocked(context, ledger)
    if found is None or policy.mode is not Mode.ENFORCE:
        return None
    if context.now < found.counts_at:
        return found.counts_at
    why = _why(found)
    # No training has stopped, so the incident begins with the restart.
    sign = Evidence(
        f"{found.pod.uid}/agent", LossKind.AGENT_BLOCKS_START, message_of(why), found.pod.job_uid, at=context.now
    )
    opened = lifecycle.open_incident(ledger, context.snapshot, policy, classify((sign,), context.snapshot), context.now)
    if not lifecycle.acts(opened) or first_stop(Move.NO_AGENT, Question(context, opened)) is not None:
        return None
    plan = carry_out(context, opened, why, _verdict(context))
    return plan if plan.ledger.epoch != context.epoch else None


def in_incident(context: ReconcileContext, ledger: Ledger) -> Plan | datetime | None:
    """The attempt that creates a group on its way back without the agent, or when that is due. None: it is not called
    for."""
    found = _blocked(context, ledger)
    if found is None or not lifecycle.acts(ledger):
        return None
    if barred(context.workload, context.policy) is not None or attempt_limits.refused(ledger, context.now, free=True):
        return None
    if context.now < found.counts_at:
        return found.counts_at
    return try_again(context, ledger, _why(found), verdict=_verdict(context))


def _blocked(context: ReconcileContext, ledger: Ledger) -> AgentBlocked | None:
    """None: the agent keeps no pod from starting, or it has been left out already, or cannot be left out."""
    if ledger.agent_left_out or not context.snapshot.leaves_out_agents:
        return None
    return blocked(context.snapshot)


def _why(found: AgentBlocked) -> Explanation:
    return because(Reason.AGENT_BLOCKS_START, pod=place(found.pod), words=found.words)


def _verdict(context: ReconcileContext) -> Verdict:
    why = explained(Sentence.LEAVES_OUT_AGENT, Reason.AGENT_BLOCKS_START, job=str(context.snapshot.key))
    return Verdict(Call.RECREATE_GROUP, why, charge=False)


def earlier(plan: Plan, due_at: datetime | None) -> Plan:
    """The plan, which is looked at again at that moment at the latest. None: it asks for none."""
    if due_at is None or (plan.requeue_at is not None and plan.requeue_at <= due_at):
        return plan
    return msgspec.structs.replace(plan, requeue_at=due_at)
