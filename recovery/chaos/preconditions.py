"""Whether a job may be drilled now. Pure: each problem is a sentence that says what to do about it."""

from collections.abc import Iterator
from datetime import timedelta

from recovery.chaos.job_state import JobState
from recovery.core.drill.acceptance import runs
from recovery.core.model.drill import DRILLS_ALLOWED, DRILLS_LABEL
from recovery.core.model.durations import in_words
from recovery.core.model.protection import ProtectionReason
from recovery.core.model.standing import Standing
from recovery.scenario.experiment import Experiment

_SAID_ELSEWHERE = frozenset(
    {
        ProtectionReason.BROKEN,
        ProtectionReason.BREAKER_OPEN,
        ProtectionReason.PAUSED_BY_ANNOTATION,
        ProtectionReason.PAUSED_GLOBALLY,
        ProtectionReason.HELD,
        ProtectionReason.NO_CONTROLLER,
        ProtectionReason.BUDGET_EXHAUSTED,
    }
)
"""Reasons for which a job is not protected, and which have a problem of their own here."""


def problems(state: JobState, experiment: Experiment, own_uid: str = "") -> tuple[str, ...]:
    """Everything that speaks against a drill, at once. Empty: nothing does.

    `own_uid`: the RecoveryDrill of this run, which does not count as another one. Empty: it does not exist yet.
    """
    if state.workload is None:
        return (state.absence,)
    return tuple(_problems(state, experiment, own_uid))


def _problems(state: JobState, experiment: Experiment, own_uid: str) -> Iterator[str]:
    yield from _of_the_namespace(state)
    yield from _of_the_controller(state)
    yield from _of_the_job(state)
    for drill in state.drills:
        if drill.uid != own_uid and runs(drill, state.at):
            yield (
                f"drill {drill.name} of the same job runs; wait for its end, or run recovery chaos abort {drill.name} "
                f"-n {drill.namespace}"
            )
    limit = experiment.limits.checkpoint_age_seconds
    if limit is not None:
        yield from _of_the_checkpoint(state, limit)


def _of_the_namespace(state: JobState) -> Iterator[str]:
    namespace = state.key.namespace
    label = f"{DRILLS_LABEL}={DRILLS_ALLOWED}"
    if state.drills_allowed is None:
        yield f"you may not read Namespace {namespace}, so it is not known whether it allows drills; ask for that right"
    elif not state.drills_allowed:
        yield (
            f"Namespace {namespace} does not allow drills; its administrator may run kubectl label namespace "
            f"{namespace} {label}"
        )


def _of_the_controller(state: JobState) -> Iterator[str]:
    if state.leads is not True:
        yield f"no controller is known to lead, so nothing would recover the job: {state.leader_words}"
    if state.stop_words:
        yield f"{state.stop_words}; wait until that has ended"
    if state.storm:
        yield f"{state.storm}; wait until no more nodes are lost"


def _of_the_job(state: JobState) -> Iterator[str]:
    name = state.key.name
    if state.paused:
        yield f"the job is paused; run recovery resume {name}"
    if state.incident:
        yield f"incident {state.incident} of the job is open; wait until it has closed (recovery explain {name})"
    elif state.standing is not Standing.MET:
        standing = state.standing or "not meant to run"
        yield f"the job does not train: its standing is {standing}, not {Standing.MET}; see recovery explain {name}"
    reason = state.protection.reason
    if reason is not ProtectionReason.PROTECTED and reason not in _SAID_ELSEWHERE:
        yield f"the job is not protected: {state.protection_words or reason}"
    if state.budget_left == 0:
        yield (
            f"the budget of the job is exhausted, and a failure beside the drill would be Held; wait, or run recovery "
            f"reset-budget {name}"
        )


def _of_the_checkpoint(state: JobState, limit: float) -> Iterator[str]:
    saved_at = state.checkpoint.at
    if saved_at is None:
        yield (
            "limits.checkpointAge is set, and the job does not report when it last saved a checkpoint; report the "
            "metric checkpoint_timestamp_seconds to status.trainerStatus, or remove the limit"
        )
        return
    age_seconds = (state.at - saved_at).total_seconds()
    if age_seconds > limit:
        whole = 60 if age_seconds >= 120 else 1
        age = in_words(timedelta(seconds=age_seconds // whole * whole))
        most = in_words(timedelta(seconds=limit))
        yield f"the last checkpoint is {age} old, older than limits.checkpointAge ({most}); wait for the next one"
