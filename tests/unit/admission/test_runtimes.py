"""The runtime of a TrainJob is read when the job is judged, and not waited for."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from recovery.admission import runtimes
from recovery.admission.runtimes import Runtimes
from recovery.ports import ApiRequest
from tests.unit.admission.api import PolicyApi
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
    """What is read, and what is logged."""
    with capture_logs() as lines:
        found = await Runtimes(api).of(JOB)
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
