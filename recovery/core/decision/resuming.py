"""The end of an incident whose group runs whole again, and the wait for its training to report progress before that.

All ranks Ready is not yet a training that trains: it restores its checkpoint first. Where the training had reported
progress before the failure, the incident stays open in phase Resuming until it does so again. The signal is optional:
what never comes is said, and restarts nothing.
"""

from datetime import datetime, timedelta

from recovery.core.incident import lifecycle, phases
from recovery.core.model.facts import Progress
from recovery.core.model.ledger import Ledger, Outcome, Phase
from recovery.core.model.reason import Explanation, Reason, Sentence, because, explained
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.steps import as_before, close, say_of_attempt

SETTLES_IN = timedelta(seconds=5)
"""For this long a group that runs whole without a restart is not believed: the rest of a cascade may follow, and what
the platform makes of it (measured: a Job fails within 2 s of the first exit, its JobSet within 4.3 s)."""
OUTLIVES_IN = timedelta(minutes=12)
"""For this long a group must run that is held for an error of its own before it is believed. Longer than its ranks wait
for one another: torchrun gives a rendezvous up after 10 minutes, and so does NCCL a collective, and both begin to count
some time after the container. Else a group that never meets were an incident of its own with every turn."""


def settling_until(context: ReconcileContext, ledger: Ledger) -> datetime | None:
    """When a group that runs whole without a restart may be believed. None: now.

    One that is held for an error of its own, and whose kubelet restarts it, only when it has outlived that error.
    """
    open_, now = ledger.current_incident, context.now
    if open_.held:
        ready_at = phases.last_ready(context.snapshot)
        outlived_at = ready_at + OUTLIVES_IN if ready_at is not None else now
        return outlived_at if now < outlived_at else None
    began = open_.phases[-1].started_at if ledger.phase is Phase.HELD else open_.detected_at
    # A clock that jumped back does not make it wait for longer.
    return began + SETTLES_IN if timedelta() <= now - began < SETTLES_IN else None


def whole_again(context: ReconcileContext, ledger: Ledger) -> Plan:
    """All ranks are Ready: the incident ends when the last of them became so, or when the training reports progress."""
    open_ = ledger.current_incident
    ready_at = phases.end_of_rendezvous(context.snapshot, open_.phases[-1].started_at, context.now)
    if _awaits_progress(ledger):
        return _resuming(context, ledger, ready_at)
    source, verified = _joined(context)
    _, reason = lifecycle.outcome_when_whole(ledger)
    why = explained(
        Sentence.ALL_JOINED if verified else Sentence.ALL_READY,
        reason,
        ranks=open_.ranks,
        source=source,
        verified=str(verified).lower(),
    )
    return _recovered(ledger, why, ready_at, source, verified=verified)


def completed(context: ReconcileContext, ledger: Ledger, over: Explanation) -> Plan | None:
    """The job is complete before its training reported progress: it did train. None: that is not what has happened."""
    if ledger.phase is not Phase.RESUMING or over.reason is not Reason.JOB_COMPLETE:
        return None
    source, verified = _joined(context)
    _, reason = lifecycle.outcome_when_whole(ledger)
    why = explained(
        Sentence.ALL_READY_AND_COMPLETE,
        reason,
        ranks=ledger.current_incident.ranks,
        what=over.details["what"],
        source=source,
        verified=str(verified).lower(),
    )
    condition = context.workload.condition("Complete")
    since = condition.since if condition is not None else None
    ended_at = context.now if since is None else phases.within_second(since, context.now)
    return _recovered(ledger, why, ended_at, source, verified=verified)


def deadline_of(ledger: Ledger) -> datetime:
    """When a group in Resuming is waited for no longer."""
    return _since(ledger) + timedelta(seconds=ledger.current_incident.pinned.resume_timeout_seconds)


def _since(ledger: Ledger) -> datetime:
    """From when on a report counts. What was left to the platform in Resuming had taken a rank away: what was reported
    before that says nothing about now."""
    open_ = ledger.current_incident
    return max(open_.phases[-1].started_at, *(attempt.started_at for attempt in open_.attempts))


