"""`recovery report` on a real control plane: for an incident, for a job that is gone, and for the fleet."""

import asyncio
import json

import pytest

from recovery.ports import TRAIN_JOBS
from tests.cluster.acts import exit_rank
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import recovery
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Job

pytestmark = pytest.mark.usefixtures("no_complaints")


async def report_of(job: Job, *arguments: str) -> str:
    """The report as printed. stderr must be empty."""
    kubeconfig = str(job.control_plane.kubeconfig)
    ended = await recovery("report", *arguments, "-n", job.namespace, "--kubeconfig", kubeconfig)
    assert (ended.exit_code, ended.err) == (0, "")
    return ended.out


async def is_gone(job: Job) -> None:
    """Remove the TrainJob, and wait until its ledger is garbage-collected."""
    await job.remove()
    async with asyncio.timeout(GUARD_SECONDS):
        while await job.items(TRAIN_JOBS) or await job.groups():
            await asyncio.sleep(0.1)


async def test_a_report_tells_all_of_an_incident_when_its_job_is_gone(
    training: StartsTraining, controller: StartsController
) -> None:
    job = await training(runtime="torch-recoverable")
    async with controller():
        victim = await job.pod_of_rank(5)
        await exit_rank(job, 5, 137)
        [closed] = await job.closed_incidents(1)
    before = json.loads(await report_of(job, "llm", "-o", "json"))
    await is_gone(job)
    after = json.loads(await report_of(job, "llm", "-o", "json"))
    [incident] = after["incidents"]
    assert incident == before["incidents"][0], "the job takes nothing of it away"
    assert (incident["id"], incident["outcome"], incident["handling"]) == (closed["id"], "Recovered", "automatic")
    assert (incident["failureClass"], incident["cause"]) == ("Killed", "Exit137")
    assert [each["pod"] for each in incident["suspects"]] == [victim]
    assert [write["resource"] for write in incident["writes"]] == ["jobs"]
    assert incident["unaccountedSeconds"] == 0
    assert sum(phase["durationSeconds"] for phase in incident["phases"]) == pytest.approx(incident["durationSeconds"])
    assert incident["idleGpuSeconds"] == pytest.approx(128 * incident["durationSeconds"], abs=0.1)
    assert [way["basis"] for way in incident["platform"]["ways"]] == ["computed", "computed"]
    fleet = json.loads(await report_of(job, "--fleet", "--since", "1h", "-o", "json"))
    assert fleet["totals"]["byClass"] == {"Killed": 1}
    assert fleet["totals"]["idleGpuSeconds"] == incident["idleGpuSeconds"]
    assert fleet["worstJobs"][0]["job"] == "llm"
    page = await report_of(job, "llm", "--incident", closed["id"], "-o", "html")
    assert page.startswith("<!DOCTYPE html>")
    assert victim in page
    assert victim in await report_of(job, "llm")
