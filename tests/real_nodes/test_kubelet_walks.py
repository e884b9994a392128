"""The modelled kubelet behaves like a real one, with random pods and with some chosen ones.

A seed is eight pods that live and end side by side on one node. `make real-nodes ARGS="-k seed --pod-walks=60"` runs
more of them. `tests/real_nodes/walks/comparison.py` describes how the two kubelets are compared.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.real_nodes.start import RealCluster
from tests.real_nodes.walks.comparison import report
from tests.real_nodes.walks.draw import draw
from tests.real_nodes.walks.named import PODS
from tests.real_nodes.walks.worlds import Modelled, Walked, model, walk_on_nodes

pytestmark = pytest.mark.usefixtures("token_reader")

NAMED = "named"


@pytest.fixture(scope="module")
def modelled(request: pytest.FixtureRequest) -> dict[str, Modelled]:
    """All modelled walks of the session."""
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    seeds = [spec.params["pod_seed"] for spec in specs if spec is not None and "pod_seed" in spec.params]
    return model({f"seed {seed}": draw(seed) for seed in seeds} | {NAMED: PODS})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def walks(cluster: RealCluster, modelled: dict[str, Modelled]) -> AsyncIterator[dict[str, asyncio.Task[Walked]]]:
    """The walks on real nodes. As many run at once as there are nodes."""
    async with walk_on_nodes(cluster, modelled) as under_way:
        yield under_way


async def test_drawn_pods(pod_seed: int, walks: dict[str, asyncio.Task[Walked]]) -> None:
    name = f"seed {pod_seed}"
    _agree(name, await walks[name])


async def test_named_pods(walks: dict[str, asyncio.Task[Walked]]) -> None:
    _agree(NAMED, await walks[NAMED])


def _agree(name: str, walked: Walked) -> None:
    told = report(name, walked.plans, walked.real, walked.model)
    assert not told, told
