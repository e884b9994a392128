"""Our suspension: one write sets it and names it, only that name ends it, and a user always wins."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from recovery.core.model.facts import WorkloadFacts
from recovery.core.plan.actions import ResumeWorkload, SuspendWorkload
from recovery.executors import suspension
from recovery.ports import (
    JOB_SETS,
    TRAIN_JOBS,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    PatchKind,
    ReadAgainError,
    Resource,
    TestFailedError,
    UnknownOutcomeError,
)
from tests.unit.controller.fakes import LedgersApi
from tests.unit.core.groups import training

BY, AT = "recovery.trainjob.dev/suspended-by", "recovery.trainjob.dev/resume-at"
BY_PATH = "/metadata/annotations/recovery.trainjob.dev~1suspended-by"
AT_PATH = "/metadata/annotations/recovery.trainjob.dev~1resume-at"
OURS = {BY: "inc-1", AT: "never"}
UNTIL = datetime(2026, 11, 21, 12, 0, 20, 500, tzinfo=UTC)
SUSPEND = SuspendWorkload(epoch=1, incident_id="inc-1", workload_uid="uid-1", resume_at=UNTIL)
RESUME = ResumeWorkload(workload_uid="uid-1", suspended_by="inc-1", suspended=True)


def workload(kind: str = "TrainJob") -> WorkloadFacts:
    found = training(1).workload
    assert found is not None
    return msgspec.structs.replace(found, uid="uid-1", kind=kind)


def server(
    *, annotations: dict[str, str] | None = None, resource: Resource = TRAIN_JOBS, uid: str = "uid-1", **spec: Any
) -> LedgersApi:
    api = LedgersApi()
    metadata: dict[str, Any] = {"uid": uid, "resourceVersion": "7"}
    if annotations is not None:
        metadata["annotations"] = annotations
    api.objects[resource, "train"] = {"metadata": metadata, "spec": spec}
    return api


# --- suspend ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "resource"), [("TrainJob", TRAIN_JOBS), ("JobSet", JOB_SETS)])
@pytest.mark.parametrize("spec", [{}, {"suspend": False}, {"suspend": None}], ids=str)
async def test_suspension_and_annotations_are_one_write_tied_to_what_was_read(
    kind: str, resource: Resource, spec: dict[str, Any]
) -> None:
    api = server(resource=resource, **spec)
    await suspension.suspend(api, "ml", workload(kind), SUSPEND)
    (request,) = api.writes
    assert (request.resource, request.name, request.namespace, request.kind) == (
        resource,
        "train",
        "ml",
        PatchKind.JSON,
    )
    assert request.body == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/annotations", "value": {BY: "inc-1", AT: "2026-11-21T12:00:20Z"}},
        {"op": "add", "path": "/spec/suspend", "value": True},
    ]


async def test_annotations_of_others_stay() -> None:
    api = server(annotations={"team": "ml"})
    await suspension.suspend(api, "ml", workload(), SUSPEND)
    assert api.writes[0].body[2:4] == [
        {"op": "add", "path": BY_PATH, "value": "inc-1"},
        {"op": "add", "path": AT_PATH, "value": "2026-11-21T12:00:20Z"},
    ]


async def test_where_no_time_is_known_it_says_never() -> None:
    api = server()
    await suspension.suspend(api, "ml", workload(), msgspec.structs.replace(SUSPEND, resume_at=None))
    assert api.writes[0].body[2]["value"] == OURS


async def test_one_that_this_incident_has_suspended_already_is_success() -> None:
    api = server(annotations=OURS, suspend=True)
    await suspension.suspend(api, "ml", workload(), SUSPEND)
    assert api.writes == []


@pytest.mark.parametrize(
    ("annotations", "suspend", "says"),
    [
        (None, True, "was suspended by others"),
        ({BY: "inc-0"}, True, "suspended-by: inc-0 already, and is still suspended"),
        (OURS, False, "suspended-by: inc-1 already, and is resumed in between"),
    ],
    ids=["suspended by a user", "of another incident", "resumed by a user"],
)
async def test_what_someone_else_has_done_is_left_as_it_is(
    annotations: dict[str, str] | None, suspend: bool, says: str
) -> None:
    api = server(annotations=annotations, suspend=suspend)
    with pytest.raises(ReadAgainError, match=says):
        await suspension.suspend(api, "ml", workload(), SUSPEND)
    assert api.writes == []


async def test_another_workload_of_that_name_is_not_suspended() -> None:
    api = server(uid="uid-2")
    with pytest.raises(TestFailedError, match="TrainJob ml/train is another one by now: uid uid-2"):
        await suspension.suspend(api, "ml", workload(), SUSPEND)
    assert api.writes == []


async def test_a_workload_that_is_gone_is_news() -> None:
    with pytest.raises(NotFoundError):
        await suspension.suspend(LedgersApi(), "ml", workload(), SUSPEND)


@pytest.mark.parametrize(
    "error", [ConflictError("changed", status=409), UnknownOutcomeError("lost"), ForbiddenError("no", status=403)]
)
async def test_a_refused_suspension_is_the_callers_and_nothing_is_repeated(error: Exception) -> None:
    api = server()
    api.next("patch", TRAIN_JOBS, error)
    with pytest.raises(type(error)):
        await suspension.suspend(api, "ml", workload(), SUSPEND)
    assert len(api.writes) == 1


# --- resume ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "resource"), [("TrainJob", TRAIN_JOBS), ("JobSet", JOB_SETS)])
async def test_it_is_resumed_only_while_it_carries_our_name(kind: str, resource: Resource) -> None:
    api = LedgersApi()
    await suspension.resume(api, "ml", workload(kind), RESUME)
    (request,) = api.writes
    assert (request.resource, request.name, request.kind) == (resource, "train", PatchKind.JSON)
    assert request.body == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "test", "path": BY_PATH, "value": "inc-1"},
        {"op": "remove", "path": BY_PATH},
        {"op": "add", "path": AT_PATH, "value": ""},
        {"op": "remove", "path": AT_PATH},
        {"op": "add", "path": "/spec/suspend", "value": False},
    ]


async def test_a_suspension_with_another_end_is_another_suspension_of_the_same_incident() -> None:
    api = LedgersApi()
    until = "2026-11-21T10:00:00Z"
    await suspension.resume(api, "ml", workload(), msgspec.structs.replace(RESUME, resume_at=until))
    tests = [(each["path"], each["value"]) for each in api.writes[0].body if each["op"] == "test"]
    assert tests == [("/metadata/uid", "uid-1"), (BY_PATH, "inc-1"), (AT_PATH, until)]


async def test_of_one_that_a_user_has_resumed_only_the_annotations_go() -> None:
    api = LedgersApi()
    await suspension.resume(api, "ml", workload(), msgspec.structs.replace(RESUME, suspended=False))
    assert {operation["path"] for operation in api.writes[0].body} == {"/metadata/uid", BY_PATH, AT_PATH}


async def test_a_workload_that_is_gone_needs_no_resuming() -> None:
    api = LedgersApi()
    api.next("patch", TRAIN_JOBS, NotFoundError("not found", status=404))
    await suspension.resume(api, "ml", workload(), RESUME)
    assert [str(request) for request in api.writes] == ["patch TrainJob"]


async def test_one_that_someone_has_taken_over_is_news() -> None:
    api = LedgersApi()
    api.next("patch", TRAIN_JOBS, TestFailedError("the annotation is gone", status=422))
    with pytest.raises(TestFailedError):
        await suspension.resume(api, "ml", workload(), RESUME)
