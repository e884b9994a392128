"""One incident as its report shows it. The structs are the JSON: see docs/reports.md for what is stable in it."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from math import fsum

import msgspec

from recovery.core.model.folded_incidents import FoldedNode
from recovery.core.model.incident_record import IncidentRecord
from recovery.core.model.ledger import JOB_TRIGGERS, Attempt, AttemptAction, Incident, IncidentHandling, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.suspect_log import LogAbsence, SuspectLog
from recovery.core.model.training_steps import TrainingSteps
from recovery.report.enforce_words import EnforceAccount, enforce_account
from recovery.report.phase_accounts import BADPUT, PhaseAccount, phase_accounts, summed
from recovery.report.platform_ways import PlatformComparison, compare

OPEN = "Open"
"""The outcome of an incident that has not ended."""

STILL_BROKEN = "still broken"
"""Shown beside the outcome of an incident that closed although ranks hung."""


def outcome_words(outcome: str, *, still_broken: bool) -> str:
    """`Recovered`, or `Held, still broken`."""
    return f"{outcome}, {STILL_BROKEN}" if still_broken else outcome


class DecidedBy(msgspec.Struct, frozen=True, rename="camel"):
    """The policy as it was when the incident opened, and the part of it that decided."""

    policy: str
    policy_generation: int
    rule: str
    """Empty: the default decided, or the policy decided nothing."""
    restart: str
    """The policy's default."""
    budget_limit: int
    budget_window_seconds: float


class EvidenceSuspect(msgspec.Struct, frozen=True, rename="camel"):
    """Where the failure showed first."""

    pod: str
    node: str
    """Empty: the pod had no node."""
    rank: int | None
    """None: not known."""
    exit_code: int | None
    """None: no exit was seen."""


class LogAccount(msgspec.Struct, frozen=True, rename="camel"):
    """The last output of the first suspect. It is that of the training container only."""

    pod: str
    container: str
    """Empty: the training container is not known, or the pod was gone."""
    previous: bool
    """The output is of the container's previous instance, because the container had restarted in place."""
    termination_message: str
    """Empty: there was none."""
    lines: tuple[str, ...]
    """The last lines, oldest first."""
    incomplete: bool
    """The log continued after these lines."""
    absent: LogAbsence | None
    """Why there are no lines. None: there are lines."""


class AlternativeAccount(msgspec.Struct, frozen=True, rename="camel"):
    """What was considered and not done."""

    action: str
    node: str
    """Empty: the action concerns no node."""
    reason: Reason
    message: str


class AttemptAccount(msgspec.Struct, frozen=True, rename="camel"):
    """One attempt to recover the group."""

    number: int
    action: AttemptAction
    started_at: datetime
    nodes: tuple[str, ...]
    """The nodes that were quarantined for it."""
    reason: Reason
    message: str


class ApiWrite(msgspec.Struct, frozen=True, rename="camel"):
    """A write to the cluster that the record keeps."""

    at: datetime
    verb: str
    resource: str
    names: tuple[str, ...]
    """UIDs of Jobs and JobSets, names of nodes. Empty: the record does not keep them."""


class CausedBy(msgspec.Struct, frozen=True, rename="camel"):
    """The drill that caused an incident."""

    name: str
    """The name of the RecoveryDrill."""
    repeat: int


def drill_words(drill: CausedBy) -> str:
    """`lose-a-rank-x7k2p (repeat 2)`."""
    return f"{drill.name} (repeat {drill.repeat})"


