"""One cluster of real nodes for the whole suite, in a separate network namespace.

If the machine cannot run such nodes, every test is skipped with the reason; in CI it fails.
"""

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.cluster.controlplane.build import CONTROL_PLANE, PROMETHEUS, REAL_NODES, Toolbox, provide
from tests.cluster.real_nodes.network import enter_network
from tests.cluster.real_nodes.preconditions import missing_preconditions
from tests.cluster.real_nodes.start import RealCluster
from tests.cluster.real_nodes.traces import Traces
from tests.cluster.scene import apply, policy
from tests.image import agent
from tests.image.build import provide_image
from tests.real_nodes import figures
from tests.real_nodes.installation import Installation
from tests.real_nodes.token_reader import TokenReader
from tests.real_nodes.trainings import EVERY, PREPARED, Training
from tests.real_nodes.unbroken import Unbroken

NODES = 3
RANKS = 3
POD_WALKS = 8
"""With the named pods these are three rounds on three nodes. Each round takes about 22 s."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A token lives for at least ten minutes. Tests that end no kubelet and no node run first, while the token grows
    old. The test that waits for its expiry follows."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if "token_reader" not in getattr(item, "fixturenames", ()):
        return 2
    return 1 if item.path.name == "test_token_rotation.py" else 0


@pytest.fixture(scope="session")
def toolbox() -> Toolbox:
    """Everything is built and downloaded before the tests leave the machine's network."""
    missing = missing_preconditions()
    if missing:
        message = "this machine cannot have real nodes:\n" + "\n".join(missing)
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return provide(tools=(*CONTROL_PLANE, *REAL_NODES, PROMETHEUS))


@pytest.fixture(scope="session")
def image(toolbox: Toolbox) -> Path:
    """The controller's image, as an archive."""
    return provide_image()


@pytest.fixture(scope="session")
def agent_image() -> str:
    """The reference of the agent's image, with its digest. The archive lies where `make agent-image` writes it."""
    return agent.build()


@pytest.fixture(scope="session")
def network(toolbox: Toolbox, image: Path) -> Iterator[None]:
    """The network of the test run. Nothing of the cluster is left when the suite ends."""
    enter_network()
    before = Traces.now()
    yield
    assert before.difference(Traces.now()) == []


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(toolbox: Toolbox, image: Path, agent_image: str, network: None) -> AsyncIterator[RealCluster]:
    async with RealCluster.start(nodes=NODES, archives=(image, agent.ARCHIVE), toolbox=toolbox) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installation(cluster: RealCluster, agent_image: str) -> Installation:
    """The shipped manifests: two replicas on two of the nodes."""
    made = Installation(cluster, agent_image)
    await made.apply()
    return made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def token_reader(installation: Installation) -> TokenReader:
    """Its token grows old during the tests that use this fixture. None of them may end a kubelet or a node."""
    reader = TokenReader(installation.cluster)
    await reader.start()
    return reader


@pytest.fixture(scope="session")
def unbroken(network: None, tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    return Unbroken(tmp_path_factory.mktemp("unbroken"), RANKS)


@pytest.fixture(scope="session")
def measured_trainings() -> list[dict[str, Any]]:
    """Figures of the trainings, in the order of the tests."""
    return []


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def measured_replicas(installation: Installation) -> list[dict[str, Any]]:
    return [await figures.of_replica(installation, pod) for pod in await installation.pods()]


@pytest_asyncio.fixture(loop_scope="session")
async def training(
    installation: Installation,
    measured_trainings: list[dict[str, Any]],
    measured_replicas: list[dict[str, Any]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Training]:
    """Three ranks that train under a policy in mode Enforce. `indirect`: the name of the runtime."""
    cluster = installation.cluster
    namespace = f"training-{secrets.token_hex(3)}"
    await cluster.control_plane.kubectl("create", "namespace", namespace)
    await apply(cluster.control_plane, namespace, policy())
    job = Training(cluster, namespace, tmp_path / "checkpoints", RANKS, getattr(request, "param", PREPARED))
    await job.start()
    await job.trains(starts=1, past=EVERY)
    yield job
    if job.starts() > 1:
        measured_trainings.append(await figures.of_training(request.node.name, job))
        figures.keep({"trainings": measured_trainings, "replicas": measured_replicas})
    await job.remove()
    await cluster.control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--loops", type=int, default=5, help="how often a node is started and loses its power")
    parser.addoption("--kills", type=int, default=2, help="how often a training loses a worker in test_agent")
    parser.addoption("--pod-walks", type=int, default=POD_WALKS, help="how many; seeds are counted from 0")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "pod_seed" in metafunc.fixturenames:
        seeds = range(metafunc.config.getoption("--pod-walks"))
        metafunc.parametrize("pod_seed", seeds, ids="seed-{}".format)
