"""Progress on a real control plane: a recovery ends when the training reports it again.

Trainer's feature gate TrainJobStatus is off in this control plane. Its field is still in the CRD, so the test reports
in place of Trainer's status server, with the patch that the server makes.
"""

import asyncio
from datetime import datetime, timedelta

import pytest

from tests.cluster.acts import lose, report_progress
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import recovery
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Job, Object
from tests.cluster.verdict import moment

pytestmark = pytest.mark.central

RANKS = 3


async def is_reported(job: Job, percentage: int) -> Object:
    trainjob = await job.get("trainjob", job.name)
    assert trainjob["status"]["trainerStatus"]["progressPercentage"] == percentage
    return trainjob


async def test_a_recovery_ends_when_the_training_reports_progress_again(
    training: StartsTraining, controller: StartsController, installed: ControlPlane
) -> None:
    job = await training(ranks=RANKS, gpus=1)
    before = await report_progress(job, 40)
    async with controller():
        await lose(job, 1)
        await job.reaches("Resuming")
        resuming = await job.ledger()
        assert resuming["reason"] == "WaitingForProgress"
        assert moment(resuming["incident"]["progressAt"]) == before
        began = moment(resuming["incident"]["phases"][-1]["startedAt"])
        columns = await installed.kubectl("get", "recoverygroups", "-n", job.namespace, "--no-headers")
        assert "Resuming" in columns
        await is_reported(job, 40)  # Trainer has written its own status since, and has not reset this

        await report_progress(job, 50, began - timedelta(seconds=1))  # a late write of the old incarnation
        await report_progress(job, 41, before)
        assert (await job.ledger())["phase"] == "Resuming"
        progressed = await reported_after(job, 42, began)
        [closed] = await job.closed_incidents(1)
        kubeconfig = ("--kubeconfig", str(installed.kubeconfig))
        told = await recovery("explain", job.name, "-n", job.namespace, "--incident", closed["id"], *kubeconfig)

    assert (closed["outcome"], closed["outcomeReason"]) == ("Recovered", "TrainingProgresses")
    assert (closed["source"], closed["verified"]) == ("progress", True)
    assert progressed <= moment(closed["endedAt"]) <= progressed + timedelta(seconds=1)
    assert told.exit_code == 0
    assert "the training makes progress (source: progress, verified: true)" in told.out


async def reported_after(job: Job, percentage: int, began: datetime) -> datetime:
    """Reports repeatedly, as a training does. Returns the first date after Rendezvous."""
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            told = await report_progress(job, percentage)
            if told > began:
                return told
            await asyncio.sleep(0.2)