class IncidentAccount(msgspec.Struct, frozen=True, rename="camel"):
    """One incident in full."""

    id: str
    number: int
    incidents: int
    """Incidents in the record. Under Observe, incidents of one kind share a record. Its details are those of the first.
    `durationSeconds`, `restarts` and the sums of GPU-seconds are those of all of them."""
    latest_started_at: datetime
    """When the failure of the latest of them happened."""
    namespace: str
    job: str
    workload_kind: str
    """TrainJob or JobSet. Empty: the record does not say."""
    workload_uid: str
    """Empty: the record does not say."""
    drill: CausedBy | None
    """None: it is no drill."""
    mode: str
    failure_class: str
    cause: str
    outcome: str
    """As in Outcome, or Open."""
    outcome_reason: Reason | None
    """None: it is open."""
    still_broken: bool
    """It closed although ranks hung. What they have cost since is not in its figures."""
    handling: IncidentHandling
    restarts: int
    """Restarts of the group: the controller's, and the platform's own that it adopted."""
    would: str
    """What Enforce would have done. Empty: the mode is Enforce, or Enforce would leave it to Kubernetes."""
    with_enforce: EnforceAccount
    """What that would have saved."""
    reason: Reason
    """Why the controller took its latest action, or no action."""
    message: str
    """The same as a sentence, from the evidence to the result."""
    started_at: datetime
    """When the failure happened, as far as the evidence dates it."""
    detected_at: datetime
    ended_at: datetime | None
    """The end of the latest of them. None: it is open."""
    duration_seconds: float
    """Up to now if it is open."""
    detection_seconds: float
    """From the failure until the controller detected it."""
    unaccounted_seconds: float
    """Time that no phase of the record covers."""
    verified: bool
    """All ranks have reported themselves that they joined."""
    verified_by: str
    """`joined-probe`, `agent`, `progress` or `ready`. Empty: the incident did not get that far."""
    charged: bool
    """The incident was charged to the budget."""
    gpus: int
    ranks: int
    idle_gpu_seconds: float
    released_gpu_seconds: float
    lost_steps: int | None
    """Training steps that were made twice, as the agents measured them. None: not known."""
    rework_seconds: float | None
    """How long the ranks took for them: steps times the time of a step before the failure. None: not known."""
    idle_gpu_seconds_by_phase: dict[str, float]
    idle_gpu_seconds_by_badput: dict[str, float]
    decided_by: DecidedBy
    phases: tuple[PhaseAccount, ...]
    evidence: tuple[str, ...]
    suspects: tuple[EvidenceSuspect, ...]
    log: LogAccount | None
    """None: nothing was restarted, or the controller may not read logs."""
    alternatives: tuple[AlternativeAccount, ...]
    attempts: tuple[AttemptAccount, ...]
    writes: tuple[ApiWrite, ...]
    suspected_nodes: dict[str, FoldedNode]
    """By name: the nodes on which failures showed first."""
    storm: str
    """Id of the storm that it was part of. Empty: none."""
    platform: PlatformComparison


def account_of(record: IncidentRecord, now: datetime) -> IncidentAccount:
    """The figures of one incident. Those of an open incident are up to now."""
    incident, closing, fold = record.incident, record.incident.closing, record.fold
    steps = incident.training_steps
    phases = phase_accounts(incident, now)
    ended_at = closing.ended_at if closing is not None else None
    whole = max(0.0, ((ended_at or now) - incident.started_at).total_seconds())
    by_phase = [(phase.phase, phase.idle_gpu_seconds) for phase in phases]
    if fold is not None:
        by_phase = [(_known(name), seconds) for name, seconds in fold.idle_gpu_seconds.items()]
    released = sum(phase.released_gpu_seconds for phase in phases) if fold is None else fold.released_gpu_seconds
    return IncidentAccount(
        id=incident.id,
        number=incident.number,
        incidents=record.count,
        latest_started_at=incident.started_at if fold is None else fold.latest_started_at,
        namespace=record.job.namespace,
        job=record.job.name,
        workload_kind=record.workload_kind,
        workload_uid=record.workload_uid,
        drill=CausedBy(incident.drill.name, incident.drill.repeat) if incident.drill is not None else None,
        mode=incident.mode,
        failure_class=incident.disruption_class,
        cause=incident.cause,
        outcome=OPEN if closing is None else closing.outcome,
        outcome_reason=None if closing is None else closing.outcome_reason,
        still_broken=closing is not None and closing.still_broken,
        handling=incident.handling,
        restarts=incident.restarts if fold is None else fold.restarts,
        would=incident.would,
        with_enforce=enforce_account(record.enforce_estimate),
        reason=incident.reason,
        message=incident.message,
        started_at=incident.started_at,
        detected_at=incident.detected_at,
        ended_at=ended_at if fold is None else fold.ended_at,
        duration_seconds=whole if fold is None else fold.duration_seconds,
        detection_seconds=max(0.0, (incident.detected_at - incident.started_at).total_seconds()),
        unaccounted_seconds=_rest(whole, phases),
        verified=closing is not None and closing.verified,
        verified_by="" if closing is None else closing.source,
        charged=incident.charged,
        gpus=incident.gpus,
        ranks=incident.ranks,
        idle_gpu_seconds=round(sum(seconds for _, seconds in by_phase), 3),
        released_gpu_seconds=round(released, 3),
        lost_steps=steps.lost if steps is not None else None,
        rework_seconds=_rework_seconds(steps, phases) if steps is not None else None,
        idle_gpu_seconds_by_phase=summed(by_phase),
        idle_gpu_seconds_by_badput=summed((BADPUT[phase], seconds) for phase, seconds in by_phase),
        decided_by=_decided_by(incident),
        phases=phases,
        evidence=_evidence(incident),
        suspects=tuple(EvidenceSuspect(each.pod, each.node, each.index, each.exit_code) for each in incident.suspects),
        log=_log(incident.suspect_log) if incident.suspect_log is not None else None,
        alternatives=tuple(
            AlternativeAccount(each.action, each.node, each.reason, each.message) for each in incident.considered
        ),
        attempts=tuple(_attempt(each) for each in incident.attempts),
        writes=tuple(sorted(_writes(incident), key=lambda write: write.at)),
        suspected_nodes=_suspected_nodes(record, sum(seconds for _, seconds in by_phase)),
        storm=incident.storm,
        platform=compare(incident, phases),
    )


