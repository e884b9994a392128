"""Three real ranks on three nodes. One node is lost: two ranks resume from a checkpoint, and three when it is back."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cluster.elastic import add_component, remove_component
from tests.cluster.scene import apply, policy
from tests.real_nodes.conftest import RANKS
from tests.real_nodes.installation import Installation
from tests.real_nodes.test_trainings import TELLING_STEPS, assert_same_curve
from tests.real_nodes.trainings import EVERY, PREPARED, Training
from tests.real_nodes.unbroken import Unbroken

pytestmark = pytest.mark.torch

ALL_GPUS = 8
"""All GPUs of a node, so that each rank has a node to itself."""
ELASTIC = {"minNodes": 2, "maxNodes": RANKS, "shrinkAfter": "10s", "growBackAfter": "10s"}


@pytest_asyncio.fixture(loop_scope="session")
async def spread(installation: Installation, tmp_path: Path) -> AsyncIterator[Training]:
    """A rank on each node, under an elastic policy, with the admission policy that gives new Jobs their size."""
    cluster = installation.cluster
    kubectl = cluster.control_plane.kubectl
    await add_component(cluster.control_plane)
    namespace = f"training-{secrets.token_hex(3)}"
    await kubectl("create", "namespace", namespace)
    await apply(cluster.control_plane, namespace, policy(elastic=ELASTIC))
    job = Training(cluster, namespace, tmp_path / "checkpoints", RANKS, PREPARED, gpus=ALL_GPUS, dropout=0.0)
    await job.start()
    await job.trains(starts=1, past=EVERY)
    yield job
    await job.remove()
    await kubectl("delete", "namespace", namespace, "--wait=false")
    await remove_component(cluster.control_plane)


async def trains_as(training: Training, ranks: int, *, starts: int, past: int) -> None:
    await training.trains(starts=starts, past=past)
    await training.trains(starts=starts, past=training.resumed_at() + TELLING_STEPS)
    assert len(await training.pods()) == ranks


async def test_a_lost_node_makes_the_group_smaller_and_its_return_whole_again(spread: Training, tmp_path: Path) -> None:
    node = await spread.node_of_rank(1)
    before = spread.step()
    node.lose_power()
    try:
        await spread.cluster.not_ready(node)
        await spread.cluster.control_plane.kubectl("delete", "node", node.name)
        await trains_as(spread, RANKS - 1, starts=2, past=before)
        await spread.closed_incidents(1)
        assert (await spread.ledger())["elastic"]["nodes"] == RANKS - 1
    finally:
        node.start()
        await spread.cluster.ready(node)
    await trains_as(spread, RANKS, starts=3, past=spread.step())
    [growth, loss] = await spread.closed_incidents(2)
    assert (loss["outcome"], growth["outcome"], growth["class"]) == ("Recovered", "Recovered", "Growth")
    assert "elastic" not in await spread.ledger()
    await assert_same_curve(spread, Unbroken(tmp_path / "unbroken", RANKS, dropout=0.0))
