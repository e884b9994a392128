"""Requests to a workload: each is for one object in one version, and is harmless if it arrives twice or late."""

import pytest

from recovery.core.plan.actions import ClaimJob, DeleteJob, DeleteJobSet, RaiseBackoffLimit, TouchJob
from recovery.executors import group_recreate
from recovery.ports import (
    JOB_SETS,
    JOBS,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    PatchKind,
    Propagation,
    RefusedError,
    TestFailedError,
    UnknownOutcomeError,
)
from tests.unit.controller.fakes import LedgersApi
from tests.unit.fake_api import Sent

TRIGGER = DeleteJob(epoch=1, name="train-node-0", uid="job-1", resource_version="1000")
TAKE_AWAY = DeleteJobSet(epoch=1, name="train", uid="jobset-1", resource_version="7")
CLAIM = ClaimJob(epoch=1, name="train-node-0", uid="job-1", resource_version="7", attempt="inc-1-1", backoff_limit=12)
LIFT = RaiseBackoffLimit(epoch=1, name="train-node-0", uid="job-1")
TOUCH = TouchJob(epoch=1, name="train-node-0", uid="job-2", value="inc-1")
GONE = NotFoundError("not found", status=404)
REPLACED = TestFailedError("another uid", status=422)


# --- the trigger -----------------------------------------------------------------------------------------------------


async def test_the_trigger_names_the_object_its_version_and_the_foreground() -> None:
    api = LedgersApi()
    await group_recreate.delete_job(api, "ml", TRIGGER)
    assert api.writes == [
        Sent(
            "delete",
            JOBS,
            "train-node-0",
            "ml",
            uid="job-1",
            resource_version="1000",
            propagation=Propagation.FOREGROUND,
        )
    ]


async def test_a_job_that_is_gone_already_is_success() -> None:
    api = LedgersApi()
    api.next("delete", JOBS, GONE)
    await group_recreate.delete_job(api, "ml", TRIGGER)
    assert len(api.writes) == 1


@pytest.mark.parametrize(
    "error", [ConflictError("changed", status=409), UnknownOutcomeError("lost"), ForbiddenError("no", status=403)]
)
async def test_any_other_answer_to_the_trigger_is_the_callers_and_nothing_is_repeated(error: Exception) -> None:
    api = LedgersApi()
    api.next("delete", JOBS, error)
    with pytest.raises(type(error)):
        await group_recreate.delete_job(api, "ml", TRIGGER)
    assert len(api.writes) == 1


async def test_a_failed_jobset_goes_under_the_same_conditions() -> None:
    api = LedgersApi()
    await group_recreate.delete_jobset(api, "ml", TAKE_AWAY)
    assert api.writes == [
        Sent(
            "delete",
            JOB_SETS,
            "train",
            "ml",
            uid="jobset-1",
            resource_version="7",
            propagation=Propagation.FOREGROUND,
        )
    ]


async def test_a_jobset_that_is_gone_already_is_success_and_one_that_changed_is_news() -> None:
    api = LedgersApi()
    api.next("delete", JOB_SETS, GONE)
    await group_recreate.delete_jobset(api, "ml", TAKE_AWAY)
    api.next("delete", JOB_SETS, ConflictError("changed", status=409))
    with pytest.raises(ConflictError):
        await group_recreate.delete_jobset(api, "ml", TAKE_AWAY)


# --- patches of Jobs -------------------------------------------------------------------------------------------------


async def test_a_job_is_claimed_in_the_version_of_the_decision() -> None:
    api = LedgersApi()
    await group_recreate.claim_job(api, "ml", CLAIM)
    (request,) = api.writes
    assert (str(request), request.kind, request.subresource) == ("patch Job", PatchKind.MERGE, "")
    assert request.body == {
        "metadata": {
            "uid": "job-1",
            "resourceVersion": "7",
            "annotations": {"recovery.trainjob.dev/torn-down-by": "inc-1-1"},
        },
        "spec": {"backoffLimit": 12, "podReplacementPolicy": "Failed"},
    }


async def test_a_job_that_has_changed_is_not_claimed_and_one_that_is_gone_need_not_be() -> None:
    api = LedgersApi()
    api.next("patch", JOBS, GONE)
    await group_recreate.claim_job(api, "ml", CLAIM)
    api.next("patch", JOBS, ConflictError("changed", status=409))
    with pytest.raises(ConflictError):
        await group_recreate.claim_job(api, "ml", CLAIM)
    assert [str(request) for request in api.writes] == ["patch Job"] * 2


async def test_where_a_job_may_not_be_changed_it_goes_before_its_pods() -> None:
    api = LedgersApi()
    api.next("patch", JOBS, ForbiddenError("no", status=403))
    await group_recreate.claim_job(api, "ml", CLAIM)
    assert [str(request) for request in api.writes] == ["patch Job", "delete Job"]
    assert (api.writes[1].uid, api.writes[1].resource_version) == ("job-1", "7")


async def test_the_backoff_limit_is_lifted_only_of_the_job_of_that_uid() -> None:
    api = LedgersApi()
    await group_recreate.raise_backoff_limit(api, "ml", LIFT)
    (request,) = api.writes
    assert (str(request), request.kind, request.subresource) == ("patch Job", PatchKind.JSON, "")
    assert request.body == [
        {"op": "test", "path": "/metadata/uid", "value": "job-1"},
        {"op": "replace", "path": "/spec/backoffLimit", "value": 2**31 - 1},
    ]


@pytest.mark.parametrize(
    "error", [GONE, REPLACED, ForbiddenError("no", status=403)], ids=["gone", "replaced", "refused"]
)
async def test_a_job_that_is_gone_or_replaced_needs_no_limit_and_a_precaution_stops_nothing(error: Exception) -> None:
    api = LedgersApi()
    api.next("patch", JOBS, error)
    await group_recreate.raise_backoff_limit(api, "ml", LIFT)
    assert [str(request) for request in api.writes] == ["patch Job"]


async def test_the_touch_changes_an_annotation_of_the_job_of_that_uid() -> None:
    api = LedgersApi()
    await group_recreate.touch_job(api, "ml", TOUCH)
    (request,) = api.writes
    assert (str(request), request.kind, request.subresource) == ("patch Job", PatchKind.MERGE, "")
    assert request.body == {
        "metadata": {"uid": "job-2", "annotations": {"recovery.trainjob.dev/touched": "inc-1"}},
    }, "which needs no annotations to be there"


OTHER_UID = RefusedError("patch jobs train-node-0: metadata.uid: Invalid value: field is immutable", status=422)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (GONE, NotFoundError),
        (OTHER_UID, TestFailedError),
        (RefusedError("a webhook denied the request", status=422), RefusedError),
    ],
    ids=["gone", "replaced", "refused"],
)
async def test_a_job_that_cannot_be_touched_any_more_is_news(error: Exception, raised: type[Exception]) -> None:
    """The decision waits for the Job's pods, so it is made again. Only a permanent refusal stays a refusal."""
    api = LedgersApi()
    api.next("patch", JOBS, error)
    with pytest.raises(raised):
        await group_recreate.touch_job(api, "ml", TOUCH)
