"""Our own suspension of a workload, so that a group in backoff or out of budget holds no GPUs that it cannot use.

Three places record it: the ledger (it is wanted), the annotation (it is ours) and `spec.suspend` (it is in force).
Every reconcile makes them agree, in whatever state a crash left them. A user always wins: removing the annotation takes
the suspension over, and resuming the workload ends it. The controller undoes neither.
"""

from datetime import datetime

import msgspec

from recovery.core.diagnosis.queued import queued_by
from recovery.core.diagnosis.unscheduled import unscheduled
from recovery.core.incident import lifecycle, phases
from recovery.core.incident.preconditions import barred
from recovery.core.model.annotations import RESUME_AT_ANNOTATION, SUSPENDED_BY_ANNOTATION
from recovery.core.model.facts import WorkloadFacts
from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.model.waits import Suspension
from recovery.core.plan.actions import Action, ResumeWorkload, SuspendWorkload
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import say_more


def marked_by(workload: WorkloadFacts) -> str | None:
    """The incident that has marked the workload. None: no incident has, so any suspension is another client's."""
    return workload.annotations.get(SUSPENDED_BY_ANNOTATION)


def in_force(workload: WorkloadFacts) -> bool:
    """The workload is suspended, and by us."""
    return workload.suspended and marked_by(workload) is not None


def refused(context: ReconcileContext, open_: Incident) -> Explanation | None:
    """Why this incident must not suspend the workload. None: it may."""
    if open_.resumed_by_others:
        return explained(Sentence.RESUMED_BEFORE, Reason.RESUMED_BY_OTHERS)
    return not_ours(context)


def not_ours(context: ReconcileContext) -> Explanation | None:
    """Why we may not suspend this workload for a backoff. None: we may.

    Kueue owns `spec.suspend` of the workloads it manages. A deadline of the TrainJob or the JobSet counts from the last
    resume, so a suspension would give the job more time than its user has allowed.
    """
    known_by = queued_by(context.workload)
    if known_by:
        return because(Reason.KUEUE, known_by=known_by)
    for facts in (context.workload, context.snapshot.jobset):
        if facts is not None and facts.active_deadline_seconds is not None:
            kind = facts.kind if isinstance(facts, WorkloadFacts) else "JobSet"
            return because(Reason.DEADLINE, kind=kind, seconds=facts.active_deadline_seconds)
    return None


def want(ledger: Ledger, suspension: Suspension | None) -> Ledger:
    """Set the wanted suspension of the open incident. None: no suspension is wanted."""
    return ledger.with_incident(suspension=suspension)


def until(moment: datetime, ledger: Ledger, workload: WorkloadFacts, *, begin: bool) -> Ledger:
    """Let the suspension last until `moment`. If none is in force, ask for one only if `begin`."""
    stands = ledger.current_incident.suspension is not None and in_force(workload)
    return want(ledger, Suspension(until=moment, landed=stands) if begin or stands else None)


def suspend(ledger: Ledger, workload: WorkloadFacts) -> tuple[Action, ...]:
    """The action for a suspension that is wanted and not in force."""
    open_ = ledger.current_incident
    if open_.suspension is None or marked_by(workload) is not None:
        return ()
    # For people: no one knows when there will be room.
    until = None if open_.suspension.for_room else open_.suspension.until
    return (SuspendWorkload(ledger.epoch, open_.id, workload.uid, until),)


def resume(workload: WorkloadFacts) -> tuple[Action, ...]:
    """The action that ends our suspension, or removes what is left of it."""
    mark = marked_by(workload)
    if mark is None:
        return ()
    until_then = workload.annotations.get(RESUME_AT_ANNOTATION, "")
    return (ResumeWorkload(workload.uid, mark, suspended=workload.suspended, resume_at=until_then),)


def settle(context: ReconcileContext, ledger: Ledger) -> tuple[Ledger, tuple[Action, ...]]:
    """Make ledger, annotation and workload agree before anything else is decided about the open incident."""
    open_, workload = ledger.current_incident, context.workload
    wanted = open_.suspension
    mark = marked_by(workload)
    bar = barred(workload, context.policy, forced=open_.step.forced)
    if wanted is not None and bar is not None:
        return say_more(want(ledger, None), because(Reason.SUSPENSION_RELEASED, why=bar)), resume(workload)
    if wanted is None:
        return ledger, resume(workload)
    if mark is not None and workload.suspended:
        return (ledger if wanted.landed else want(ledger, msgspec.structs.replace(wanted, landed=True))), ()
    if mark is not None or wanted.landed:
        ledger = ledger.with_incident(suspension=None, resumed_by_others=True)
        return say_more(ledger, because(Reason.RESUMED_BY_OTHERS)), resume(workload)
    releases = lifecycle.is_released(ledger) and unscheduled(context.snapshot)
    if ledger.phase is Phase.HELD or releases or _is_going_down(context, ledger):
        return ledger, suspend(ledger, workload)
    # The suspension never came into force, and the new group is coming: to stop it now would cost more than it saves.
    return say_more(want(ledger, None), because(Reason.NOT_SUSPENDED_IN_TIME)), ()


def _is_going_down(context: ReconcileContext, ledger: Ledger) -> bool:
    open_ = ledger.current_incident
    return phases.position(context.snapshot, open_.target, open_.ranks) in phases.GOING_DOWN
