"""Backoff on the real control plane: the controller suspends the job, and nothing runs until the resume time."""

import asyncio
import json
from datetime import datetime, timedelta
from itertools import groupby

import pytest

from recovery.ports import JOB_SETS, JOBS
from tests.cluster.acts import (
    annotate,
    edit,
    exit_ranks,
    incidents_of,
    lose,
    no_restarts,
    second_is_over,
    until_condition,
    until_said,
)
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, recovery
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Job, Object, apply
from tests.cluster.stations import PASSING, WAITING, in_phase, policy_for

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints")]
OURS = "recovery.trainjob.dev/suspended-by"
RESUME_AT = "recovery.trainjob.dev/resume-at"


def suspends(seen: SeenRequest) -> bool:
    """A suspension that was accepted. If Trainer has just changed the TrainJob, it is refused, and sent again."""
    is_patch = (seen.method, seen.resource, seen.status) == ("PATCH", "trainjobs", 200)
    return is_patch and any(
        (step["path"], step.get("value")) == ("/spec/suspend", True) for step in json.loads(seen.body)
    )


async def train_job_of(job: Job) -> Object:
    return await job.get("trainjob", job.name)


async def test_the_new_job_is_made_suspended_and_no_pod_starts_before_its_time(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=4, gpus=1, **PASSING)
    async with controller():
        async with in_phase("Backoff", job, proxy):
            found = await train_job_of(job)
            incident = (await job.ledger())["incident"]
            resume_at = datetime.fromisoformat(found["metadata"]["annotations"][RESUME_AT])
            assert found["spec"]["suspend"] is True
            assert found["metadata"]["annotations"][OURS] == incident["id"]
            assert datetime.fromisoformat((await job.ledger())["nextAttemptAt"]).replace(microsecond=0) == resume_at
            async with asyncio.timeout(GUARD_SECONDS):
                while not (jobs := await job.items(JOBS)) or "deletionTimestamp" in jobs[0]["metadata"]:
                    await asyncio.sleep(0.02)
            assert jobs[0]["metadata"]["uid"] not in incident["target"]["jobUIDs"]
            assert jobs[0]["spec"]["suspend"] is True
        closed, _ = await job.closed_incidents(2)
        assert closed["outcome"] == "Recovered"
        made = [datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in await job.pods()]
        assert len(made) == 4
        assert min(made) >= resume_at
        found = await train_job_of(job)
        assert {OURS, RESUME_AT}.isdisjoint(found["metadata"].get("annotations", {}))
        await job.trains(past=job.fleet.world.step_of(job.training))
    [_, recorded] = await incidents_of(job)
    # A phase in the middle of which the suspension frees the GPUs has two spans.
    phases = [phase for phase, _ in groupby(span["phase"] for span in recorded["phases"])]
    order = ["Detected", "Decided", "TearingDown", "Backoff", "Scheduling", "Starting", "Rendezvous"]
    assert phases == [phase for phase in order if phase in phases]
    assert "Backoff" in phases
    assert len(proxy.writes(suspends)) == 1