def _awaits_progress(ledger: Ledger) -> bool:
    """Only after a restart. Where none was made, nothing says that the ranks which were left do not hang."""
    open_ = ledger.current_incident
    shown = open_.progress_at is not None and open_.pinned.resume_timeout_seconds > 0
    return shown and lifecycle.restarted(ledger) and ledger.phase is not Phase.HELD


def _resuming(context: ReconcileContext, ledger: Ledger, ready_at: datetime) -> Plan:
    """One reconcile of Resuming, the one that enters it included."""
    entered = phases.enter(ledger, Phase.RESUMING, ready_at)
    open_ = entered.current_incident
    progressed_at = _progressed_at(context, entered)
    if progressed_at is not None:
        why = _why(entered, because(Reason.TRAINING_PROGRESSES, ranks=open_.ranks))
        return _recovered(entered, why, progressed_at, "progress", verified=True)
    deadline = deadline_of(entered)
    if context.now >= deadline:
        source, verified = _joined(context)
        unseen = because(
            Reason.PROGRESS_NOT_SEEN,
            ranks=open_.ranks,
            seconds=int(open_.pinned.resume_timeout_seconds),
            source=source,
            verified=str(verified).lower(),
        )
        # Not later, even if no controller led meanwhile: since when it trains is not known.
        return _recovered(entered, _why(entered, unseen), max(deadline, ready_at), source, verified=verified)
    announced = _new_report(context, entered)
    if announced is not None:
        entered = entered.with_incident(progress_at=announced.updated_at)
    if ledger.phase is not Phase.RESUMING:
        entered = say_of_attempt(entered, because(Reason.WAITING_FOR_PROGRESS, ranks=open_.ranks))
    return as_before(entered, requeue_at=deadline)


def _progressed_at(context: ReconcileContext, ledger: Ledger) -> datetime | None:
    """When the new incarnation reported progress. None: it has not."""
    progress = _new_report(context, ledger)
    if progress is None or _announces(context, ledger, progress):
        return None
    return phases.within_second(progress.updated_at, context.now)


def _new_report(context: ReconcileContext, ledger: Ledger) -> Progress | None:
    """What the new incarnation has reported, unless that is known already. None: nothing.

    The old one had ended before the new one could join, so the date separates them, also where a write of the old one
    arrives late. Dates are whole seconds and rounded down: a report of the very second in which Rendezvous ended does
    not count, and the next one does. Where a node's clock is ahead, the last date of the old incarnation may lie beyond
    `_since`; as it stood when the incident opened, it is known not to be new.
    """
    progress = context.workload.progress
    if progress is None or progress.updated_at <= _since(ledger):
        return None
    return None if progress.updated_at == ledger.current_incident.progress_at else progress


def _announces(context: ReconcileContext, ledger: Ledger, progress: Progress) -> bool:
    """The first report of the processes that run now says 0 %: they begin, and have made no step.

    transformers reports so before its first step, whatever checkpoint it goes on from: in 5.4 to 5.23 that is
    `KubeflowCallback.on_train_begin`. A second 0 % is progress: a percentage has no decimals, and a long training stays
    at 0 for hours.
    """
    known_at = ledger.current_incident.progress_at
    began_at = max(_since(ledger), phases.last_started(context.snapshot) or _since(ledger))
    return progress.ratio == 0.0 and (known_at is None or known_at <= began_at)


def _why(ledger: Ledger, found: Explanation) -> Explanation:
    """As the end of a recovery. An incident that only observes gives its mode as the reason."""
    outcome, reason = lifecycle.outcome_when_whole(ledger)
    return found if outcome is Outcome.RECOVERED else Explanation(reason, found.sentence, found.details)


def _recovered(ledger: Ledger, why: Explanation, ended_at: datetime, source: str, *, verified: bool) -> Plan:
    outcome, _ = lifecycle.outcome_when_whole(ledger)
    return close(ledger, outcome, why, ended_at, source=source, verified=verified)


def _joined(context: ReconcileContext) -> tuple[str, bool]:
    """How the end of Rendezvous is known, and whether the ranks have said so themselves."""
    verified = phases.joined_probe(context.snapshot)
    return ("joined-probe" if verified else "ready"), verified
