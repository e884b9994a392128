"""`ttlSecondsAfterFinished` on the real control plane: Trainer begins a failed job again, unless FailJob failed it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from recovery.ports import JOB_SETS
from tests.cluster.acts import edit, exit_rank, lose
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Job, Object, apply

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints")]
RUNTIME = "expires-soon"
TTL_SECONDS = 2
LONGER_SECONDS = 8.0
"""Much longer than the TTL. JobSet deletes an expired JobSet within a moment."""
FAIL_ON_42 = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
CONFIG: Object = {
    "apiVersion": "recovery.trainjob.dev/v1alpha1",
    "kind": "RecoveryConfig",
    "metadata": {"name": "default"},
    "spec": {"allow": {"failJob": True}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def expires(installed: ControlPlane) -> AsyncIterator[str]:
    """The prepared runtime with a TTL. Its Job fails for good by exit code 42."""
    body: dict[str, Any] = yaml.safe_load((REPOSITORY / "policies" / "runtime-prepared.yaml").read_text())
    body["metadata"]["name"] = RUNTIME
    jobset = body["spec"]["template"]["spec"]
    jobset["ttlSecondsAfterFinished"] = TTL_SECONDS
    [replicated] = jobset["replicatedJobs"]
    replicated["template"]["spec"]["podFailurePolicy"] = FAIL_ON_42
    replicated["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    await apply(installed, None, body)
    yield RUNTIME
    await installed.kubectl("delete", "clustertrainingruntime", RUNTIME, "--wait=false")


async def jobset_of(job: Job) -> Object:
    [found] = await job.items(JOB_SETS)
    return found


async def test_a_job_that_fail_job_fails_stays_failed(
    installed: ControlPlane, training: StartsTraining, controller: StartsController, expires: str
) -> None:
    job = await training(runtime=expires, ranks=2, gpus=1, budget={"limit": 0, "onExhausted": "FailJob"})
    made = await jobset_of(job)
    assert made["spec"]["ttlSecondsAfterFinished"] == TTL_SECONDS
    await apply(installed, None, CONFIG)
    try:
        async with controller():
            await lose(job, 1)
            [closed] = await job.closed_incidents(1)
            assert (closed["outcome"], closed["outcomeReason"]) == ("Failed", "BudgetExhausted")
            await asyncio.sleep(LONGER_SECONDS)
            left = await jobset_of(job)
            assert left["metadata"]["uid"] == made["metadata"]["uid"]
            assert "deletionTimestamp" not in left["metadata"]
            assert "ttlSecondsAfterFinished" not in left["spec"]
            assert left["status"]["terminalState"] == "Failed"
            conditions = (await job.get("trainjob", job.name))["status"]["conditions"]
            assert [each["status"] for each in conditions if each["type"] == "Failed"] == ["True"]
            assert await job.pods() == []
    finally:
        await installed.kubectl("delete", "recoveryconfig", "default", "--ignore-not-found")


async def test_a_job_that_the_platform_fails_trains_again_and_that_is_said(
    training: StartsTraining, controller: StartsController, expires: str
) -> None:
    job = await training(runtime=expires, ranks=2, gpus=1)
    made = await jobset_of(job)
    async with controller():
        await exit_rank(job, 1, 42)
        [closed] = await job.closed_incidents(1)
        assert closed["outcome"] == "Failed"
        found: list[Object] = []
        async with asyncio.timeout(GUARD_SECONDS):
            while not found:
                await asyncio.sleep(0.2)
                conditions = (await job.ledger())["conditions"]
                found = [each for each in conditions if (each["type"], each["status"]) == ("TrainsAgain", "True")]
        assert (await jobset_of(job))["metadata"]["uid"] != made["metadata"]["uid"]
        assert f"by its ttlSecondsAfterFinished ({TTL_SECONDS})" in found[0]["message"]
        assert (await job.ledger())["totals"]["incidents"] == 1
        await edit(job, {"spec": {"suspend": True}})
