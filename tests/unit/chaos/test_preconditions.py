"""A drill begins only on a job that trains and is protected. Each problem says what to do about it."""

from datetime import timedelta
from typing import Any

import pytest

from recovery.chaos.job_state import ReportedCheckpoint
from recovery.chaos.preconditions import problems
from recovery.core.model.drill import DrillEnd
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from tests.unit.chaos.states import NOW, READY, changed, running_drill
from tests.unit.chaos.world import POD_KILL, read

EXPERIMENT = read(POD_KILL)
FRESH = read(POD_KILL + "limits: {checkpointAge: 30m}\n")


def test_nothing_speaks_against_a_job_that_trains_and_is_protected() -> None:
    assert problems(READY, EXPERIMENT) == ()


def unprotected(reason: ProtectionReason) -> Protection:
    return Protection(reason, "TrainJob", "llm")


@pytest.mark.parametrize(
    ("changes", "words", "fix"),
    [
        (
            {"drills_allowed": False},
            "Namespace research does not allow drills",
            "kubectl label namespace research recovery.trainjob.dev/drills=allowed",
        ),
        ({"drills_allowed": None}, "you may not read Namespace research", "ask for that right"),
        ({"standing": Standing.FORMING}, "its standing is Forming, not Met", "recovery explain llm"),
        ({"standing": None}, "not meant to run", "recovery explain llm"),
        ({"incident": "inc-1"}, "incident inc-1 of the job is open", "wait until it has closed"),
        ({"paused": True}, "the job is paused", "recovery resume llm"),
        ({"stop_words": "all recoveries are paused"}, "all recoveries are paused", "wait until that has ended"),
        ({"leads": False, "leader_words": "no Lease"}, "no controller is known to lead", "no Lease"),
        ({"leads": None, "leader_words": "no right"}, "no controller is known to lead", "no right"),
        ({"storm": "3 nodes were lost within a minute"}, "3 nodes were lost", "wait until no more nodes are lost"),
        ({"budget_left": 0}, "the budget of the job is exhausted", "recovery reset-budget llm"),
        (
            {"protection": unprotected(ProtectionReason.OBSERVE), "protection_words": "mode Observe. Set Enforce."},
            "the job is not protected: mode Observe",
            "Set Enforce",
        ),
        (
            {"drills": (running_drill(),)},
            "drill lose-a-rank-x7k2p",
            "recovery chaos abort lose-a-rank-x7k2p -n research",
        ),
        ({"workload": None, "absence": "there is no TrainJob 'llm'"}, "there is no TrainJob 'llm'", ""),
    ],
)
def test_what_speaks_against_a_drill_is_one_sentence_with_its_fix(
    changes: dict[str, Any], words: str, fix: str
) -> None:
    [problem] = problems(changed(**changes), EXPERIMENT)
    assert words in problem
    assert fix in problem


def test_all_problems_are_reported_at_once() -> None:
    found = problems(changed(drills_allowed=False, standing=Standing.FORMING, leads=False, paused=True), FRESH)
    assert len(found) == 5


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (ProtectionReason.PAUSED_BY_ANNOTATION, {"paused": True}),
        (ProtectionReason.BREAKER_OPEN, {"stop_words": "the circuit breaker is open"}),
        (ProtectionReason.HELD, {"incident": "inc-1"}),
        (ProtectionReason.BUDGET_EXHAUSTED, {"budget_left": 0}),
        (ProtectionReason.BROKEN, {"standing": Standing.BROKEN}),
        (ProtectionReason.NO_CONTROLLER, {"leads": False}),
    ],
)
def test_a_cause_that_also_ends_the_protection_is_reported_once(
    reason: ProtectionReason, changes: dict[str, Any]
) -> None:
    assert len(problems(changed(protection=unprotected(reason), **changes), EXPERIMENT)) == 1


@pytest.mark.parametrize(
    "drill",
    [
        running_drill(end=DrillEnd(NOW, Reason.DRILL_DONE)),
        running_drill(expires_at=NOW - timedelta(seconds=1)),
    ],
    ids=["ended", "expired"],
)
def test_a_drill_that_is_over_is_no_obstacle(drill: Any) -> None:
    assert problems(changed(drills=(drill,)), EXPERIMENT) == ()


def test_the_drill_of_the_run_itself_is_no_obstacle() -> None:
    assert problems(changed(drills=(running_drill(),)), EXPERIMENT, "uid-drill") == ()


def test_a_limit_of_the_checkpoints_age_needs_a_job_that_reports_it() -> None:
    [problem] = problems(READY, FRESH)
    assert "report the metric checkpoint_timestamp_seconds" in problem


@pytest.mark.parametrize(
    ("seconds", "words"), [(29 * 60, ""), (45 * 60 + 7, "45m old, older than limits.checkpointAge (30m)")]
)
def test_a_checkpoint_that_is_too_old_is_a_problem(seconds: int, words: str) -> None:
    saved = ReportedCheckpoint(at=NOW - timedelta(seconds=seconds))
    found = problems(changed(checkpoint=saved), FRESH)
    assert [words in each for each in found] == [True] * bool(words)
