"""Users act in the middle of a recovery, in each of its phases. They win, and the controller does not undo it."""

import asyncio

import pytest

from recovery import api_verbs
from recovery.ports import JOBS, RECOVERY_POLICIES, TRAIN_JOBS, PatchKind, Propagation
from tests.cluster.acts import edit, incidents_of, until_said
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, workload_writes
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Job
from tests.cluster.stations import PHASES, in_phase, is_trigger, policy_for

pytestmark = pytest.mark.usefixtures("no_complaints")


async def suspended(job: Job) -> bool:
    return bool((await job.get("trainjob", job.name))["spec"].get("suspend"))


@pytest.mark.parametrize("phase", PHASES)
async def test_a_user_suspends_the_job(
    phase: str, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """The incident closes, the job stays suspended, and the controller neither restarts nor resumes it.

    In Backoff the controller has already suspended it. There the user takes over by removing our annotation.
    """
    job = await training(ranks=2, gpus=1, **policy_for(phase))
    async with controller() as process:
        async with in_phase(phase, job, proxy):
            if phase == "Backoff":
                await edit(job, {"metadata": {"annotations": {"recovery.trainjob.dev/suspended-by": None}}})
            else:
                await edit(job, {"spec": {"suspend": True}})
        incidents = 2 if phase == "Backoff" else 1
        closed, *_ = await job.closed_incidents(incidents)
        triggers = len(proxy.writes(is_trigger))
        await has_reconciled(process, job)
        assert (closed["outcome"], closed["outcomeReason"]) == ("Superseded", "JobSuspended")
        assert await suspended(job)
        assert len(proxy.writes(is_trigger)) == triggers
        async with asyncio.timeout(GUARD_SECONDS):
            while [pod for pod in await job.pods() if "deletionTimestamp" not in pod["metadata"]]:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("phase", PHASES)
async def test_a_user_deletes_the_job(
    phase: str, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """The job goes with everything made from it. The incident is recorded, and nothing more is written about it."""
    job = await training(ranks=2, gpus=1, **policy_for(phase))
    async with controller():
        async with in_phase(phase, job, proxy):
            await api_verbs.delete(
                job.fleet.api, TRAIN_JOBS, job.name, namespace=job.namespace, propagation=Propagation.BACKGROUND
            )
        incidents = 2 if phase == "Backoff" else 1
        async with asyncio.timeout(GUARD_SECONDS):
            while len(recorded := await incidents_of(job)) < incidents:
                await asyncio.sleep(0.1)
        assert (recorded[-1]["outcome"], recorded[-1]["outcomeReason"]) == ("Superseded", "JobDeleted")
        await job.remove()
        async with asyncio.timeout(GUARD_SECONDS):
            while await job.groups():
                await asyncio.sleep(0.1)
        assert await job.items(JOBS) == []
        assert len(await incidents_of(job)) == incidents


@pytest.mark.central
@pytest.mark.parametrize("change", ["mode", "deletion"])
async def test_a_policy_that_is_withdrawn_in_mid_incident_stops_every_write(
    change: str, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1, **policy_for("Decided"))
    uid = await job.child_uid()
    async with controller() as process:
        async with in_phase("Decided", job, proxy):
            if change == "mode":
                observe = {"spec": {"mode": "Observe"}}
                await api_verbs.patch(
                    job.fleet.api, RECOVERY_POLICIES, "default", observe, kind=PatchKind.MERGE, namespace=job.namespace
                )
            else:
                await api_verbs.delete(job.fleet.api, RECOVERY_POLICIES, "default", namespace=job.namespace)
            # The trigger arrives with an outdated resourceVersion, so the controller reads everything again.
            await edit(job, {"metadata": {"annotations": {"example.com/changed": "meanwhile"}}}, resource=JOBS)
        why = "policy default was switched to Observe" if change == "mode" else "the RecoveryPolicy was deleted"
        await until_said(job, why)
        await has_reconciled(process, job)
        assert await job.child_uid() == uid
        assert workload_writes(proxy) == [f"PATCH jobs {job.child}: 409"]


async def test_a_policy_that_is_changed_in_mid_incident_counts_from_the_next_incident_on(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1, **policy_for("TearingDown"))
    async with controller():
        async with in_phase("TearingDown", job, proxy):
            budget = {"spec": {"budget": {"limit": 0}}}
            await api_verbs.patch(
                job.fleet.api, RECOVERY_POLICIES, "default", budget, kind=PatchKind.MERGE, namespace=job.namespace
            )
            assert (await job.ledger())["incident"]["terms"]["budgetLimit"] == 10
        [closed] = await job.closed_incidents(1)
        assert closed["outcome"] == "Recovered"
        await job.trains(past=job.fleet.world.step_of(job.training))
        async with in_phase("Held", job, proxy):
            pass
