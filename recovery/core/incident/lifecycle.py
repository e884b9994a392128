"""The life of an incident in the ledger: it opens, gets attempts, changes phase, closes, and becomes history.

Every function takes a ledger and returns the next one. Nothing here decides; `decide` does.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis import agent_view
from recovery.core.diagnosis.agent_view import one_job
from recovery.core.diagnosis.classify import Disruption
from recovery.core.diagnosis.deleted_jobs import deleted_jobs, deletion_key
from recovery.core.diagnosis.evidence import Evidence, LossKind, gather
from recovery.core.diagnosis.membership import member_count, restarts_of
from recovery.core.incident import budget, drills, last_restart, phases, sizes
from recovery.core.incident.counterfactual import enforce_estimate
from recovery.core.incident.evidence_counts import counted
from recovery.core.incident.folding import fingerprint_of
from recovery.core.model.agent_facts import AgentFacts
from recovery.core.model.earlier_failures import Handled
from recovery.core.model.enforce_estimate import summed
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import (
    Attempt,
    AttemptAction,
    ClosedIncident,
    Closing,
    Considered,
    Incident,
    IncidentTotals,
    Ledger,
    MessageRelation,
    Outcome,
    Phase,
    Target,
)
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.model.step import BEFORE_ANY_RESTART, WAITING, Step, StepType
from recovery.core.model.training_steps import TrainingSteps
from recovery.core.policy.pinned import pinned_policy_of
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, Restart

MAX_EVIDENCE = 16
MAX_ATTEMPTS = 20
MAX_HISTORY = 10
MAX_UNCOUNTED = 20
MAX_CONSIDERED = 16
MANY_HANDLED = 2048
"""More keys than this are worth a look at which of them can still be seen."""
MAX_HANDLED = 8192
"""More than the members of the largest group. A key dropped while its evidence can still be seen would open another
incident."""


def incident_id(workload_uid: str, number: int) -> str:
    """The id of the workload's incident with that number."""
    return f"{workload_uid[:8]}-{number}"


def open_incident(
    ledger: Ledger,
    snapshot: Snapshot,
    policy: Policy,
    disruption: Disruption,
    now: datetime,
    *,
    decided_at: datetime | None = None,
) -> Ledger:
    """A new incident in phase Decided. Its Detected phase begins at the failure itself.

    `decided_at`: since when the loss has been left to others, if that is before now: the JobSet has failed, the
    training was finishing, or the ranks have met since. None: the loss is decided on now.

    The totals determine the number of the incident, and so its id. Two controllers that see the same failure open the
    same incident, and the compare-and-swap lets only one of them write it.
    """
    assert snapshot.workload is not None, "an incident belongs to a workload"
    uid = snapshot.workload.uid
    number = ledger.totals.incidents + 1
    # A node fault loses no member: the group trains until it is restarted because of the fault, however old that is.
    dated = [item.at for item in disruption.evidence if item.is_loss and item.at is not None]
    decided_at = now if decided_at is None else decided_at
    failed_at = min([*dated, decided_at])
    if ledger.handled.until is not None:  # no second is booked twice
        decided_at = min(max(decided_at, ledger.handled.until), now)
        failed_at = min(max(failed_at, ledger.handled.until), decided_at)
    ranks, gpus = size_of(snapshot)
    progress, agent = snapshot.workload.progress, snapshot.agent
    incident = Incident(
        id=incident_id(uid, number),
        number=number,
        started_at=failed_at,
        detected_at=now,
        disruption_class=disruption.disruption_class,
        cause=disruption.cause,
        mode=policy.mode,
        pinned=pinned_policy_of(policy),
        step=WAITING,
        fingerprint=fingerprint_of(disruption),
        opened_by=disruption.root.evidence.key,
        drill=drills.ref_of(snapshot, disruption, now),
        target=_deleted_target(snapshot) if is_deletion(disruption.evidence) else target_of(snapshot),
        gpus=gpus,
        ranks=ranks,
        suspects=disruption.suspects,
        evidence=tuple(item.text for item in disruption.evidence[:MAX_EVIDENCE]),
        evidence_counts=counted((), disruption.evidence),
        progress_at=progress.updated_at if progress is not None else None,
        probe_proven=not _joins(snapshot) and any(pod.joined_probe and pod.ready for pod in snapshot.pods),
        joins_proven=_joins(snapshot),
        training_steps=_steps_before(agent),
    )
    # The time in which the group ran with fewer nodes ends with the failure.
    ledger = sizes.booked(ledger, failed_at)
    whole_since = drills.last_failure_ended_at(ledger)
    rested = whole_since is None or failed_at - whole_since >= policy.backoff.reset_after
    failures = dict(ledger.totals.failures)
    failures[incident.booked_class] = failures.get(incident.booked_class, 0) + 1
    ledger = msgspec.structs.replace(
        ledger,
        incident=incident,
        attempts_in_row=0 if rested else ledger.attempts_in_row,
        in_place_in_row=0 if rested else ledger.in_place_in_row,
        charged_in_row=0 if rested else ledger.charged_in_row,
        # The group ran long enough: its restart repaired that early failure. Only the failing step may still matter.
        failures=tuple(msgspec.structs.replace(each, ran_seconds=None) for each in ledger.failures)
        if rested
        else ledger.failures,
        totals=msgspec.structs.replace(ledger.totals, incidents=number, failures=failures),
        handled=with_keys(ledger.handled, disruption.evidence),
    )
    ledger = phases.enter(ledger, Phase.DETECTED, failed_at)
    return phases.enter(ledger, Phase.DECIDED, decided_at)


