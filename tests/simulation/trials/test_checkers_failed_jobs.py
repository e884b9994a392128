"""The invariant of jobs that FailJob has failed, with cases that break it and nearly break it."""

import pytest

from recovery.core.model.ledger import Outcome
from recovery.core.model.reason import Reason
from recovery.core.model.step import Step, StepType
from recovery.ports import JOB_SETS, TRAIN_JOBS
from recovery.sim.trials.checkers.failed_jobs import FailedStaysFailed
from tests.simulation.trials.checker_case import Case, closed, opened

TTL, TRAINER = "jobset-controller", "trainer-controller"


HELD = {fails_job: Step(StepType.HELD, reason=Reason.FAIL_JOB_RULE, fails_job=fails_job) for fails_job in (False, True)}


def ended(outcome: Outcome = Outcome.FAILED, *, fail_job: bool = True) -> Case:
    case = Case(FailedStaysFailed)
    case.ledger(opened(1000).with_incident(step=HELD[fail_job]))
    case.ledger(closed(opened(1000).with_incident(step=HELD[fail_job]), 1010, outcome))
    return case


def begins_again(case: Case, *, by: str) -> None:
    case.delete(JOB_SETS, "llm", by=by)
    case.drop(JOB_SETS, "llm", by="garbage-collector")
    case.put(JOB_SETS, "llm", {}, by=TRAINER, uid="jobset-2", owner="workload")


def test_one_that_its_ttl_begins_again_is_found() -> None:
    case = ended()
    begins_again(case, by=TTL)
    assert case.found == ["trainer-controller creates a JobSet of team-a/llm, which FailJob has failed"]


def test_one_that_another_client_begins_again_is_not() -> None:
    case = ended()
    begins_again(case, by="user")
    assert case.found == []


@pytest.mark.parametrize("case", [ended(fail_job=False), ended(Outcome.SUPERSEDED)], ids=["by others", "superseded"])
def test_one_that_we_have_not_failed_is_not(case: Case) -> None:
    begins_again(case, by=TTL)
    assert case.found == []


def test_one_that_its_user_has_suspended_since_is_not() -> None:
    case = ended()
    case.put(TRAIN_JOBS, "llm", {"spec": {"suspend": True}})
    begins_again(case, by=TTL)
    assert case.found == []


def test_one_that_its_user_deletes_is_not() -> None:
    case = ended()
    case.delete(TRAIN_JOBS, "llm")
    begins_again(case, by=TTL)
    assert case.found == []
