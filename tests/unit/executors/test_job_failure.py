"""A training is failed the way its own controllers fail one, and only if it has not ended already."""

from typing import Any

import pytest

from recovery.core.model.reason import Reason
from recovery.core.plan.actions import FailJobSet, JobRef
from recovery.executors import job_failure
from recovery.ports import JOB_SETS, JOBS, ConflictError, NotFoundError, PatchKind, TestFailedError
from tests.unit.controller.fakes import LedgersApi
from tests.unit.core.world import at

BY_STATUS = FailJobSet(epoch=1, name="train", uid="jobset-1", reason=Reason.BUDGET_EXHAUSTED, message="enough")
BY_JOB = FailJobSet(
    epoch=1,
    name="train",
    uid="jobset-1",
    reason=Reason.BUDGET_EXHAUSTED,
    message="enough",
    job=JobRef("train-node-0", "job-1"),
)
FAILED = {
    "type": "Failed",
    "status": "True",
    "reason": "RecoveryBudgetExhausted",
    "message": "enough",
    "lastTransitionTime": "2026-11-21T12:00:05Z",
}
SUSPENDED = {"type": "Suspended", "status": "False", "reason": "ResumeJobs", "message": "", "lastTransitionTime": "t"}


def server(status: dict[str, Any] | None = None, *, uid: str = "jobset-1") -> LedgersApi:
    api = LedgersApi()
    found: dict[str, Any] = {"metadata": {"uid": uid, "resourceVersion": "7"}}
    api.objects[JOB_SETS, "train"] = found if status is None else {**found, "status": status}
    return api


async def fail(api: LedgersApi, action: FailJobSet = BY_STATUS) -> None:
    await job_failure.fail_jobset(api, "ml", action, at(5))


async def test_a_job_that_may_fail_the_jobset_is_given_a_deadline_that_is_over() -> None:
    api = LedgersApi()
    await fail(api, BY_JOB)
    (request,) = api.writes
    assert (request.resource, request.name, request.namespace, request.kind) == (
        JOBS,
        "train-node-0",
        "ml",
        PatchKind.JSON,
    )
    assert request.body == [
        {"op": "test", "path": "/metadata/uid", "value": "job-1"},
        {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1},
    ]


@pytest.mark.parametrize("error", [NotFoundError("gone", status=404), TestFailedError("another uid", status=422)])
async def test_a_job_that_is_gone_or_replaced_is_news(error: Exception) -> None:
    api = LedgersApi()
    api.next("patch", JOBS, error)
    with pytest.raises(type(error)):
        await fail(api, BY_JOB)


async def test_the_status_is_swapped_as_jobset_itself_would_write_it() -> None:
    api = server({"restarts": 2, "conditions": [SUSPENDED]})
    await fail(api)
    (request,) = api.writes
    assert (request.resource, request.subresource, request.kind) == (JOB_SETS, "status", PatchKind.JSON)
    assert request.body == [
        {"op": "test", "path": "/metadata/uid", "value": "jobset-1"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {
            "op": "add",
            "path": "/status",
            "value": {"restarts": 2, "conditions": [SUSPENDED, FAILED], "terminalState": "Failed"},
        },
    ]


async def test_a_jobset_that_has_no_status_yet_can_be_ended_too() -> None:
    api = server()
    await fail(api)
    assert api.writes[0].body[-1]["value"] == {"conditions": [FAILED], "terminalState": "Failed"}


async def test_a_condition_that_stands_there_already_is_replaced_and_one_that_failed_restarts_no_more() -> None:
    restarting = {**SUSPENDED, "type": "Restarting", "status": "True"}
    api = server({"conditions": [{**FAILED, "status": "False"}, restarting]})
    await fail(api)
    ended, failed = api.writes[0].body[-1]["value"]["conditions"]
    assert (ended["type"], ended["status"], ended["reason"]) == ("Restarting", "False", "JobSetFailed")
    assert failed == FAILED


@pytest.mark.parametrize("state", ["Completed", "Failed"])
async def test_a_jobset_that_has_ended_is_left_as_it_is(state: str) -> None:
    api = server({"terminalState": state})
    await fail(api)
    assert api.writes == []


async def test_another_jobset_of_that_name_is_not_ended() -> None:
    api = server({}, uid="jobset-2")
    with pytest.raises(TestFailedError, match="JobSet ml/train is another one by now"):
        await fail(api)
    assert api.writes == []


async def test_a_jobset_that_changed_meanwhile_is_the_callers_to_read_again() -> None:
    api = server({})
    api.next("patch", JOB_SETS, ConflictError("changed", status=409))
    with pytest.raises(ConflictError):
        await fail(api)


async def test_a_message_longer_than_a_condition_holds_is_cut() -> None:
    api = server({})
    await fail(
        api, FailJobSet(epoch=1, name="train", uid="jobset-1", reason=Reason.BUDGET_EXHAUSTED, message="x" * 40_000)
    )
    assert len(api.writes[0].body[-1]["value"]["conditions"][0]["message"]) == 32_768