async def test_the_second_restart_waits_for_the_interval_since_the_end_of_the_first(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """`minInterval` counts from the date that the ledger has of the first restart's end. The first does not wait."""
    # Longer than the 30 s that hung pods of a suspended Job may take to end: those count towards the wait.
    interval = timedelta(seconds=45)
    job = await training(ranks=2, gpus=1, backoff={"initial": "0s", "minInterval": "45s"})
    async with controller():
        await lose(job, 1)
        await job.closed_incidents(1)
        ended = datetime.fromisoformat((await job.ledger())["restartEndedAt"])
        assert proxy.writes(suspends) == []
        await job.trains(past=job.fleet.world.step_of(job.training))
        await lose(job, 1)
        await job.reaches("Backoff")
        assert datetime.fromisoformat((await job.ledger())["nextAttemptAt"]) == ended + interval
        await job.closed_incidents(2)
        await job.trains(past=job.fleet.world.step_of(job.training))
    recorded = await incidents_of(job)
    assert [(each["outcome"], len(each["attempts"])) for each in recorded] == [("Recovered", 1)] * 2
    assert ["Backoff" in [span["phase"] for span in each["phases"]] for each in recorded] == [False, True]
    made = [datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in await job.pods()]
    # The API server dates objects in whole seconds.
    assert len(made) == 2
    assert min(made) >= (ended + interval).replace(microsecond=0)
    assert len(proxy.writes(suspends)) == 1


async def test_with_a_deadline_eight_exits_of_the_shipped_runtime_are_answered_at_once_and_without_a_suspension(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """The runtime's Job fails with the sixth container restart: a second attempt after a backoff would be too late.

    No container restarts here before the controller acts. Otherwise the Job controller might be the faster one.
    """
    job = await training(ranks=8, gpus=1, deadline_seconds=3600, **WAITING)
    [before] = await job.items(JOB_SETS)
    async with controller() as process:
        await lose(job, 1)
        await job.closed_incidents(1)
        await job.trains(past=job.fleet.world.step_of(job.training))
        await second_is_over()
        step = job.fleet.world.step_of(job.training)
        with no_restarts(job):
            await exit_ranks(job, range(8), 1)
            closed, _ = await job.closed_incidents(2)
        await has_reconciled(process, job)
    assert closed["outcome"] == "Recovered"
    assert "no backoff, because a suspension would reset the deadline of the TrainJob (3600 s)" in closed["message"]
    await job.trains(past=step)
    [after] = await job.items(JOB_SETS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert not after["status"].get("terminalState")
    assert proxy.writes(suspends) == []
    conditions = (await train_job_of(job))["status"].get("conditions", [])
    assert not [each for each in conditions if each["type"] == "Suspended"]


async def test_a_user_who_resumes_the_job_ends_the_backoff(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1, **policy_for("Backoff"))
    async with controller() as process:
        async with in_phase("Backoff", job, proxy):
            await edit(job, {"spec": {"suspend": False}})
        closed, _ = await job.closed_incidents(2)
        await has_reconciled(process, job)
        assert closed["outcome"] == "Recovered"
        assert "another client has resumed it" in closed["message"]
        assert OURS not in (await train_job_of(job))["metadata"].get("annotations", {})
    assert len(proxy.writes(suspends)) == 1


async def test_retry_ends_the_backoff_and_says_so(
    installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1, **policy_for("Backoff"))
    async with controller():
        async with in_phase("Backoff", job, proxy):
            done = await recovery("retry", job.name, "-n", job.namespace, "--kubeconfig", str(installed.kubeconfig))
            assert (done.exit_code, done.err) == (0, ""), done
            assert "the backoff is skipped" in done.out
        closed, _ = await job.closed_incidents(2)
        assert closed["outcome"] == "Recovered"


async def test_uninstalled_in_backoff_the_documented_step_releases_every_job(
    installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    """The controller does not come back. `recovery resume --all` works without it."""
    job = await training(ranks=2, gpus=1, **policy_for("Backoff"))
    async with controller() as process, in_phase("Backoff", job, proxy):
        await process.kill()
        rounds = len(job.fleet.world.rounds(job.training))
        released = await recovery("resume", "--all", "-n", job.namespace, "--kubeconfig", str(installed.kubeconfig))
        assert (released.exit_code, released.err) == (0, ""), released
        async with asyncio.timeout(GUARD_SECONDS):
            while len(job.fleet.world.rounds(job.training)) == rounds:
                await asyncio.sleep(0.1)
    found = await train_job_of(job)
    assert not found["spec"].get("suspend")
    assert {OURS, RESUME_AT}.isdisjoint(found["metadata"].get("annotations", {}))


async def test_a_pause_of_the_whole_cluster_releases_the_suspension_and_holds_everything_else(
    installed: ControlPlane, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1, **policy_for("Backoff"))
    config: Object = {
        "apiVersion": "recovery.trainjob.dev/v1alpha1",
        "kind": "RecoveryConfig",
        "metadata": {"name": "default"},
        "spec": {"paused": True, "pauseReason": "the switch is being replaced"},
    }
    try:
        async with controller():
            async with in_phase("Backoff", job, proxy):
                await apply(installed, None, config)
                await until_said(job, "the controller ends its suspension, because RecoveryConfig default pauses all")
            closed, _ = await job.closed_incidents(2)
            assert closed["outcome"] == "Recovered"
    finally:
        await installed.kubectl("delete", "recoveryconfig", "default")


async def test_out_of_budget_it_is_suspended_and_a_retry_brings_it_back(
    installed: ControlPlane, fleet: Fleet, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1, budget={"limit": 0, "onExhausted": "Suspend"})
    async with controller():
        await lose(job, 1)
        await until_said(job, "the job is suspended to free its GPUs")
        async with asyncio.timeout(GUARD_SECONDS):
            while await job.pods():
                await asyncio.sleep(0.1)
        uid = await job.child_uid()
        done = await recovery("retry", job.name, "-n", job.namespace, "--kubeconfig", str(installed.kubeconfig))
        assert done.exit_code == 0, done
        [closed] = await job.closed_incidents(1)
        assert closed["outcome"] == "Recovered"
        assert await job.child_uid() != uid
        assert (await job.ledger())["totals"].get("charged", 0) == 0
        await job.trains(past=fleet.world.step_of(job.training))


async def test_out_of_budget_it_is_failed_only_where_recovery_config_allows_it(
    installed: ControlPlane, training: StartsTraining, controller: StartsController
) -> None:
    spec = {"ranks": 2, "gpus": 1, "budget": {"limit": 0, "onExhausted": "FailJob"}}
    forbidden = await training(name="forbidden", **spec)  # type: ignore[arg-type]
    allowed = await training(name="allowed", **spec)  # type: ignore[arg-type]
    config: Object = {
        "apiVersion": "recovery.trainjob.dev/v1alpha1",
        "kind": "RecoveryConfig",
        "metadata": {"name": "default"},
        "spec": {"allow": {"failJob": True}},
    }
    try:
        async with controller():
            await lose(forbidden, 1)
            await until_said(forbidden, "the JobSet is not failed, because RecoveryConfig does not allow it")
            await apply(installed, None, config)
            await lose(allowed, 1)
            [closed] = await allowed.closed_incidents(1)
            assert (closed["outcome"], closed["outcomeReason"]) == ("Failed", "BudgetExhausted")
            conditions = (await allowed.get("trainjob", allowed.name))["status"]["conditions"]
            assert [each["status"] for each in conditions if each["type"] == "Failed"] == ["True"]
    finally:
        await installed.kubectl("delete", "recoveryconfig", "default", "--ignore-not-found")


async def test_a_job_set_that_the_platform_gave_up_is_recreated_where_the_policy_says_so(
    training: StartsTraining, controller: StartsController
) -> None:
    """The shipped runtime's JobSet fails after eight exits, and no controller was running to act before that."""
    job = await training(ranks=8, gpus=1, onTerminalFailure="RecreateJobSet")
    [failed] = await job.items(JOB_SETS)
    await exit_ranks(job, range(8), 1)
    await until_condition(job, JOB_SETS, "Failed")
    step = job.fleet.world.step_of(job.training)
    async with controller() as process:
        [closed] = await job.closed_incidents(1)
        await has_reconciled(process, job)
    assert closed["outcome"] == "Recovered"
    [recreated] = await job.items(JOB_SETS)
    assert recreated["metadata"]["uid"] != failed["metadata"]["uid"]
    ledger = await job.ledger()
    assert (ledger["epoch"], ledger["totals"]["charged"], ledger["totals"]["incidents"]) == (1, 1, 1)
    await job.trains(past=step)


async def test_a_restart_by_hand_is_an_incident_of_its_own_and_free(
    installed: ControlPlane, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1)
    where = (job.name, "-n", job.namespace, "--kubeconfig", str(installed.kubeconfig))
    uid = await job.child_uid()
    async with controller() as process:
        asked = await recovery("restart", *where, "--reason", "rank 1 is slow", "--yes")
        assert (asked.exit_code, asked.err) == (0, ""), asked
        [closed] = await job.closed_incidents(1)
        assert (closed["class"], closed["outcome"]) == ("Manual", "Recovered")
        assert await job.child_uid() != uid
        await has_reconciled(process, job)
        ledger = await job.ledger()
        assert (ledger["epoch"], ledger["totals"].get("charged", 0), ledger["totals"]["incidents"]) == (1, 0, 1)
        await annotate(job, "recovery.trainjob.dev/paused", "true")
        refused = await recovery("restart", *where, "--reason", "again", "--yes")
        assert refused.exit_code == 1
        assert "paused" in refused.err + refused.out