def _rework_seconds(steps: TrainingSteps, phases: Sequence[PhaseAccount]) -> float | None:
    """Part of Resuming, and never more: the figures of steps are the word of the job's agents."""
    found = steps.rework_seconds
    resuming = fsum(phase.duration_seconds for phase in phases if phase.phase == Phase.RESUMING)
    return None if found is None else round(min(found, resuming), 3)


def _rest(whole_seconds: float, phases: Sequence[PhaseAccount]) -> float:
    """The seconds that no phase has. `sum` of floats depends on the version of Python, `fsum` does not."""
    return round(whole_seconds - fsum(phase.duration_seconds for phase in phases), 6) + 0.0  # 0.0, never -0.0


def _evidence(incident: Incident) -> tuple[str, ...]:
    """The signs that the record has in words, and how many others there were."""
    others = sum(each.count for each in incident.evidence_counts) - len(incident.evidence)
    return (*incident.evidence, f"and {others} more") if others > 0 else incident.evidence


def _log(found: SuspectLog) -> LogAccount:
    return LogAccount(
        pod=found.pod,
        container=found.container,
        previous=found.previous,
        termination_message=found.termination_message,
        lines=tuple(found.tail.split("\n")) if found.tail else (),
        incomplete=found.incomplete,
        absent=found.absent,
    )


def _known(phase: str) -> Phase:
    """The meaning of a newer version's phase is unknown here, so it counts as Decided, in which nothing is done."""
    return Phase(phase) if phase in set(Phase) else Phase.DECIDED


def _suspected_nodes(record: IncidentRecord, idle_gpu_seconds: float) -> dict[str, FoldedNode]:
    if record.fold is not None:
        return record.fold.nodes
    nodes = sorted({suspect.node for suspect in record.incident.suspects if suspect.node})
    return {node: FoldedNode(1, round(idle_gpu_seconds, 3)) for node in nodes}


def _decided_by(incident: Incident) -> DecidedBy:
    pinned = incident.pinned
    return DecidedBy(
        policy=pinned.policy_name,
        policy_generation=pinned.policy_generation,
        rule=incident.rule,
        restart=pinned.restart,
        budget_limit=pinned.budget_limit,
        budget_window_seconds=pinned.budget_window_seconds,
    )


def _attempt(attempt: Attempt) -> AttemptAccount:
    return AttemptAccount(
        number=attempt.number,
        action=attempt.action,
        started_at=attempt.started_at,
        nodes=attempt.nodes,
        reason=attempt.reason,
        message=attempt.whole_message,
    )


def _writes(incident: Incident) -> Iterator[ApiWrite]:
    """The triggers. The record keeps only the UIDs of the latest target, and no deletes of single pods."""
    latest = incident.attempt
    for attempt in incident.attempts:
        if attempt.nodes:
            yield ApiWrite(attempt.started_at, "patch", "nodes", attempt.nodes)
        if attempt.action in JOB_TRIGGERS:
            yield ApiWrite(attempt.started_at, "delete", "jobs", incident.target.job_uids if attempt is latest else ())
        elif attempt.action is AttemptAction.RECREATE_JOB_SET:
            uids = (attempt.job_set_uid,) if attempt.job_set_uid else ()
            yield ApiWrite(attempt.started_at, "delete", "jobsets", uids)
    if incident.step.fails_job:
        uid = incident.target.job_set_uid
        yield ApiWrite(_latest_start(incident), "patch", "jobsets/status", (uid,) if uid else ())


def _latest_start(incident: Incident) -> datetime:
    return incident.phases[-1].started_at if incident.phases else incident.detected_at
