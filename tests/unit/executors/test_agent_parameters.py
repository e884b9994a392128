"""A job is named in the parameters of the component once, and nothing else in them changes."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from recovery.core.plan.actions import LeaveOutAgent
from recovery.executors.agent_parameters import leave_out
from recovery.ports import (
    AGENT_PARAMETERS,
    CONFIG_MAPS,
    ApiRequest,
    ConflictError,
    ForbiddenError,
    PatchKind,
    ReadAgainError,
)
from recovery.sim.api.client import ModelClient
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.server import ApiServer
from recovery.sim.virtual_time import VirtualClock
from tests.unit.controller.fakes import LedgersApi

OWN = "recovery-system"
ACTION = LeaveOutAgent(epoch=1, namespace="ml", job_set="llm")
OTHERS = {"image": "agent@sha256:0", "url": "https://recovery-agent.recovery-system.svc:443"}


class Parameters:
    """A modelled API server with the ConfigMap. `data` None: it has none."""

    def __init__(self, data: dict[str, str] | None) -> None:
        self.server = ApiServer(core_kinds(), clock=VirtualClock(), entropy=Random(1))
        self.client = ModelClient(self.server, "controller")
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": AGENT_PARAMETERS}}
        self.server.create(CONFIG_MAPS, body if data is None else {**body, "data": data}, namespace=OWN)

    @property
    def data(self) -> dict[str, str]:
        return dict(self.server.get(CONFIG_MAPS, AGENT_PARAMETERS, namespace=OWN)["data"])

    @property
    def version(self) -> str:
        return str(self.server.get(CONFIG_MAPS, AGENT_PARAMETERS, namespace=OWN)["metadata"]["resourceVersion"])

    def becomes(self, **data: str) -> None:
        """Another client writes these keys."""
        self.server.patch(CONFIG_MAPS, AGENT_PARAMETERS, {"data": data}, kind=PatchKind.MERGE, namespace=OWN)


class Overtaken(ModelClient):
    """Another client is faster than each patch."""

    def __init__(self, parameters: Parameters, before: Callable[[], None]) -> None:
        super().__init__(parameters.server, "controller")
        self._before = before

    async def send(self, request: ApiRequest) -> bytes:
        if request.verb == "patch":
            self._before()
        return await super().send(request)


@pytest.mark.parametrize(
    ("known", "without"),
    [
        (None, "ml/llm\n"),
        ("", "ml/llm\n"),
        ("\n", "ml/llm\n"),
        ("other/llm", "other/llm\nml/llm\n"),
        ("other/llm\nml/llm-2\n", "other/llm\nml/llm-2\nml/llm\n"),
    ],
)
async def test_the_job_is_added_to_the_list(known: str | None, without: str) -> None:
    parameters = Parameters(OTHERS if known is None else {**OTHERS, "without": known})
    await leave_out(parameters.client, OWN, ACTION)
    assert parameters.data == {**OTHERS, "without": without}


async def test_parameters_without_any_key_get_this_one() -> None:
    parameters = Parameters(None)
    await leave_out(parameters.client, OWN, ACTION)
    assert parameters.data == {"without": "ml/llm\n"}


@pytest.mark.parametrize("known", ["ml/llm", "a/b\n  ml/llm  \nc/d\n"])
async def test_a_job_that_is_named_already_is_not_written_again(known: str) -> None:
    parameters = Parameters({"without": known})
    before = parameters.version
    await leave_out(parameters.client, OWN, ACTION)
    assert (parameters.version, parameters.data) == (before, {"without": known})


async def test_twice_is_once() -> None:
    parameters = Parameters(OTHERS)
    await leave_out(parameters.client, OWN, ACTION)
    await leave_out(parameters.client, OWN, ACTION)
    assert parameters.data["without"] == "ml/llm\n"


@pytest.mark.parametrize("known", [None, "x/y\n"])
async def test_a_list_that_another_client_has_just_changed_is_read_again(known: str | None) -> None:
    parameters = Parameters(OTHERS if known is None else {**OTHERS, "without": known})
    overtaken = Overtaken(parameters, lambda: parameters.becomes(without="other/job\n"))
    with pytest.raises(ReadAgainError):
        await leave_out(overtaken, OWN, ACTION)
    assert parameters.data["without"] == "other/job\n", "its line is not lost"
    await leave_out(parameters.client, OWN, ACTION)
    assert parameters.data["without"] == "other/job\nml/llm\n"


async def test_without_the_parameters_no_job_gets_the_agent_so_it_is_done() -> None:
    parameters = Parameters(OTHERS)
    parameters.server.delete(CONFIG_MAPS, AGENT_PARAMETERS, namespace=OWN)
    await leave_out(parameters.client, OWN, ACTION)
    assert list(parameters.server.objects(CONFIG_MAPS)) == []


@pytest.mark.parametrize("error", [ForbiddenError("no", status=403), ConflictError("changed", status=409)])
async def test_any_other_answer_is_the_callers(error: Exception) -> None:
    api = LedgersApi()
    api.objects[CONFIG_MAPS, AGENT_PARAMETERS] = {"metadata": {"resourceVersion": "7"}, "data": OTHERS}
    api.next("patch", CONFIG_MAPS, error)
    with pytest.raises(type(error)):
        await leave_out(api, OWN, ACTION)
    assert len(api.writes) == 1
