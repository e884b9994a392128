"""The result of a chaos experiment, and the list of drills, for people and for tools."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from recovery.chaos.chaos_run import RunOutcome
from recovery.chaos.marked_nodes import LeftOver
from recovery.cli.formatting import age, aligned
from recovery.core.drill.acceptance import runs
from recovery.core.model.drill import DrillCase, DrillFacts, DrillVerdict
from recovery.core.model.ledger import AttemptAction, Phase

EXIT_CODES = {DrillVerdict.PASSED: 0, DrillVerdict.FAILED: 1, DrillVerdict.ABORTED: 2, DrillVerdict.INCONCLUSIVE: 2}
_CASES = ("REPEAT", "VERDICT", "SECONDS", "IDLE-GPU-SECONDS", "ACTED", "ATTEMPTS", "STEP", "BY PHASE")
_DRILLS = ("NAME", "JOB", "VERDICT", "REPEATS", "STARTED BY", "AGE")
RUNNING = "Running"
ABANDONED = "Abandoned"


def case_lines(cases: Sequence[DrillCase]) -> Iterator[str]:
    """A table of the repeats, and below it why each has its verdict."""
    if not cases:
        return
    yield from aligned(_CASES, [_cells(case) for case in cases])
    for case in cases:
        yield f"repeat {case.repeat}: {case.message}"


def _cells(case: DrillCase) -> tuple[str, ...]:
    phases = ", ".join(
        f"{phase} {case.seconds_by_phase[phase]:.1f}s" for phase in Phase if phase in case.seconds_by_phase
    )
    return (
        str(case.repeat),
        str(case.verdict),
        "" if case.recovery_seconds is None else f"{case.recovery_seconds:.1f}",
        f"{case.idle_gpu_seconds:.0f}",
        ", ".join(map(_actor, case.actions)),
        str(case.attempts),
        _step_words(case),
        phases,
    )


def _actor(action: str) -> str:
    """Who acted, and how."""
    if action == AttemptAction.ADOPTED:
        return "platform"
    return "no one" if action == AttemptAction.NONE else f"controller: {action}"


def _step_words(case: DrillCase) -> str:
    if case.resumed_step is None:
        return ""
    return f"{case.resumed_step}" + ("" if case.lost_steps is None else f" ({case.lost_steps} repeated)")


def left_words(left: LeftOver) -> str:
    """What could not be taken back."""
    return f"node {left.node} is not as it was: {left.why}" if left.node else left.why


def outcome_data(outcome: RunOutcome, experiment: str, job: str) -> dict[str, Any]:
    """For `-o json` and `-o yaml`."""
    return {
        "experiment": experiment,
        "job": job,
        "drill": outcome.drill,
        "verdict": str(outcome.verdict),
        "message": outcome.verdict_message,
        "end": {"reason": str(outcome.reason), "message": outcome.message, "interrupted": outcome.interrupted},
        "cases": msgspec.to_builtins(outcome.cases),
        "leftOver": msgspec.to_builtins(outcome.left_over),
    }


def drill_state(drill: DrillFacts, now: datetime) -> str:
    """The verdict, or what stands in its place."""
    if drill.status.verdict is not None:
        return str(drill.status.verdict)
    if drill.status.refusal is not None:
        return f"refused: {drill.status.refusal.reason}"
    if runs(drill, now):
        return RUNNING
    return ABANDONED if drill.spec.end is None else str(drill.spec.end.reason)


def drill_lines(drills: Sequence[DrillFacts], now: datetime, *, with_namespace: bool) -> list[str]:
    """One line for each drill, oldest first."""
    header = ("NAMESPACE", *_DRILLS) if with_namespace else _DRILLS
    rows = []
    for drill in drills:
        begun = max((pod.repeat for pod in drill.spec.pods), default=0)
        cells = (
            drill.name,
            drill.spec.workload_ref.name,
            drill_state(drill, now),
            f"{begun}/{drill.spec.repeat}",
            drill.spec.started_by,
            age(drill.created_at, now),
        )
        rows.append((drill.namespace, *cells) if with_namespace else cells)
    return aligned(header, rows)


def drills_data(drills: Sequence[DrillFacts], now: datetime) -> list[dict[str, Any]]:
    """For `-o json` and `-o yaml`."""
    return [
        {
            "namespace": drill.namespace,
            "name": drill.name,
            "state": drill_state(drill, now),
            "createdAt": msgspec.to_builtins(drill.created_at),
            "spec": msgspec.to_builtins(drill.spec),
            "status": msgspec.to_builtins(drill.status),
        }
        for drill in drills
    ]
