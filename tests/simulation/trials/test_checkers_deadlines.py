"""The invariant of how long a job may train, with cases that break it and nearly break it."""

from collections.abc import Mapping
from typing import Any

import pytest

from recovery.ports import TRAIN_JOBS
from recovery.sim.trials.checkers.deadlines import DeadlineHolds
from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.checker_case import CONTROLLER, Case

KUEUE = {"runtimePatches": [{"manager": "kueue.x-k8s.io/manager"}]}
FAILED = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}


def case_of(spec: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> Case:
    """A case with another TrainJob, from second 1000 on."""
    case = Case(DeadlineHolds)
    case.put(TRAIN_JOBS, "other", {"spec": {"suspend": False, **spec}, "metadata": {"labels": labels or {}}})
    return case


def suspend(case: Case, suspended: bool, *, by: str) -> None:
    case.put(TRAIN_JOBS, "other", {"spec": {"suspend": suspended}}, by=by)


@pytest.mark.parametrize(
    ("spec", "labels", "why"),
    [
        ({"activeDeadlineSeconds": 600}, {}, "its deadline of 600 s counts from the last resume"),
        ({}, {"kueue.x-k8s.io/queue-name": "training"}, "Kueue decides about its suspension"),
        (KUEUE, {}, "Kueue decides about its suspension"),
    ],
)
def test_a_suspension_of_ours_is_found(spec: Mapping[str, Any], labels: Mapping[str, str], why: str) -> None:
    case = case_of(spec, labels)
    suspend(case, True, by=CONTROLLER)
    assert len(case.found) == 1
    assert case.found[0].endswith(f"though {why}")


@pytest.mark.parametrize(("spec", "by"), [({"activeDeadlineSeconds": 600}, "user"), (KUEUE, "kueue"), ({}, CONTROLLER)])
def test_that_of_others_and_of_other_jobs_is_not(spec: Mapping[str, Any], by: str) -> None:
    case = case_of(spec)
    suspend(case, True, by=by)
    assert case.found == []


@pytest.mark.parametrize(("seconds", "violations"), [(605, 0), (640, 1)])
def test_a_job_that_trains_on_after_its_deadline_is_found(seconds: float, violations: int) -> None:
    case = case_of({"activeDeadlineSeconds": 600})
    case.now += seconds
    case.put(TRAIN_JOBS, "other", FAILED, by="trainer-controller")
    assert len(case.found) == violations


def test_so_is_one_that_is_never_ended() -> None:
    case = case_of({"activeDeadlineSeconds": 600})
    assert case.end() == [
        "TrainJob team-a/other (other) was active for 6200 s since others let it run; its deadline is 600 s"
    ]


@pytest.mark.parametrize(("by", "violations"), [("user", 0), (CONTROLLER, 2)])
def test_a_resume_starts_the_clock_unless_the_suspension_was_ours(by: str, violations: int) -> None:
    case = case_of({"activeDeadlineSeconds": 600})
    case.now += 500
    suspend(case, True, by=by)
    suspend(case, False, by=by)
    case.now += 500
    case.put(TRAIN_JOBS, "other", FAILED, by="trainer-controller")
    assert len(case.found) == violations


def test_trainer_may_be_late_by_as_long_as_it_stood_still() -> None:
    case = case_of({"activeDeadlineSeconds": 600})
    case.hits(FaultKind.TRAINER_STALL, seconds=60)
    case.now += 640
    case.put(TRAIN_JOBS, "other", FAILED, by="trainer-controller")
    assert case.found == []
