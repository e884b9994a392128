"""Several recoveries of a large group in a row. The deleted Jobs must never make their JobSet fail.

Every pod that the controller deletes counts as a failed pod of the deleted Job: 128 pods, and a shipped backoffLimit of
6. A JobSet fails when it sees a Failed Job, even if that Job is being deleted.
"""

import asyncio
from typing import Any

import pytest

from recovery.ports import JOB_SETS
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Job

RANKS = 128
AT_ONCE: dict[str, Any] = {"backoff": {"initial": "0s"}}


async def _recovers(job: Job, incidents: int) -> None:
    """One rank exits. The group recovers, and its JobSet does not fail."""
    world = job.fleet.world
    step, killed_at = world.step_of(job.training), job.fleet.clock.now()
    victim = await job.pod_of_rank(incidents % RANKS)
    job.fleet.kubelets.exit_container(victim, 1, namespace=job.namespace)
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            (job_set,) = await job.items(JOB_SETS)
            assert not job_set["status"].get("terminalState"), f"recovery {incidents}: {job_set['status']}"
            ledger = await job.ledger()
            if ledger.get("totals", {}).get("incidents") == incidents and "incident" not in ledger:
                break
            await asyncio.sleep(0.1)
    assert ledger["history"][0]["outcome"] == "Recovered", ledger["history"][0]
    assert ledger["totals"]["restarts"] == ledger["epoch"] == incidents
    await job.trains(past=step)
    assert world.passed(job.training, step, killed_at)


@pytest.mark.parametrize(
    ("recoveries", "asked_grace_seconds"),
    [(5, 1), (1, None)],
    ids=["five times asking for 1 s of the pods' 30 s of grace", "once sitting out the whole grace of 30 s"],
)
async def test_the_job_set_of_128_pods_with_the_shipped_backoff_limit_never_fails(
    recoveries: int,
    asked_grace_seconds: int | None,
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
) -> None:
    job = await training(ranks=RANKS, gpus=1, teardown={"graceSeconds": asked_grace_seconds}, **AT_ONCE)
    async with controller():
        for incidents in range(1, recoveries + 1):
            await _recovers(job, incidents)
    triggers = proxy.writes(lambda write: write.method == "DELETE" and write.resource == "jobs")
    # A 409 is a trigger whose Job had changed. It deleted nothing, and the controller decided again.
    assert [trigger.status for trigger in triggers if trigger.status != 409] == [200] * recoveries
