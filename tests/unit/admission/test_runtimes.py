"""The runtime of a TrainJob is read when the job is judged. A slow read is not waited for."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from recovery.admission import runtimes
from recovery.admission.runtimes import Runtimes
from recovery.ports import ApiRequest
from tests.unit.admission.api import PolicyApi, StillClock
from tests.unit.fake_api import Object

RUNTIME = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "torch"}, "spec": {"mlPolicy": {}}}
JOB: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "llm", "namespace": "team"},
    "spec": {"runtimeRef": {"name": "torch"}},
}


class SilentApi(PolicyApi):
    async def answer(self, request: ApiRequest) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def of_job(api: PolicyApi) -> tuple[Any, list[str]]:
    """The runtime that is read, and the log lines."""
    with capture_logs() as lines:
        found = await Runtimes(api, StillClock()).of(JOB, "team")
    return found, [line["event"] for line in lines]


async def test_it_is_read_by_its_name() -> None:
    found, said = await of_job(PolicyApi(RUNTIME))
    assert (found["spec"], said) == ({"mlPolicy": {}}, [])


async def test_one_that_is_not_there_is_trainers_to_tell() -> None:
    assert await of_job(PolicyApi()) == (None, [])


async def test_one_that_may_not_be_read_or_does_not_come_in_time_is_said_and_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtimes, "READ_SECONDS_MAX", 0.01)
    refusing = PolicyApi(RUNTIME)
    refusing.forbidden.add(("clustertrainingruntimes", "", "torch"))
    for api in (refusing, SilentApi()):
        found, [said] = await of_job(api)
        assert found is None
        assert "what depends on it is not judged" in said


THEIRS: Object = {"kind": "TrainingRuntime", "metadata": {"name": "torch", "namespace": "victim"}, "spec": {}}


def of_a_namespace(name: str) -> Object:
    """A job that refers to a TrainingRuntime and has this namespace in its metadata."""
    reference = {"name": "torch", "kind": "TrainingRuntime"}
    return {**JOB, "metadata": {"name": "llm", "namespace": name}, "spec": {"runtimeRef": reference}}


@pytest.mark.parametrize(("namespace", "found"), [("victim", True), ("team", False), ("", False)])
async def test_it_is_read_from_the_namespace_of_the_request_and_never_from_one_that_the_object_names(
    namespace: str, found: bool
) -> None:
    api = PolicyApi(THEIRS)
    read = await Runtimes(api, StillClock()).of(of_a_namespace("victim"), namespace)
    assert (read is not None) is found
    assert {request.namespace for request in api.requests} <= {namespace}


async def test_reads_have_a_rate_and_above_it_nothing_is_known_and_that_is_said_once() -> None:
    api, clock = PolicyApi(RUNTIME), StillClock()
    read = Runtimes(api, clock)
    at_once = int(runtimes.READS_PER_SECOND_MAX)
    with capture_logs() as lines:
        found = [await read.of(JOB, "team") for _ in range(at_once + 5)]
    assert [each is not None for each in found] == [True] * at_once + [False] * 5
    assert [line["event"] for line in lines] == [
        "too many TrainJobs at once: what depends on their runtimes is not judged"
    ]
    clock.time += timedelta(seconds=1)
    assert await read.of(JOB, "team") is not None
    assert len(api.requests) == at_once + 1
