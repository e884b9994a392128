"""A job is suspended by hand and resumed while its old pods still use their grace period. Nothing was lost."""

import asyncio

import pytest
import yaml

from recovery.ports import RECOVERY_INCIDENTS
from tests.cluster.acts import edit, exit_rank, running_pods, second_is_over, until_replaced, until_rounds
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import MakesRuntime, StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, workload_writes
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, ControllerProcess, Job, Object, apply, policy

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints")]

GRACE_SECONDS = 8
RESUMED_AFTER_SECONDS = 2.0
COUNT_FAILURES = {"rules": [{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
"""With any podFailurePolicy a Job replaces a pod only when it has failed (podReplacementPolicy Failed)."""


def slow_to_end() -> Object:
    """The prepared runtime, with a podFailurePolicy and pods that may take 8 s to end."""
    body = yaml.safe_load((REPOSITORY / "policies" / "runtime-prepared.yaml").read_text())
    spec: Object = body["spec"]
    [replicated] = spec["template"]["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    job["podFailurePolicy"] = COUNT_FAILURES
    job["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
    return spec


async def hangs(job: Job) -> None:
    """All ranks but the last one ignore SIGTERM from now on. No policy applies yet, so it is an earlier loss, once the
    rank runs again."""
    lost = await exit_rank(job, job.ranks - 1, 1)
    async with asyncio.timeout(GUARD_SECONDS):
        while lost in {pod["metadata"]["name"] for pod in await running_pods(job)}:
            await asyncio.sleep(0.1)
    await until_replaced(job)
    await second_is_over()


async def suspend_and_resume(job: Job) -> list[str]:
    """Returns the pods that are still going when the job is resumed."""
    await edit(job, {"spec": {"suspend": True}})
    await asyncio.sleep(RESUMED_AFTER_SECONDS)
    await edit(job, {"spec": {"suspend": False}})
    pods = [pod["metadata"] for pod in await job.pods()]
    return [pod["name"] for pod in pods if "deletionTimestamp" in pod]


async def runs_again(process: ControllerProcess, job: Job, old: list[str]) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        while set(old) & {pod["metadata"]["name"] for pod in await job.pods()}:
            await asyncio.sleep(0.1)
    await until_rounds(job, 2)
    await second_is_over()
    await has_reconciled(process, job)


@pytest.mark.parametrize("leaders", [1, 2], ids=["one leader", "the leader changes meanwhile"])
async def test_the_ends_of_the_old_pods_open_no_incident_in_the_run_that_began_meanwhile(
    installed: ControlPlane,
    namespace: str,
    training: StartsTraining,
    runtime: MakesRuntime,
    controller: StartsController,
    proxy: ApiProxy,
    leaders: int,
) -> None:
    job = await training(ranks=4, gpus=1, runtime=await runtime(slow_to_end()), with_policy=False)
    await hangs(job)
    await apply(installed, namespace, policy(teardown={"graceSeconds": 1}))
    async with controller() as process:
        await has_reconciled(process, job)
        old = await suspend_and_resume(job)
        if leaders == 1:
            await runs_again(process, job, old)
    if leaders == 2:
        async with controller() as process:
            await runs_again(process, job, old)

    assert len(old) == job.ranks - 1, "the hung ones"
    assert await job.items(RECOVERY_INCIDENTS) == await job.groups() == []
    assert workload_writes(proxy) == []
