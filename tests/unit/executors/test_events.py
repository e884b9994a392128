"""Events are about the workload, and their names make a repeat recognisable."""

import msgspec
import pytest

from recovery.core.model.facts import WorkloadFacts
from recovery.core.plan.actions import EmitEvent
from recovery.executors import events
from recovery.ports import EVENTS, AlreadyExistsError, ForbiddenError
from tests.unit.controller.fakes import LedgersApi, SetClock
from tests.unit.core.groups import training

NEWS = EmitEvent(key="0d2f5c9e-1.attempt-1", warning=True, reason="RecreatingGroup", note="rank 2 was deleted")


def workload() -> WorkloadFacts:
    found = training(1).workload
    assert found is not None
    return found


async def test_an_event_stands_on_the_train_job_and_says_the_sentence() -> None:
    api = LedgersApi()
    await events.emit(api, "ml", workload(), NEWS, SetClock(1.5).now())
    (request,) = api.writes
    assert (request.resource, request.namespace) == (EVENTS, "ml")
    body = request.body
    assert body["metadata"] == {"name": "train.0d2f5c9e-1.attempt-1", "namespace": "ml"}
    assert body["involvedObject"] == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "namespace": "ml",
        "name": "train",
        "uid": workload().uid,
    }
    assert (body["type"], body["reason"], body["message"]) == ("Warning", "RecreatingGroup", "rank 2 was deleted")
    assert body["firstTimestamp"] == body["lastTimestamp"] == "2026-11-21T12:00:01Z"


async def test_an_event_about_a_bare_jobset_stands_on_the_jobset() -> None:
    api = LedgersApi()
    await events.emit(api, "ml", msgspec.structs.replace(workload(), kind="JobSet"), NEWS, SetClock().now())
    involved = api.writes[0].body["involvedObject"]
    assert (involved["apiVersion"], involved["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")


async def test_the_name_follows_from_the_change_and_not_from_the_time() -> None:
    api = LedgersApi()
    other = msgspec.structs.replace(NEWS, key="0d2f5c9e-1.closed", warning=False)
    for news, seconds in ((NEWS, 1), (NEWS, 600), (other, 600)):
        await events.emit(api, "ml", workload(), news, SetClock(seconds).now())
    names = [request.name for request in api.writes]
    assert names[0] == names[1] != names[2]
    assert [request.body["type"] for request in api.writes] == ["Warning", "Warning", "Normal"]


async def test_the_longest_name_of_a_job_still_makes_a_name() -> None:
    api = LedgersApi()
    await events.emit(api, "ml", msgspec.structs.replace(workload(), name="x" * 253), NEWS, SetClock().now())
    assert len(api.writes[0].name) <= 253
    assert api.writes[0].body["involvedObject"]["name"] == "x" * 253


async def test_an_event_that_exists_already_is_this_one() -> None:
    api = LedgersApi()
    api.next("create", EVENTS, AlreadyExistsError("it exists", status=409))
    await events.emit(api, "ml", workload(), NEWS, SetClock().now())
    assert [str(request) for request in api.writes] == ["create Event"]


async def test_any_other_answer_is_the_callers() -> None:
    api = LedgersApi()
    api.next("create", EVENTS, ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        await events.emit(api, "ml", workload(), NEWS, SetClock().now())
