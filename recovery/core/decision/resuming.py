"""The end of an incident whose group runs whole again, and the wait for its training to report progress before that.

When all ranks are Ready, the training does not train yet: it restores its checkpoint first. If it had reported progress
before the failure, the incident stays open in phase Resuming until it does so again. If agents had reported its steps,
the incident stays open until every rank has passed the step at which the failure stopped them. The signals are
optional: if none comes, the incident says so, and nothing is restarted.
"""

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from recovery.core.diagnosis.agent_view import joined
from recovery.core.diagnosis.membership import group_runs_whole
from recovery.core.incident import lifecycle, phases
from recovery.core.incident.standing import hangs
from recovery.core.model.agent_facts import AgentSteps
from recovery.core.model.ledger import Ledger, Outcome, Phase
from recovery.core.model.progress import Progress
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import as_before, close, say_of_attempt

SETTLES_IN = timedelta(seconds=5)
"""A group that runs whole without a restart must do so for this long before its incident ends: the rest of a cascade
may follow, and the platform's reaction (measured: a Job fails within 2 s of the first exit, a JobSet within 4.3 s)."""
OUTLIVES_IN = timedelta(minutes=12)
"""A group that is held for an error of its own must run for this long before its incident ends. That is longer than its
ranks wait for one another: torchrun gives up a rendezvous, and NCCL a collective, after 10 minutes, and both begin to
count some time after the container starts. Otherwise a group that never meets would open a new incident every time."""


def settling_until(context: ReconcileContext, ledger: Ledger) -> datetime | None:
    """When the incident of a group that runs whole without a restart may end. None: now.

    A group that is held for an error of its own, and is restarted by the kubelet, must first outlive that error.
    """
    open_, now = ledger.current_incident, context.now
    if open_.step.verdict is not None:
        ready_at = phases.last_ready(context.snapshot)
        outlived_at = ready_at + OUTLIVES_IN if ready_at is not None else now
        return outlived_at if now < outlived_at else None
    began = open_.phases[-1].started_at if ledger.phase is Phase.HELD else open_.detected_at
    # A clock that jumped back does not prolong the wait.
    return began + SETTLES_IN if timedelta() <= now - began < SETTLES_IN else None


def may_end_at(context: ReconcileContext, ledger: Ledger) -> datetime | None:
    """When the incident may end because the group runs whole already, as after a restart in place. None: it does not
    run whole, or is held and hangs, so a change of its pods comes first."""
    if not group_runs_whole(context.snapshot) or (ledger.phase is Phase.HELD and hangs(context.snapshot, ledger)):
        return None
    return settling_until(context, ledger) or context.now


def whole_again(context: ReconcileContext, ledger: Ledger) -> Plan:
    """All ranks are Ready: the incident ends when the last of them became so, or when the training reports progress."""
    ledger = _met(context, ledger)
    open_ = ledger.current_incident
    ready_at = phases.end_of_rendezvous(context.snapshot, open_.phases[-1].started_at, context.now)
    if _awaits_progress(context, ledger):
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


