"""Jobs that real Kueue evicts in a restart by the controller: for another job, and because the restart takes long."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.acts import until_rounds
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import recovery
from tests.cluster.controlplane.build import KUEUE, provide
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Job, Object, apply, train_job
from tests.cluster.stations import in_phase
from tests.cluster.test_kueue import GROUP, QUEUE, VERSION, condition, kueue_object, suspends, workload_of

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints", "queue")]
SCARCE, URGENT = "scarce", "urgent"
"""A ClusterQueue with room for one job of two GPUs, and the priority of a job that takes the room of another."""
RECOVERY_TIMEOUT = "40s"
"""Longer than a preemption takes on a slow machine, so that Kueue has one reason for each eviction."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kueue(installed: ControlPlane) -> AsyncIterator[None]:
    quota = {"name": SCARCE, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 2}]}
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [quota]}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    head = {"apiVersion": f"{GROUP}/{VERSION}", "metadata": {"name": URGENT}}
    priority: Object = {
        **head,
        "kind": "WorkloadPriorityClass",
        "value": 1000,
        "description": "takes the room of others",
    }
    async with installed.kueue(provide(tools=(KUEUE,)), recovery_timeout=RECOVERY_TIMEOUT):
        flavor = kueue_object("ResourceFlavor", SCARCE, {})
        await apply(installed, None, flavor, kueue_object("ClusterQueue", SCARCE, spec), priority)
        yield


@pytest_asyncio.fixture(loop_scope="session")
async def queue(installed: ControlPlane, namespace: str, kueue: None) -> None:
    await apply(installed, namespace, kueue_object("LocalQueue", QUEUE, {"clusterQueue": SCARCE}))


async def until_seen_ready(job: Job) -> None:
    """Wait until Kueue has seen all pods Ready. It reads the status of the TrainJob, which follows the pods by seconds.
    A pod lost before that is no interruption to Kueue: the job has not started, and `timeout` (5 min) applies."""
    async with asyncio.timeout(GUARD_SECONDS):
        while condition(await workload_of(job), "PodsReady").get("status") != "True":
            await asyncio.sleep(0.1)


async def until_evicted(job: Job, reason: str) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        while condition(await workload_of(job), "Evicted").get("reason") != reason:
            await asyncio.sleep(0.1)


async def closed_once_and_trains_again(job: Job, proxy: ApiProxy, rounds: int) -> None:
    """Its only incident was charged for its one restart, and Kueue, not the controller, started the job again."""
    await until_rounds(job, rounds + 1)
    [closed] = await job.closed_incidents(1)
    assert (closed["outcome"], closed["outcomeReason"]) == ("Superseded", "JobSuspended")
    ledger = await job.ledger()
    assert (ledger["epoch"], ledger["totals"]["incidents"], ledger["totals"]["charged"]) == (1, 1, 1)
    assert proxy.writes(suspends) == []
    assert job.fleet.world.trace.overlaps(job.training) == []


async def test_a_job_that_kueue_preempts_in_a_restart_is_left_to_it(
    installed: ControlPlane,
    fleet: Fleet,
    namespace: str,
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
) -> None:
    job, other = await training(ranks=2, gpus=1, queue=QUEUE), Job(installed, fleet, namespace, "urgent", 2)
    rounds = len(fleet.world.rounds(job.training))
    urgent = train_job(other.name, ranks=2, gpus=1, queue=QUEUE)
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = URGENT
    try:
        async with controller():
            async with in_phase("Starting", job, proxy):
                await apply(installed, namespace, urgent)
                await until_evicted(job, "Preempted")
                [closed] = await job.closed_incidents(1)
                assert "the TrainJob is suspended" in closed["message"]
                await other.trains()
            await other.remove()
            await closed_once_and_trains_again(job, proxy, rounds)
    finally:
        await other.remove()


async def test_a_restart_that_takes_longer_than_kueue_waits_is_ended_by_an_eviction(
    installed: ControlPlane, fleet: Fleet, training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await training(ranks=2, gpus=1, queue=QUEUE)
    await until_seen_ready(job)
    rounds = len(fleet.world.rounds(job.training))
    async with controller():
        async with in_phase("Starting", job, proxy):
            await until_evicted(job, "PodsReadyTimeout")
        # Kueue queues it again only 15 s later.
        told = ("-n", job.namespace, "-o", "json", "--kubeconfig", str(installed.kubeconfig))
        said = json.loads((await recovery("explain", job.name, *told)).out)["kueue"]
        [closed] = await job.closed_incidents(1)
        assert "the TrainJob is suspended" in closed["message"]
        await closed_once_and_trains_again(job, proxy, rounds)
    assert any("PodsReadyTimeout" in line for line in said), said
