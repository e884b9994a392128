"""A training whose Job is created with another size has that world size, and continues from its checkpoint."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import JOBS, PODS, RECOVERY_GROUPS, TRAIN_JOBS, PatchKind, Propagation
from recovery.sim.api.kinds.kind import Body
from recovery.sim.cluster import ClusterSettings, EmbeddedCluster
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.runtimes import shipped_runtime
from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.contract.bodies import TRAINING_RUNTIMES, train_job

NAMESPACE, NAME = "ml", "ml/llm"
REFERENCE = {"kind": "TrainJob", "name": "llm", "uid": "0b5e1a52-7f0a-4a5c-9d6e-000000000001"}


@asynccontextmanager
async def trains(*, installed: bool = True) -> AsyncIterator[EmbeddedCluster]:
    """A TrainJob of four nodes that has made its first checkpoint."""
    nodes = [NodeSpec(name=f"n{number}", gpus=1) for number in range(4)]
    training = TrainingSettings(step_seconds=0.1, checkpoint_every_steps=10, nccl_timeout_seconds=1e6)
    settings = ClusterSettings(birth_settings=installed)
    cluster = EmbeddedCluster(
        clock=VirtualClock(), entropy=random.Random(1), nodes=nodes, training=training, settings=settings
    )
    async with cluster.running():
        await cluster.kubelets.nodes_ready()
        cluster.server.create(TRAINING_RUNTIMES, shipped_runtime())
        cluster.server.create(TRAIN_JOBS, train_job("llm", 4), namespace=NAMESPACE)
        await asyncio.sleep(60)
        assert [formed.size for formed in cluster.world.rounds(NAME)] == [4]
        yield cluster


def enter(cluster: EmbeddedCluster, **settings: object) -> None:
    labels = {"recovery.trainjob.dev/birth-settings": "true"}
    body: Body = {"metadata": {"name": "llm", "labels": labels}, "spec": {"workloadRef": REFERENCE, "group": "llm"}}
    cluster.server.create(RECOVERY_GROUPS, body, namespace=NAMESPACE)
    job = cluster.server.get(JOBS, "llm-node-0", namespace=NAMESPACE)
    about = {
        "revision": 1,
        "jobSetUID": job["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"],
        "replicatedJob": "node",
        "since": "2026-11-21T12:00:00Z",
    }
    status = {"status": {"schemaVersion": SCHEMA_VERSION, "birthSettings": {**about, **settings}}}
    kind = PatchKind.MERGE
    cluster.server.patch(RECOVERY_GROUPS, "llm", status, kind=kind, namespace=NAMESPACE, subresource="status")


async def restart(cluster: EmbeddedCluster) -> None:
    cluster.server.delete(JOBS, "llm-node-0", namespace=NAMESPACE, propagation=Propagation.FOREGROUND)
    await asyncio.sleep(120)


@virtual_time
async def test_a_job_born_with_three_nodes_trains_with_three_from_the_checkpoint_on() -> None:
    async with trains() as cluster:
        enter(cluster, nodes=3)
        await asyncio.sleep(1)
        await restart(cluster)
        first, second = cluster.world.rounds(NAME)
        assert (first.size, second.size) == (4, 3)
        assert second.from_step > 0
        assert second.ended_at is None


@virtual_time
async def test_without_the_policy_it_comes_back_whole() -> None:
    async with trains(installed=False) as cluster:
        enter(cluster, nodes=3)
        await asyncio.sleep(1)
        await restart(cluster)
        assert [formed.size for formed in cluster.world.rounds(NAME)] == [4, 4]


@virtual_time
async def test_a_host_that_is_avoided_is_left_for_others_even_if_the_group_waits_for_it() -> None:
    async with trains() as cluster:
        enter(cluster, avoidHosts=["n2"])
        await asyncio.sleep(1)
        await restart(cluster)
        pods = cluster.server.objects(PODS, NAMESPACE)
        assert {pod["spec"].get("nodeName", "") for pod in pods} == {"n0", "n1", "n3", ""}
