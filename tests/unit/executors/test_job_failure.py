"""A training is failed the way its own controllers fail one, and only if it has not ended already."""

from typing import Any

import msgspec
import pytest

from recovery.core.model.reason import Reason
from recovery.core.plan.actions import FailJobSet, JobRef
from recovery.executors import job_failure
from recovery.ports import (
    JOB_SETS,
    JOBS,
    ApiRequest,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    PatchKind,
    TestFailedError,
)
from tests.unit.controller.fakes import LedgersApi
from tests.unit.core.world import at
from tests.unit.fake_api import sent

TTL = "ttlSecondsAfterFinished"
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


KEPT = [{"op": "test", "path": "/metadata/uid", "value": "jobset-1"}, {"op": "remove", "path": f"/spec/{TTL}"}]


class OneJobSet(LedgersApi):
    """It has one JobSet. A patch that removes the TTL is applied, and gives it another resourceVersion."""

    def __init__(self, status: dict[str, Any] | None, uid: str, ttl: int | None) -> None:
        super().__init__()
        self.found: dict[str, Any] = {"metadata": {"uid": uid, "resourceVersion": "7"}, "spec": {}}
        self.found |= {} if status is None else {"status": status}
        self.found["spec"] |= {} if ttl is None else {TTL: ttl}
        self.objects[JOB_SETS, "train"] = self.found

    async def answer(self, request: ApiRequest) -> bytes:
        answer = await super().answer(request)
        if sent(request).body != KEPT:
            return answer
        del self.found["spec"][TTL]
        self.found["metadata"]["resourceVersion"] = "8"
        return msgspec.json.encode(self.found)


def server(status: dict[str, Any] | None = None, *, uid: str = "jobset-1", ttl: int | None = None) -> OneJobSet:
    return OneJobSet(status, uid, ttl)


async def fail(api: LedgersApi, action: FailJobSet = BY_STATUS) -> None:
    await job_failure.fail_jobset(api, "ml", action, at(5))


async def test_a_job_that_may_fail_the_jobset_is_given_a_deadline_that_is_over() -> None:
    api = server()
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
        {"op": "add", "path": f"/spec/{TTL}", "value": None},  # else the failed Job may go before JobSet has seen it
        {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1},
    ]


@pytest.mark.parametrize("error", [NotFoundError("gone", status=404), TestFailedError("another uid", status=422)])
async def test_a_job_that_is_gone_or_replaced_is_news(error: Exception) -> None:
    api = server()
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
    api = server({}, uid="jobset-2", ttl=60)
    with pytest.raises(TestFailedError, match="JobSet ml/train is another one by now"):
        await fail(api)
    assert api.writes == []


@pytest.mark.parametrize("action", [BY_STATUS, BY_JOB])
async def test_a_jobset_loses_its_ttl_before_it_fails(action: FailJobSet) -> None:
    """Trainer 2.3 makes the JobSet of a failed TrainJob again once the old one has expired."""
    api = server({}, ttl=0)
    await fail(api, action)
    kept, failed = api.writes
    assert (kept.resource, kept.subresource, kept.kind, kept.body) == (JOB_SETS, "", PatchKind.JSON, KEPT)
    assert (failed.resource, failed.subresource) == ((JOB_SETS, "status") if action is BY_STATUS else (JOBS, ""))


async def test_the_status_is_written_to_the_jobset_as_it_is_without_its_ttl() -> None:
    api = server({}, ttl=60)
    await fail(api)
    assert api.writes[1].body[1] == {"op": "replace", "path": "/metadata/resourceVersion", "value": "8"}


@pytest.mark.parametrize("action", [BY_STATUS, BY_JOB])
async def test_a_jobset_that_lost_its_ttl_before_a_crash_fails_afterwards(action: FailJobSet) -> None:
    api = server({}, ttl=60)
    del api.found["spec"][TTL]
    await fail(api, action)
    (failed,) = api.writes
    assert failed.body != KEPT


async def test_a_jobset_that_does_not_lose_its_ttl_does_not_fail() -> None:
    api = server({}, ttl=60)
    api.next("patch", JOB_SETS, ForbiddenError("not allowed", status=403))
    with pytest.raises(ForbiddenError):
        await fail(api, BY_JOB)
    assert len(api.writes) == 1


async def test_a_jobset_that_has_failed_already_does_not_expire_either() -> None:
    api = server({"terminalState": "Failed"}, ttl=60)
    await fail(api)
    (kept,) = api.writes
    assert kept.body == KEPT


async def test_a_jobset_that_has_completed_keeps_its_ttl() -> None:
    api = server({"terminalState": "Completed"}, ttl=60)
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