def _joins(snapshot: Snapshot) -> bool:
    """The agents of the whole group have shown that all ranks had joined, also if they exit by now."""
    agent = snapshot.agent
    return agent is not None and one_job(snapshot, agent) and any(each.joined_at for each in agent.rendezvous)


def _steps_before(agent: AgentFacts | None) -> TrainingSteps | None:
    """How far the ranks had come when the incident opened. None: no agent reports it."""
    if agent is None or agent.steps is None or not agent.steps.made_by_all:
        return None
    found = agent.steps
    known = [each.step for each in agent.ended if each.epoch == agent.epoch and each.step is not None]
    return TrainingSteps(before=max((found.highest, *known)), absolute=found.absolute, step_seconds=found.step_seconds)


def with_keys(handled: Handled, evidence: Iterable[Evidence]) -> Handled:
    """`handled` with this evidence added. Beyond MAX_HANDLED the oldest keys are dropped."""
    keys = dict.fromkeys((*handled.keys, *(item.key for item in evidence)))
    dropped = max(0, len(keys) - MAX_HANDLED)
    earlier = max(0, handled.earlier - dropped)
    return msgspec.structs.replace(handled, keys=tuple(keys)[-MAX_HANDLED:], earlier=earlier)


def target_of(snapshot: Snapshot) -> Target:
    """The present member Jobs, as the target of a trigger that is made now."""
    if snapshot.jobset is None:
        return Target()
    jobs = [job for job in snapshot.jobs if job.jobset_uid == snapshot.jobset.uid]
    return Target(
        job_set_uid=snapshot.jobset.uid,
        job_uids=tuple(job.uid for job in jobs),
        # Lower than the JobSet's own count if it is already restarting these Jobs.
        from_restarts=min((job.restart_attempt for job in jobs), default=restarts_of(snapshot)),
    )


def is_deletion(evidence: Iterable[Evidence]) -> bool:
    """All that is seen is that the group's Jobs were deleted. Their own controller creates them again."""
    kinds = {item.kind for item in evidence}
    return kinds == {LossKind.JOB_DELETED}


def _deleted_target(snapshot: Snapshot) -> Target:
    """The deleted Jobs, as the target of the restart that creates them again."""
    jobs = deleted_jobs(snapshot)
    return Target(
        job_set_uid=jobs[0].jobset_uid,
        job_uids=tuple(job.uid for job in jobs),
        from_restarts=max(job.restart_attempt for job in jobs),
    )


def more_evidence(ledger: Ledger, evidence: tuple[Evidence, ...]) -> Ledger:
    """Record evidence that arrived while the incident was open."""
    incident = ledger.current_incident
    texts = dict.fromkeys((*incident.evidence, *(item.text for item in evidence)))
    known = frozenset(ledger.handled.keys)
    counts = counted(incident.evidence_counts, (item for item in evidence if item.key not in known))
    noted = ledger.with_incident(evidence=tuple(texts)[:MAX_EVIDENCE], evidence_counts=counts)
    return msgspec.structs.replace(noted, handled=with_keys(ledger.handled, evidence))


