"""A server, a client for it, and a clock that does not wait."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recovery.kube.client import KubeApiClient
from recovery.kube.session import open_session
from tests.unit.kube.server import Server, serving
from tests.unit.kube.testing import FakeClock, Middle, Observed


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
        yield KubeApiClient(session, clock=clock, entropy=Middle(), observer=observed, request_seconds_max=2.0)
