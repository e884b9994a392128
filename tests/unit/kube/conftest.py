"""A server, a client for it, a clock that does not wait, and a store with one group."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recovery.kube.client import KubeApiClient
from recovery.kube.http import HttpTransport
from recovery.kube.session import open_session
from recovery.ports import JOB_SETS, JOBS, TRAIN_JOBS
from tests.unit.kube.server import Server, serving
from tests.unit.kube.store_world import ALL, World, job, load
from tests.unit.kube.testing import FakeClock, Middle, Observed
from tests.unit.patience import GUARD_SECONDS


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


@pytest.fixture
async def client(server: Server, clock: FakeClock, observed: Observed, tmp_path: Path) -> AsyncIterator[KubeApiClient]:
    async with open_session(kubeconfig=server.kubeconfig(tmp_path)) as session:
        yield KubeApiClient(
            HttpTransport(session, clock=clock, observer=observed, request_seconds_max=GUARD_SECONDS),
            clock=clock,
            entropy=Middle(),
        )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A synced store with the TrainJob llm, its JobSet, and its Job of two members."""
    world = World()
    running = asyncio.create_task(world.store.run())
    await world.tell(TRAIN_JOBS, load("trainjob"))
    await world.tell(JOB_SETS, load("jobset"))
    await world.tell(JOBS, job())
    await world.end_lists(*ALL)
    assert world.store.synced()
    yield world
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