def without_unseen(ledger: Ledger, snapshot: Snapshot) -> Ledger:
    """The ledger without the keys of evidence that can no longer be seen, if it has many. Where the ranks of a large
    group exit every ten minutes for days, it would grow to MAX_HANDLED keys: half a megabyte in each write."""
    handled = ledger.handled
    if len(handled.keys) <= MANY_HANDLED:
        return ledger
    seen = {item.key for item in gather(snapshot)}
    seen |= {key for key in handled.keys if agent_view.may_return(key, snapshot)}
    earlier = sum(key in seen for key in handled.keys[: handled.earlier])
    keys = tuple(key for key in handled.keys if key in seen)
    return msgspec.structs.replace(ledger, handled=msgspec.structs.replace(handled, keys=keys, earlier=earlier))


def consider(ledger: Ledger, considered: tuple[Considered, ...]) -> Ledger:
    """Record what was considered and not done, each item once."""
    incident = ledger.current_incident
    known = {each.key: each for each in incident.considered}
    for each in considered:
        known.setdefault(each.key, each)
    return ledger.with_incident(considered=tuple(known.values())[-MAX_CONSIDERED:])


def present(snapshot: Snapshot, ledger: Ledger) -> tuple[Evidence, ...]:
    """The evidence of the open incident that can still be seen."""
    keys = frozenset(ledger.handled.keys[ledger.handled.earlier :])
    return tuple(item for item in gather(snapshot) if item.key in keys)


def add_attempt(
    ledger: Ledger,
    action: AttemptAction,
    target: Target,
    reason: Reason,
    message: str,
    now: datetime,
    *,
    free_of_charge: bool = False,
    forced: bool = False,
    nodes: tuple[str, ...] = (),
) -> Ledger:
    """Add an attempt. A trigger or an adopted restart raises the epoch. Our first trigger of an incident is charged.

    `free_of_charge`: a person asked for it, or the verdict is that it costs nothing. `forced`: a person forces it.
    `nodes`: quarantined for it. A restart that others make is never charged, and refunds no charge: otherwise a crash,
    our restart and a restart by the JobSet could repeat without end and without cost. It counts towards a crash loop,
    unless it is `free_of_charge`.
    """
    incident = ledger.current_incident
    bump = action is not AttemptAction.NONE
    epoch = ledger.epoch + (1 if bump else 0)
    number = (incident.attempt.number if incident.attempt is not None else 0) + 1
    attempt = Attempt(
        number=number, epoch=epoch, action=action, started_at=now, reason=reason, message=message, nodes=nodes
    )
    limit, window = incident.pinned.budget_limit, timedelta(seconds=incident.pinned.budget_window_seconds)
    ours = bump and action is not AttemptAction.ADOPTED
    left = budget.remaining(ledger.budget, limit, window, now) > 0
    charge = ours and left and not free_of_charge and not incident.charged and incident.mode == Mode.ENFORCE
    of_drill = bump and free_of_charge and incident.drill is not None
    totals = ledger.totals
    if bump:
        totals = msgspec.structs.replace(
            totals,
            restarts=totals.restarts + 1,
            drill_restarts=totals.drill_restarts + of_drill,
            charged=totals.charged + charge,
        )
    in_row, spent = ledger.charged_in_row, ledger.budget
    # A drill neither continues a row nor ends one.
    if ours and not of_drill:
        in_row = 0 if free_of_charge else in_row + 1
    if charge:
        spent = budget.charge(spent, limit, window, now)
    if action is AttemptAction.ADOPTED and not free_of_charge:
        spent = budget.adopt(spent, limit, window, now)
    in_place_in_row = ledger.in_place_in_row
    if bump and not of_drill:
        in_place_in_row = in_place_in_row + 1 if action is AttemptAction.RESTART_IN_PLACE else 0
    return msgspec.structs.replace(
        ledger,
        epoch=epoch,
        totals=totals,
        in_place_in_row=in_place_in_row,
        agent_left_out=ledger.agent_left_out or reason is Reason.AGENT_BLOCKS_START,
        charged_in_row=in_row,
        budget=spent,
        incident=msgspec.structs.replace(
            incident,
            attempts=_newest((*incident.attempts, attempt)),
            restarts=incident.restarts + bump,
            drill_restarts=incident.drill_restarts + of_drill,
            target=target,
            charged=incident.charged or charge,
            step=_step_after(incident.step, restarts=bump, forced=forced),
            released=None if bump else incident.released,
            lost_at=None if bump else incident.lost_at,
            reason=reason,
            message=message,
            message_relation=MessageRelation.ATTEMPT,
        ),
    )


