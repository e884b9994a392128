"""The Job of a group whose ranks have not met is created again if it waits too long before it replaces lost pods, or
if the agent keeps a pod from starting (`leaving_out`).

The back-off of a Job doubles with each pod that is deleted: where a client deletes all pods of a group at once, its Job
creates none for up to ten minutes. A new Job begins without one. Only pods that others took away count: a Job
whose own processes fail must reach its backoffLimit, and a refused pod would be refused again.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.decision import leaving_out
from recovery.core.decision import verdict as verdicts
from recovery.core.decision.guards import Move, Question, first_stop
from recovery.core.decision.judging import carry_out
from recovery.core.decision.verdict import RESTARTS, Call
from recovery.core.diagnosis import job_backoff
from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, LossKind, gather
from recovery.core.diagnosis.job_backoff import JobBackOff
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import attempt_limits, lifecycle
from recovery.core.model.facts import JobFacts, Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode


def before_meeting(context: ReconcileContext, ledger: Ledger, policy: Policy) -> Plan | datetime | None:
    """The incident that creates the Job again, or when one is due. None: nothing calls for that."""
    without_agent = leaving_out.before_meeting(context, ledger, policy)
    if isinstance(without_agent, Plan):
        return without_agent
    backs_off = _out_of_its_back_off(context, ledger, policy)
    if isinstance(backs_off, Plan):
        return backs_off
    return min((each for each in (without_agent, backs_off) if each is not None), default=None)


def _out_of_its_back_off(context: ReconcileContext, ledger: Ledger, policy: Policy) -> Plan | datetime | None:
    """As `before_meeting`, for a Job that waits too long before it replaces lost pods."""
    overdue = _longest(context.snapshot, job_backoff.SHORT)
    if overdue is None or policy.mode is not Mode.ENFORCE:
        return None
    due_at = overdue.since + job_backoff.SHORT
    if context.now < due_at:
        return due_at
    if context.now >= overdue.until:
        return None
    if overdue.job.failed_create or attempt_limits.spent(ledger, policy, context.now) is not None:
        return None
    # No training has stopped, so the incident does not begin at the losses, but with the restart.
    lost = tuple(msgspec.structs.replace(item, at=None) for item in _losses(context.snapshot, overdue.job))
    opened = lifecycle.open_incident(ledger, context.snapshot, policy, classify(lost, context.snapshot), context.now)
    if first_stop(Move.NEW_JOB, Question(context, opened)) is not None:
        return None
    verdict = verdicts.of(context, opened, lost)
    if verdict.call is Call.WAIT:
        return verdict.requeue_at
    if verdict.call not in RESTARTS:
        return None
    # The reason counts the Jobs that were given up.
    why = msgspec.structs.replace(verdict.why, reason=Reason.JOB_BACKS_OFF)
    return carry_out(context, opened, _backs_off(overdue), msgspec.structs.replace(verdict, why=why))


def in_incident(context: ReconcileContext, ledger: Ledger) -> Explanation | datetime | None:
    """Why the Job of a group on its way back is created again now, or when that is due. None: no Job waits for so
    long."""
    patience = job_backoff.SHORT * doubled(ledger)
    overdue = _longest(context.snapshot, patience)
    if overdue is None or overdue.job.failed_create or attempt_limits.refused(ledger, context.now) is not None:
        return None
    due_at = overdue.since + patience
    if context.now >= overdue.until:
        return None
    return due_at if context.now < due_at else _backs_off(overdue)


def doubled(ledger: Ledger) -> int:
    """How many times as long a Job without pods is waited for: 1, then 2, 4 and so on with each Job that was given
    up."""
    given_up = sum(each.reason in _GIVEN_UP for each in ledger.current_incident.attempts)
    return 1 << given_up


_GIVEN_UP = frozenset({Reason.JOB_BACKS_OFF, Reason.JOB_WITHOUT_PODS})
_TAKEN = frozenset({LossKind.POD_DELETED, LossKind.POD_DISRUPTED, LossKind.NODE_LOST})


def _longest(snapshot: Snapshot, patience: timedelta) -> JobBackOff | None:
    """The Job that waits longest before it replaces pods that others took away. None: none waits for more than
    `patience`."""
    found = (job_backoff.waiting(snapshot, job) for job in member_jobs(snapshot))
    late = [each for each in found if each is not None and each.until - each.since > patience]
    kinds = {each.job.uid: {item.kind for item in _losses(snapshot, each.job)} for each in late}
    taken = (each for each in late if kinds[each.job.uid] and kinds[each.job.uid] <= _TAKEN)
    return max(taken, key=lambda each: each.until, default=None)


def _losses(snapshot: Snapshot, job: JobFacts) -> tuple[Evidence, ...]:
    return tuple(item for item in gather(snapshot) if item.job_uid == job.uid and item.is_loss)


def _backs_off(overdue: JobBackOff) -> Explanation:
    until = f"{overdue.until:%Y-%m-%dT%H:%M:%SZ}"
    return because(Reason.JOB_BACKS_OFF, lost=overdue.lost, job=overdue.job.name, until=until)
