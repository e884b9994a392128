"""What is asked of a workload: always of one object in one version, and harmless when it comes twice or late."""

import pytest

from recovery.core.plan import DeleteJob, DeletePods, PodRef, RaiseBackoffLimit, TouchJob
from recovery.executors import group_recreate
from recovery.executors.pod_teardown import PodTeardown
from recovery.ports import (
    JOBS,
    PODS,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    PatchKind,
    Propagation,
    TestFailedError,
    TryLaterError,
    UnknownOutcomeError,
)
from tests.unit.controller.fakes import FakeApi, Request, SetClock

TRIGGER = DeleteJob(epoch=1, name="train-node-0", uid="job-1", resource_version="1000")
LIFT = RaiseBackoffLimit(epoch=1, name="train-node-0", uid="job-1")
TOUCH = TouchJob(epoch=1, name="train-node-0", uid="job-2", value="inc-1")
GONE = NotFoundError("not found", status=404)
REPLACED = TestFailedError("another uid", status=422)


# --- the trigger -----------------------------------------------------------------------------------------------------


async def test_the_trigger_names_the_object_its_version_and_the_foreground() -> None:
    api = FakeApi()
    await group_recreate.delete_job(api, "ml", TRIGGER)
    assert api.requests == [
        Request(
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
    api = FakeApi()
    api.next("delete", JOBS, GONE)
    await group_recreate.delete_job(api, "ml", TRIGGER)
    assert len(api.requests) == 1


@pytest.mark.parametrize(
    "error", [ConflictError("changed", status=409), UnknownOutcomeError("lost"), ForbiddenError("no", status=403)]
)
async def test_any_other_answer_to_the_trigger_is_the_callers_and_nothing_is_repeated(error: Exception) -> None:
    api = FakeApi()
    api.next("delete", JOBS, error)
    with pytest.raises(type(error)):
        await group_recreate.delete_job(api, "ml", TRIGGER)
    assert len(api.requests) == 1


# --- patches of Jobs -------------------------------------------------------------------------------------------------


async def test_the_backoff_limit_is_lifted_only_of_the_job_of_that_uid() -> None:
    api = FakeApi()
    await group_recreate.raise_backoff_limit(api, "ml", LIFT)
    (request,) = api.requests
    assert (str(request), request.kind, request.subresource) == ("patch Job", PatchKind.JSON, "")
    assert request.body == [
        {"op": "test", "path": "/metadata/uid", "value": "job-1"},
        {"op": "replace", "path": "/spec/backoffLimit", "value": 2**31 - 1},
    ]


@pytest.mark.parametrize(
    "error", [GONE, REPLACED, ForbiddenError("no", status=403)], ids=["gone", "replaced", "refused"]
)
async def test_a_job_that_is_gone_or_replaced_needs_no_limit_and_a_precaution_stops_nothing(error: Exception) -> None:
    api = FakeApi()
    api.next("patch", JOBS, error)
    await group_recreate.raise_backoff_limit(api, "ml", LIFT)


async def test_the_touch_changes_an_annotation_of_the_job_of_that_uid() -> None:
    api = FakeApi()
    await group_recreate.touch_job(api, "ml", TOUCH)
    (request,) = api.requests
    assert (str(request), request.kind, request.subresource) == ("patch Job", PatchKind.JSON, "")
    assert request.body == [
        {"op": "test", "path": "/metadata/uid", "value": "job-2"},
        {"op": "add", "path": "/metadata/annotations/recovery.trainjob.dev~1touched", "value": "inc-1"},
    ]


@pytest.mark.parametrize("error", [GONE, REPLACED], ids=["gone", "replaced"])
async def test_a_job_that_cannot_be_touched_any_more_is_news(error: Exception) -> None:
    """The decision waits for its pods: it has to be made again."""
    api = FakeApi()
    api.next("patch", JOBS, error)
    with pytest.raises(type(error)):
        await group_recreate.touch_job(api, "ml", TOUCH)


# --- pods ------------------------------------------------------------------------------------------------------------


class Scene:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.clock = SetClock()
        self.teardown = PodTeardown(self.api, self.clock)

    async def delete(self, *names: str, grace_seconds: int | None = None) -> None:
        pods = tuple(PodRef(name, f"uid-{name}") for name in names)
        await self.teardown.delete_pods("ml", DeletePods(epoch=1, pods=pods, grace_seconds=grace_seconds))

    @property
    def asked(self) -> list[str]:
        return [request.name for request in self.api.requests]


async def test_each_delete_names_the_uid_of_its_pod_and_leaves_it_its_own_grace() -> None:
    scene = Scene()
    await scene.delete("a", "b")
    assert scene.api.requests == [
        Request("delete", PODS, "a", "ml", uid="uid-a"),
        Request("delete", PODS, "b", "ml", uid="uid-b"),
    ]


async def test_the_grace_of_the_policy_is_passed_on() -> None:
    scene = Scene()
    await scene.delete("a", grace_seconds=5)
    assert [request.grace_seconds for request in scene.api.requests] == [5]


@pytest.mark.parametrize("error", [GONE, ConflictError("another uid", status=409)], ids=["gone", "replaced"])
async def test_a_pod_that_is_gone_or_whose_name_is_anothers_is_success(error: Exception) -> None:
    scene = Scene()
    scene.api.next("delete", PODS, error)
    await scene.delete("a", "b")
    assert scene.asked == ["a", "b"]


async def test_every_pod_is_tried_and_the_first_error_is_raised_afterwards() -> None:
    scene = Scene()
    scene.api.next("delete", PODS, ForbiddenError("no", status=403), name="b")
    scene.api.next("delete", PODS, TryLaterError("later", status=429), name="c")
    with pytest.raises(ForbiddenError):
        await scene.delete("a", "b", "c", "d")
    assert scene.asked == ["a", "b", "c", "d"]


async def test_only_the_pods_that_could_not_be_asked_are_asked_again_at_once() -> None:
    scene = Scene()
    scene.api.next("delete", PODS, TryLaterError("later", status=429), name="b")
    with pytest.raises(TryLaterError):
        await scene.delete("a", "b", "c")
    await scene.delete("a", "b", "c")
    assert scene.asked == ["a", "b", "c", "b"]


async def test_a_pod_is_not_asked_twice_within_half_a_minute_and_is_asked_again_after_that() -> None:
    scene = Scene()
    await scene.delete("a")
    scene.clock.seconds = 29.9
    await scene.delete("a", "b")
    assert scene.asked == ["a", "b"]
    scene.clock.seconds = 30
    await scene.delete("a", "b")
    assert scene.asked == ["a", "b", "a"]


async def test_a_pod_that_took_the_name_of_one_that_was_asked_is_another_pod() -> None:
    scene = Scene()
    for uid in ("uid-1", "uid-2"):
        action = DeletePods(epoch=1, pods=(PodRef("a", uid),), grace_seconds=None)
        await scene.teardown.delete_pods("ml", action)
    assert [request.uid for request in scene.api.requests] == ["uid-1", "uid-2"]


async def test_no_pods_is_no_request() -> None:
    scene = Scene()
    await scene.delete()
    assert scene.asked == []
