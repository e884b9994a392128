"""The demo's way to the API server: answers come back as they are, refusals as the production client's errors."""

import random
from contextlib import aclosing

import pytest

from recovery.kube.client import KubeApiClient
from recovery.ports import PODS, NotFoundError, RefusedError
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.pods import PodAdmission
from recovery.sim.api.server import ApiServer
from recovery.sim.demo.transport import DirectTransport
from recovery.sim.virtual_time import VirtualClock, virtual_time


def client_of_an_empty_server() -> KubeApiClient:
    clock, entropy = VirtualClock(), random.Random(1)
    server = ApiServer(core_kinds(PodAdmission()), clock=clock, entropy=entropy)
    return KubeApiClient(DirectTransport(server, "recovery"), clock=clock, entropy=entropy)


@virtual_time
async def test_what_is_not_there_is_not_found() -> None:
    client = client_of_an_empty_server()

    with pytest.raises(NotFoundError, match='pods "llm" not found'):
        await client.get(PODS, "llm", namespace="team-a")


@virtual_time
async def test_a_watch_from_what_is_no_revision_is_refused() -> None:
    client = client_of_an_empty_server()

    with pytest.raises(RefusedError):
        async with aclosing(client.watch(PODS, resource_version="new")) as lines:
            await anext(lines)