def _step_after(step: Step, *, restarts: bool, forced: bool) -> Step:
    """The step that an attempt begins. A loss that is left to the platform ends no hold. After a restart the controller
    still follows the group."""
    if restarts:
        return Step(StepType.RESTARTING, forced=forced)
    return Step(StepType.ASIDE) if step.type in BEFORE_ANY_RESTART else step


def takes_jobset(ledger: Ledger, job_set_uid: str) -> Ledger:
    """Record that the latest attempt deletes that JobSet."""
    incident = ledger.current_incident
    latest = msgspec.structs.replace(incident.attempts[-1], job_set_uid=job_set_uid)
    return ledger.with_incident(attempts=(*incident.attempts[:-1], latest))


def reword_attempt(ledger: Ledger, reason: Reason, began: str, message: str) -> Ledger:
    """Change the message of the latest attempt. `began`: its first message, which stays. Empty: none stays."""
    incident = ledger.current_incident
    reworded = {"message": began, "then": message} if began else {"message": message, "then": ""}
    latest = msgspec.structs.replace(incident.attempts[-1], **reworded)
    return ledger.with_incident(
        attempts=(*incident.attempts[:-1], latest),
        reason=reason,
        message=latest.whole_message,
        message_relation=MessageRelation.ATTEMPT,
        step=_step_after(incident.step, restarts=False, forced=False),
    )


