"""Pods that are deleted before the ranks have met: the real Job controller waits, and the controller does not."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from recovery import api_verbs
from recovery.core.diagnosis.job_backoff import SHORT
from recovery.core.model.reason import Reason
from recovery.ports import JOBS, PODS
from tests.cluster.acts import incidents_of, no_room
from tests.cluster.conftest import StartsController
from tests.cluster.controller_record import recovery
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Job, Object, apply, policy, train_job

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints")]
RANKS = 7
"""The Job controller waits 10 s x 2^6 after seven lost pods, but at most ten minutes."""
BACK_OFF_SECONDS = 600


async def until_pods(job: Job, count: int) -> list[Object]:
    async with asyncio.timeout(GUARD_SECONDS):
        while len(pods := await job.pods()) != count:
            await asyncio.sleep(0.1)
    return pods


async def test_the_job_is_created_again_instead_of_waiting_out_its_back_off(
    installed: ControlPlane, fleet: Fleet, namespace: str, controller: StartsController
) -> None:
    job = Job(installed, fleet, namespace, "llm", RANKS)
    try:
        async with controller():
            async with no_room(fleet):
                made = train_job("llm", ranks=RANKS, gpus=1, runtime="torch-recoverable")
                await apply(installed, namespace, policy(teardown={"graceSeconds": 1}), made)
                pending = await until_pods(job, RANKS)
                [before] = await job.items(JOBS)
                for pod in pending:
                    deleted_at = datetime.now(UTC).replace(microsecond=0)
                    await api_verbs.delete(fleet.api, PODS, pod["metadata"]["name"], namespace=namespace)
                await until_pods(job, 0)
            where = ("-n", namespace, "--kubeconfig", str(installed.kubeconfig))
            explained = await recovery("explain", "llm", *where)
            assert "Job llm-node-0 waits out its back-off until" in explained.out
            assert await job.pods() == [], "there is room again, and the Job creates no pods"
            await job.trains()
            [closed] = await job.closed_incidents(1)
            [after] = await job.items(JOBS)
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert closed["outcome"] == "Recovered"
        [recorded] = await incidents_of(job)
        [attempt] = recorded["attempts"]
        assert attempt["reason"] == Reason.JOB_BACKS_OFF
        waited = datetime.fromisoformat(attempt["startedAt"]) - deleted_at
        assert SHORT <= waited < timedelta(seconds=BACK_OFF_SECONDS / 2)
    finally:
        await job.remove()
