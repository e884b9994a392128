"""One cluster of real nodes for the whole suite, in a network namespace of its own.

Where the machine cannot have such nodes, every test is skipped with the reason; in CI it fails.
"""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.cluster.controlplane.build import CONTROL_PLANE, REAL_NODES, Toolbox, provide
from tests.cluster.real_nodes.network import enter_network
from tests.cluster.real_nodes.preconditions import missing_preconditions
from tests.cluster.real_nodes.start import RealCluster
from tests.cluster.real_nodes.traces import Traces

NODES = 3


@pytest.fixture(scope="session")
def toolbox() -> Toolbox:
    """Everything is built, and fetched, before the network is left."""
    missing = missing_preconditions()
    if missing:
        message = "this machine cannot have real nodes:\n" + "\n".join(missing)
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return provide(tools=(*CONTROL_PLANE, *REAL_NODES))


@pytest.fixture(scope="session")
def network(toolbox: Toolbox) -> Iterator[None]:
    """The test run's own network. Nothing of the cluster is left when the suite ends."""
    enter_network()
    before = Traces.now()
    yield
    assert before.difference(Traces.now()) == []


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(toolbox: Toolbox, network: None) -> AsyncIterator[RealCluster]:
    async with RealCluster.start(nodes=NODES, toolbox=toolbox) as running:
        yield running


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--loops", type=int, default=5, help="how often a node is started and loses its power")