def _newest(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """At most MAX_ATTEMPTS. Attempts without a restart are dropped first, so that a restart is never forgotten."""
    surplus = len(attempts) - MAX_ATTEMPTS
    if surplus <= 0:
        return attempts
    older = attempts[:-1]
    passive = [attempt.number for attempt in older if attempt.action is AttemptAction.NONE]
    dropped = frozenset((passive or [attempt.number for attempt in older])[:surplus])
    return tuple(attempt for attempt in attempts if attempt.number not in dropped)


def close(ledger: Ledger, closing: Closing) -> Ledger:
    """Close the open incident. It stays in the ledger until its RecoveryIncident has been recorded."""
    restart_ended_at = last_restart.ended_at(ledger, closing.ended_at)
    ledger = phases.close_span(ledger, closing.ended_at)
    ended_at = ledger.current_incident.phases[-1].ended_at or closing.ended_at
    closing = msgspec.structs.replace(closing, ended_at=ended_at)
    open_ = ledger.current_incident
    incident = msgspec.structs.replace(open_, closing=closing, suspension=None)
    estimate = enforce_estimate(incident, ledger.history[0].started_at if ledger.history else None)
    totals = ledger.totals
    if estimate.restarts:
        incident = msgspec.structs.replace(incident, enforce_estimate=estimate)
        totals = msgspec.structs.replace(totals, enforce_estimate=summed((totals.enforce_estimate, estimate)))
    closed = msgspec.structs.replace(
        ledger, phase=Phase.HEALTHY, incident=incident, totals=totals, restart_ended_at=restart_ended_at
    )
    runs = closing.outcome in {Outcome.RECOVERED, Outcome.OBSERVED, Outcome.HELD}
    return sizes.running(closed, ended_at) if runs else closed


def into_history(ledger: Ledger, snapshot: Snapshot) -> Ledger:
    """Replace the closed incident by its summary. Its evidence that can still be seen never opens an incident again."""
    incident = ledger.current_incident
    closing = incident.closing
    assert closing is not None, "only a closed incident becomes history"
    summary = ClosedIncident(
        id=incident.id,
        outcome=closing.outcome,
        outcome_reason=closing.outcome_reason,
        disruption_class=incident.disruption_class,
        cause=incident.cause,
        started_at=incident.started_at,
        ended_at=closing.ended_at,
        attempts=incident.attempt.number if incident.attempt is not None else 0,
        idle_gpu_seconds=round(sum(span.idle_gpu_seconds for span in incident.phases), 3),
        reason=incident.reason,
        message=incident.message,
        source=closing.source,
        verified=closing.verified,
        still_broken=closing.still_broken,
        handling=incident.handling,
        released_gpu_seconds=round(sum(span.released_gpu_seconds for span in incident.phases), 3),
        charged=incident.charged,
        storm=incident.storm,
        storm_latest_at=incident.storm_latest_at,
        drill=incident.drill,
    )
    over = ledger.handled.terminal_jobset_uid
    if closing.outcome is Outcome.FAILED:
        over = incident.target.job_set_uid  # its TTL may have removed it by now
    elif snapshot.jobset is not None and snapshot.jobset.terminal_state:
        over = snapshot.jobset.uid
    seen = {item.key for item in gather(snapshot)}
    # Its restarts have deleted these Jobs. The dates do not show that if the controller's clock is behind.
    deleted = (deletion_key(uid) for uid in incident.target.job_uids)
    keys = dict.fromkeys((*ledger.handled.keys, *deleted))
    kept = tuple(key for key in keys if key in seen or agent_view.may_return(key, snapshot))
    return msgspec.structs.replace(
        ledger,
        incident=None,
        history=(summary, *ledger.history)[:MAX_HISTORY],
        handled=Handled(
            # Only what can still be seen is worth remembering. Evidence from after the end is not handled yet.
            keys=kept,
            earlier=len(kept),
            until=closing.ended_at,
            terminal_jobset_uid=over,
        ),
    )


def owing(ledger: Ledger, closed: tuple[IncidentTotals, ...]) -> Ledger:
    """The ledger with closed incidents that are not in the fleet's totals yet. Beyond MAX_UNCOUNTED the oldest are
    lost."""
    return msgspec.structs.replace(ledger, uncounted=(*ledger.uncounted, *closed)[-MAX_UNCOUNTED:])


def restarted(ledger: Ledger) -> bool:
    """The open incident has a restart, ours or the platform's."""
    return ledger.current_incident.restarted


def acts(ledger: Ledger) -> bool:
    """The open incident may write to the workload: its mode is Enforce, and a rule or the default can call for an
    action."""
    incident = ledger.current_incident
    return incident.mode == Mode.ENFORCE and decides(incident.pinned)


def decides(pinned: PinnedPolicy) -> bool:
    """A rule or the default can call for an action."""
    return pinned.restart != Restart.NONE or bool(pinned.rules)


def attempt_id(incident: Incident) -> str:
    """The name of the latest attempt in annotations. Its number is 0 if there is none."""
    return f"{incident.id}-{incident.attempt.number if incident.attempt is not None else 0}"


def stood_aside(ledger: Ledger) -> bool:
    """The latest attempt of the open incident left the loss to the platform."""
    attempt = ledger.current_incident.attempt
    return attempt is not None and attempt.action is AttemptAction.NONE


def still_aside(ledger: Ledger) -> bool:
    """The latest attempt of the open incident left all evidence to the platform, and nothing has come in since that is
    not left to it as well."""
    step = ledger.current_incident.step
    decided = step.type is StepType.ASIDE and not step.undecided
    return stood_aside(ledger) and (decided or restarted(ledger))


def is_released(ledger: Ledger) -> bool:
    """The suspension that is wanted gives the GPUs of the group back while a member finds no node."""
    wanted = ledger.incident.suspension if ledger.incident is not None else None
    return wanted is not None and wanted.for_room


def outcome_when_whole(ledger: Ledger) -> tuple[Outcome, Reason]:
    """How an incident ends when the whole group runs again, and why."""
    incident = ledger.current_incident
    if incident.mode != Mode.ENFORCE:
        return Outcome.OBSERVED, Reason.OBSERVE_MODE
    if ledger.phase is Phase.HELD:
        return Outcome.HELD, Reason.RUNS_WHOLE_AGAIN
    if restarted(ledger):
        return Outcome.RECOVERED, Reason.ALL_RANKS_READY  # or joined: `source` says which
    if incident.step.withheld:
        return Outcome.SUPERSEDED, Reason.RUNS_WHOLE_AGAIN
    return Outcome.OBSERVED, Reason.LEFT_TO_KUBERNETES


def size_of(snapshot: Snapshot) -> tuple[int, int]:
    """Ranks (pods) and GPUs of the whole group, including lost members. The template counts for a Job without pods."""
    ranks = gpus = 0
    # Of a deleted Job the last state counts, until the next one of its name exists. If its JobSet was deleted, the
    # other Jobs of that JobSet are about to follow, or have failed and are gone as well.
    deleted = deleted_jobs(snapshot)
    of_deleted = {job.jobset_uid for job in deleted}
    present = of_deleted | ({snapshot.jobset.uid} if snapshot.jobset is not None else set())
    gone = (job for job in snapshot.gone_jobs if job.jobset_uid in of_deleted)
    by_name = {job.name: job for job in (*gone, *deleted, *snapshot.jobs)}
    for job in by_name.values():
        if job.jobset_uid in present:
            members = member_count(job)
            ranks += members
            asked = sum(each.accelerators for each in job.containers)
            gpus += members * max((p.gpus for p in snapshot.pods if p.job_uid == job.uid), default=asked)
    return ranks, gpus