def _met(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """The ledger with the phase Rendezvous, if the agents report one that began and ended between two reconciles."""
    found = context.snapshot.agent.present_rendezvous if context.snapshot.agent is not None else None
    earlier = phases.later(ledger.phase, Phase.STARTING) is Phase.STARTING and ledger.phase is not Phase.HELD
    if (
        found is None
        or not earlier
        or not lifecycle.restarted(ledger)
        or found.first_at < ledger.current_incident.phases[-1].started_at
    ):
        return ledger
    return phases.enter(ledger, Phase.RENDEZVOUS, min(found.first_at, context.now))


def completed(context: ReconcileContext, ledger: Ledger, over: Explanation) -> Plan | None:
    """The plan if the job is complete before its training reported progress: it did train. None: not so."""
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
    """When the wait for a group in Resuming ends."""
    return _since(ledger) + timedelta(seconds=ledger.current_incident.pinned.resume_timeout_seconds)


def _since(ledger: Ledger) -> datetime:
    """Reports count from this moment on. A loss in Resuming that was left to the platform took a rank away, so reports
    from before it say nothing about now."""
    open_ = ledger.current_incident
    return max(open_.phases[-1].started_at, *(attempt.started_at for attempt in open_.attempts))


def _awaits_progress(context: ReconcileContext, ledger: Ledger) -> bool:
    """The incident waits for progress, but only after a restart: without one, the ranks that were left may hang. It
    ends at once if the agents have begun a later epoch since: the end of this one is for the next incident."""
    open_, agent = ledger.current_incident, context.snapshot.agent
    # A new leader has no report yet. It goes on with the wait that the ledger has begun.
    steps = open_.training_steps is not None and (agent is not None or ledger.phase is Phase.RESUMING)
    shown = open_.progress_at is not None or steps
    if not shown or open_.pinned.resume_timeout_seconds <= 0 or (agent is not None and agent.followed):
        return False
    return lifecycle.restarted(ledger) and ledger.phase is not Phase.HELD


def _resuming(context: ReconcileContext, ledger: Ledger, ready_at: datetime) -> Plan:
    """One reconcile of Resuming, the one that enters it included."""
    entered = _continued(context, phases.enter(ledger, Phase.RESUMING, ready_at))
    open_ = entered.current_incident
    if _counts_steps(context, entered):
        passed_at = _passed_at(context, entered)
        if passed_at is not None:
            return _recovered(entered, _why(entered, _steps_made(context, entered)), passed_at, "agent", verified=True)
    elif (progressed_at := _progressed_at(context, entered)) is not None:
        why = _why(entered, because(Reason.TRAINING_PROGRESSES, ranks=open_.ranks))
        return _recovered(entered, why, progressed_at, "progress", verified=True)
    deadline = deadline_of(entered)
    if context.now >= deadline and _steps(context) is not None:
        behind = _steps_made(context, entered, seconds=int(open_.pinned.resume_timeout_seconds))
        return _recovered(entered, _why(entered, behind), max(deadline, ready_at), "agent", verified=True)
    if context.now >= deadline:
        source, verified = _joined(context)
        unseen = because(
            Reason.PROGRESS_NOT_SEEN,
            ranks=open_.ranks,
            seconds=int(open_.pinned.resume_timeout_seconds),
            source=source,
            verified=str(verified).lower(),
        )
        # Not later, even if there was no leader meanwhile: since when it trains is not known.
        return _recovered(entered, _why(entered, unseen), max(deadline, ready_at), source, verified=verified)
    announced = _new_report(context, entered)
    if announced is not None:
        entered = entered.with_incident(progress_at=announced.updated_at)
    if ledger.phase is not Phase.RESUMING:
        entered = say_of_attempt(entered, _awaited(context, entered))
    return as_before(entered, requeue_at=deadline)


def _counts_steps(context: ReconcileContext, ledger: Ledger) -> bool:
    return ledger.current_incident.training_steps is not None and context.snapshot.agent is not None


def _steps(context: ReconcileContext) -> AgentSteps | None:
    """The steps since the restart. None: not every rank has made one."""
    steps = context.snapshot.agent.steps if context.snapshot.agent is not None else None
    return steps if steps is not None and steps.made_by_all else None


def _continued(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """The ledger with the step that the ranks have continued from."""
    before, now = ledger.current_incident.training_steps, _steps(context)
    if before is None or now is None or before.resumed is not None:
        return ledger
    # From step 0 on, either the training begins again or only the optimizer does: its weights may be restored alone.
    absolute = before.absolute and now.absolute and bool(now.first)
    return ledger.with_incident(training_steps=msgspec.structs.replace(before, resumed=now.first, absolute=absolute))


def _passed_at(context: ReconcileContext, ledger: Ledger) -> datetime | None:
    """When every rank had passed the step at which the failure stopped them, or had made a step, where steps cannot be
    compared. None: not yet."""
    before, now = ledger.current_incident.training_steps, _steps(context)
    if before is None or now is None or (before.absolute and now.lowest <= before.before):
        return None
    if not before.absolute or now.step_seconds is None:
        return min(now.at, context.now)
    # A report that comes late shows how far the ranks are by now. Its numbers are the tenant's, and may be any.
    began_at = ledger.current_incident.phases[-1].started_at
    beyond_seconds = (now.lowest - before.before - 1) * now.step_seconds
    if beyond_seconds >= (now.at - began_at).total_seconds():
        return min(began_at, context.now)
    return min(now.at - timedelta(seconds=beyond_seconds), context.now)


def _steps_made(context: ReconcileContext, ledger: Ledger, *, seconds: int | Literal[""] = "") -> Explanation:
    """`seconds`: how long the ranks had, if that time is over."""
    open_, now = ledger.current_incident, _steps(context)
    before = open_.training_steps
    found: dict[str, str | int] = {"step": "", "lowest": "", "lost": "", "passed": False}
    if before is not None and now is not None and before.absolute:
        passed = now.lowest > before.before
        found = {"step": before.before, "lowest": now.lowest, "lost": before.lost or 0, "passed": passed}
    return explained(Sentence.STEPS_MADE, Reason.TRAINING_PROGRESSES, ranks=open_.ranks, seconds=seconds, **found)


def _awaited(context: ReconcileContext, ledger: Ledger) -> Explanation:
    """What an incident in Resuming waits for."""
    open_ = ledger.current_incident
    if not _counts_steps(context, ledger) or open_.training_steps is None or not open_.training_steps.absolute:
        return because(Reason.WAITING_FOR_PROGRESS, ranks=open_.ranks)
    return explained(
        Sentence.WAITING_FOR_STEP, Reason.WAITING_FOR_PROGRESS, ranks=open_.ranks, step=open_.training_steps.before
    )


def _progressed_at(context: ReconcileContext, ledger: Ledger) -> datetime | None:
    """When the new incarnation reported progress. None: it has not."""
    progress = _new_report(context, ledger)
    if progress is None or _announces(context, ledger, progress):
        return None
    return phases.within_second(progress.updated_at, context.now)


def _new_report(context: ReconcileContext, ledger: Ledger) -> Progress | None:
    """The report of the new incarnation, unless it is known already. None: there is none.

    The old incarnation ended before the new one could join, so the date separates them, even if a write of the old one
    arrives late. Dates are whole seconds, rounded down: a report from the second in which Rendezvous ended does not
    count, and the next one does. If a node's clock is ahead, the last date of the old incarnation may be after
    `_since`. The incident noted that date when it opened, so it is known not to be new.
    """
    progress = context.workload.progress
    if progress is None or progress.updated_at <= _since(ledger):
        return None
    return None if progress.updated_at == ledger.current_incident.progress_at else progress


def _announces(context: ReconcileContext, ledger: Ledger, progress: Progress) -> bool:
    """The first report of the processes that run now says 0 %: they have begun, but made no step yet.

    transformers reports this before its first step, whatever checkpoint it continues from (5.4 to 5.23, in
    `KubeflowCallback.on_train_begin`). A second 0 % is progress: a percentage has no decimals, and a long training
    stays at 0 for hours.
    """
    known_at = ledger.current_incident.progress_at
    began_at = max(_since(ledger), phases.last_started(context.snapshot) or _since(ledger))
    return progress.ratio == 0.0 and (known_at is None or known_at <= began_at)


def _why(ledger: Ledger, found: Explanation) -> Explanation:
    """Why the incident ends. One that only observes gives its mode as the reason."""
    outcome, reason = lifecycle.outcome_when_whole(ledger)
    return found if outcome is Outcome.RECOVERED else Explanation(reason, found.sentence, found.details)


def _recovered(ledger: Ledger, why: Explanation, ended_at: datetime, source: str, *, verified: bool) -> Plan:
    outcome, _ = lifecycle.outcome_when_whole(ledger)
    return close(ledger, outcome, why, ended_at, source=source, verified=verified)


def _joined(context: ReconcileContext) -> tuple[str, bool]:
    """How the end of Rendezvous is known, and whether the ranks have said so themselves."""
    agent = context.snapshot.agent
    if agent is not None and agent.meets:
        return "agent", joined(agent) is not None
    verified = phases.joined_probe(context.snapshot)
    if not verified and any(pod.processes is not None for pod in context.snapshot.pods):
        return "agent", False
    return ("joined-probe" if verified else "ready"), verified
