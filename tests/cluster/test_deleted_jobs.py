"""A client deletes the Job of a training, or its JobSet. What created them creates them again, and that is recorded."""

import pytest

from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, workload_writes
from tests.cluster.scene import Job, Object

pytestmark = pytest.mark.usefixtures("no_complaints")


async def recovered(job: Job, proxy: ApiProxy) -> Object:
    """The job's one incident, which the platform has handled."""
    [closed] = await job.closed_incidents(1)
    assert (closed["outcome"], closed["outcomeReason"]) == ("Recovered", "AllRanksReady")
    assert (closed["class"], closed["cause"]) == ("PodDeleted", "JobDeleted")
    assert closed["idleGpuSeconds"] > 0
    ledger = await job.ledger()
    assert ledger["budget"]["remaining"] == ledger["budget"]["limit"], "it is not charged"
    assert ledger["epoch"] == 1
    assert workload_writes(proxy) == []
    return closed


@pytest.mark.central
async def test_a_user_deletes_the_child_job(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1)
    async with controller():
        uid = await job.child_uid()
        step = job.fleet.world.step_of(job.training)
        await job.control_plane.kubectl("delete", "job", job.child, "-n", job.namespace, "--wait=false")
        closed = await recovered(job, proxy)
        assert closed["message"].startswith(f"Job {job.child} was deleted; JobSet creates it again")
        assert await job.child_uid() != uid
        await job.trains(past=step)


@pytest.mark.central
async def test_a_user_deletes_the_jobset(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1)
    async with controller():
        step = job.fleet.world.step_of(job.training)
        await job.control_plane.kubectl("delete", "jobset", job.name, "-n", job.namespace, "--wait=false")
        closed = await recovered(job, proxy)
        assert closed["message"].startswith(f"Job {job.child} was deleted with its JobSet")
        await job.trains(past=step)


async def test_pods_that_a_deletion_leaves_behind_are_named(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """They hold their GPUs until a person deletes them. The next Job has other pods."""
    job = await training(ranks=2, gpus=1)
    async with controller():
        before = [pod["metadata"]["name"] for pod in await job.pods()]
        await job.control_plane.kubectl("delete", "job", job.child, "-n", job.namespace, "--cascade=orphan")
        closed = await recovered(job, proxy)
        assert f"Job {job.child} was deleted" in closed["message"]
        [left] = [each for each in (await job.ledger())["conditions"] if each["type"] == "OrphanedPods"]
        assert left["status"] == "True"
        assert "and 1 more still hold 2 GPUs" in left["message"]
        assert any(name in left["message"] for name in before)
        assert set(before) <= {pod["metadata"]["name"] for pod in await job.pods()}


async def test_a_jobset_that_leaves_its_jobs_behind_takes_no_rank_away(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """Trainer creates the JobSet again, which cannot create Jobs of the same names. The ranks train on."""
    job = await training(ranks=2, gpus=1)
    async with controller() as process:
        uid = await job.child_uid()
        await job.control_plane.kubectl("delete", "jobset", job.name, "-n", job.namespace, "--cascade=orphan")
        step = job.fleet.world.step_of(job.training)
        await has_reconciled(process, job)
        await job.trains(past=step + 2)
        assert await job.child_uid() == uid
        assert await job.ledger() == {}
        assert workload_writes(proxy) == []
