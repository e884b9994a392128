"""What the controller leaves alone: everything that is not a failure, or not its business, or not allowed.

Each test checks the writes in the proxy's record, after something that shows that the controller has reconciled.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest
import pytest_asyncio

from recovery.ports import EVENTS, JOB_SETS, JOBS, TRAIN_JOBS
from tests.cluster.acts import (
    PAUSED,
    annotate,
    edit,
    exit_rank,
    exit_ranks,
    incidents_of,
    lose,
    second_is_over,
    succeed_once_replaced,
    until_condition,
    until_replaced,
    until_rounds,
    until_said,
)
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import (
    POLICY_STATUS,
    has_reconciled,
    jobs_written_about,
    recovery,
    workload_writes,
    writes,
)
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Job, Object, apply, policy, train_job
from tests.cluster.stations import takes_down

WATCHED = {"watched": "yes"}
EXIT_OF_HUNG_RANK = 134
GROUPS = 8
LONGER_THAN_ITS_TIMERS_SECONDS = 35.0
"""A verdict settles within 2 s, and a waiting group is requeued within 30 s. The simulation shows that nothing is
written in hours either (`HealthyUntouched`)."""


class StartsJobs(Protocol):
    """The type of the fixture `jobs`: TrainJobs of 1 GPU a rank, without a policy, which all train when it returns."""

    async def __call__(self, *names: str, ranks: int = 2, labels: dict[str, str] = WATCHED) -> list[Job]: ...


@pytest_asyncio.fixture(loop_scope="session")
async def jobs(installed: ControlPlane, fleet: Fleet, namespace: str) -> AsyncIterator[StartsJobs]:
    started: list[Job] = []

    async def start(*names: str, ranks: int = 2, labels: dict[str, str] = WATCHED) -> list[Job]:
        mine = [Job(installed, fleet, namespace, name, ranks) for name in names]
        started.extend(mine)
        bodies = [train_job(name, ranks=ranks, gpus=1) for name in names]
        for body in bodies:
            body["metadata"]["labels"] = labels
        await apply(installed, namespace, *bodies)
        await asyncio.gather(*(job.trains() for job in mine))
        return mine

    yield start
    await asyncio.gather(*(job.remove() for job in started))


def rules(name: str = "default", **spec: Any) -> Object:
    """A policy for the jobs that are labelled as watched, in mode Enforce, that gives old pods 1 s."""
    return policy(name, **{"selector": {"matchLabels": WATCHED}, "teardown": {"graceSeconds": 1}, **spec})


@pytest.mark.central
async def test_installing_into_running_groups_with_a_past_touches_none_of_them(
    installed: ControlPlane, namespace: str, jobs: StartsJobs, proxy: ApiProxy, controller: StartsController
) -> None:
    *old, witness = await jobs(*(f"old-{number}" for number in range(GROUPS)), "witness")

    async def gets_a_past(number: int, job: Job) -> None:
        if number % 2:
            await exit_rank(job, 0, 1)
        else:
            await lose(job, 0, grace_seconds=1)
        await exit_rank(job, 1, EXIT_OF_HUNG_RANK)
        await until_rounds(job, 2)

    await asyncio.gather(*(gets_a_past(number, job) for number, job in enumerate(old)))
    await second_is_over()

    await apply(installed, namespace, rules(mode="Observe"))
    async with controller() as process:
        await has_reconciled(process, *old)
        assert writes(proxy) == []
        await apply(installed, namespace, rules(mode="Enforce"))
        await has_reconciled(process, *old)
        await second_is_over()
        await lose(witness, 1)
        [closed] = await witness.closed_incidents(1)

    assert closed["outcome"] == "Recovered", "Enforce was in force"
    assert jobs_written_about(proxy, *old) == set()
    assert [await incidents_of(job) for job in old] == [[]] * GROUPS
    assert [len(job.fleet.world.rounds(job.training)) for job in old] == [2] * GROUPS


@pytest.mark.central
async def test_observe_says_what_enforce_would_do_and_writes_to_no_workload(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1, mode="Observe")
    uid = await job.child_uid()
    async with controller() as process:
        pod = await lose(job, 1)
        [closed] = await job.closed_incidents(1)
        await has_reconciled(process, job)

    assert (closed["outcome"], closed["outcomeReason"]) == ("Observed", "ObserveMode")
    assert f"pod {pod} (rank 1, node gpu-" in closed["message"]
    assert "Enforce would have deleted Job llm-node-0, so that all 2 ranks restart together" in closed["message"]
    assert workload_writes(proxy) == []
    assert await job.child_uid() == uid
    [recorded] = await incidents_of(job)
    assert (recorded["outcome"], recorded["mode"]) == ("Observed", "Observe")
    ledger = await job.ledger()
    assert (ledger.get("epoch", 0), ledger["totals"].get("charged", 0)) == (0, 0)


async def test_nothing_is_written_about_what_is_no_failure_or_not_the_controllers_business(
    installed: ControlPlane, namespace: str, jobs: StartsJobs, proxy: ApiProxy, controller: StartsController
) -> None:
    [healthy] = await jobs("healthy", ranks=8)
    complete, suspended, resumed, deleted, paused = await jobs("complete", "suspended", "resumed", "deleted", "paused")
    [finishing] = await jobs("finishing", ranks=3)
    await lose_and_replace_a_pod(resumed)
    await second_is_over()
    await apply(installed, namespace, rules())
    [without_policy] = await jobs("without-policy", labels={})
    async with controller() as process:
        await lose(without_policy, 1)
        await edit(suspended, {"spec": {"suspend": True}})
        await edit(resumed, {"spec": {"suspend": True}})
        await deleted.remove()
        for rank in range(complete.ranks):
            await exit_rank(complete, rank, 0)
        await annotate(paused, PAUSED, "true")
        await has_reconciled(process, paused)
        await lose(paused, 1)
        await a_finishing_job_loses_a_pod(installed, finishing)
        await a_suspended_job_trains_again(resumed)
        await asyncio.sleep(LONGER_THAN_ITS_TIMERS_SECONDS)
        await has_reconciled(process, healthy, complete, suspended, resumed, paused, finishing, without_policy)

        assert writes(proxy, besides=POLICY_STATUS) == []
        for job in (complete, finishing):
            await until_condition(job, TRAIN_JOBS, "Complete")
        assert len(healthy.fleet.world.rounds(healthy.training)) == 1
        assert await suspended.pods() == []
        # The controller was not blind: the resumed job, whose past does not count, now loses a member.
        await lose(resumed, 0)
        [closed] = await resumed.closed_incidents(1)
        assert closed["outcome"] == "Recovered"


async def lose_and_replace_a_pod(job: Job) -> None:
    """Give the job a past: its Job has counted a failed pod, and all ranks have met for the second time."""
    await lose(job, 0, grace_seconds=1)
    await exit_rank(job, 1, EXIT_OF_HUNG_RANK)
    await until_rounds(job, 2)


async def a_finishing_job_loses_a_pod(control_plane: ControlPlane, job: Job) -> None:
    """The pod of the last rank is deleted after rank 0 has succeeded. In the end all ranks of the Job succeed."""
    last = job.ranks - 1
    done = await exit_rank(job, 0, 0)
    async with asyncio.timeout(GUARD_SECONDS):
        while done not in {
            pod["metadata"]["name"] for pod in await job.pods() if pod["status"]["phase"] == "Succeeded"
        }:
            await asyncio.sleep(0.05)
    pod = await lose(job, last, grace_seconds=600)
    explained = await recovery("explain", job.name, "-n", job.namespace, "--kubeconfig", str(control_plane.kubeconfig))
    sentence = f"was deleted, but pod {done} has Succeeded, so the training is finishing: the group is not restarted"
    assert sentence in explained.out, explained
    job.fleet.kubelets.exit_container(pod, 137, namespace=job.namespace)
    for rank in range(1, last):
        await exit_rank(job, rank, 0)
    await succeed_once_replaced(job, last)


async def a_suspended_job_trains_again(job: Job) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        while await job.pods():
            await asyncio.sleep(0.1)
    await second_is_over()
    await edit(job, {"spec": {"suspend": False}})
    await until_rounds(job, 3)


@pytest.mark.central
async def test_a_pause_in_mid_incident_stops_every_write_to_the_workload_until_it_is_lifted(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1)
    uid = await job.child_uid()
    async with controller() as process:
        trigger = proxy.hold(takes_down)
        await lose(job, 1)
        await trigger.wait()
        # The decision is in the ledger. Before the trigger reaches the server, the pause comes and the Job changes.
        await annotate(job, PAUSED, "true")
        await annotate(job, "example.com/changed", "meanwhile", resource=JOBS)
        trigger.release()
        ledger = await until_said(
            job, "the restart is decided but not carried out, because the job is paused by annotation"
        )
        await has_reconciled(process, job)

        assert {each["type"]: each["status"] for each in ledger["conditions"]}["Paused"] == "True"
        assert workload_writes(proxy) == [f"PATCH jobs {job.child}: 409"], "nothing since the refused claim"
        assert await job.child_uid() == uid
        await annotate(job, PAUSED, None)
        [closed] = await job.closed_incidents(1)
        events = [event["reason"] for event in await job.items(EVENTS)]

    assert closed["outcome"] == "Recovered"
    assert writes(proxy, of={"jobs"})[:2] == [f"PATCH jobs {job.child}: 409", f"PATCH jobs {job.child}: 200"]
    ledger = await job.ledger()
    assert (ledger["epoch"], ledger["totals"]["charged"], closed["attempts"]) == (1, 1, 1)
    assert events.count("RecreatingGroup") == 1, "told although its first trigger was refused"


@pytest.mark.central
async def test_a_job_that_completes_while_the_trigger_is_under_way_ends_complete(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=4, gpus=1)
    uid = await job.child_uid()
    async with controller():
        trigger = proxy.hold(takes_down)
        await lose(job, 3)
        await trigger.wait()
        for rank in range(3):
            await exit_rank(job, rank, 0)
        async with asyncio.timeout(GUARD_SECONDS):
            while not (await job.get("job", job.child))["status"].get("succeeded"):
                await asyncio.sleep(0.05)
        trigger.release()
        [closed] = await job.closed_incidents(1)
        await succeed_once_replaced(job, 3)
        await until_condition(job, TRAIN_JOBS, "Complete")

    assert (closed["outcome"], closed["outcomeReason"]) == ("Superseded", "JobFinishing")
    assert workload_writes(proxy) == [f"PATCH jobs {job.child}: 409"]
    assert await job.child_uid() == uid


async def test_a_loss_while_the_training_finishes_is_held_after_its_time_until_a_person_decides(
    installed: ControlPlane, namespace: str, jobs: StartsJobs, proxy: ApiProxy, controller: StartsController
) -> None:
    """Rank 0 exits far too early, with exit code 0. Another rank is lost, and the Job replaces only that one."""
    await apply(installed, namespace, rules(timeouts={"finish": "5s"}))
    [job] = await jobs("llm", ranks=3)
    uid = await job.child_uid()
    async with controller():
        await exit_rank(job, 0, 0)
        async with asyncio.timeout(GUARD_SECONDS):
            while not (await job.get("job", job.child))["status"].get("succeeded"):
                await asyncio.sleep(0.05)
        await lose(job, 2)
        await until_said(job, "has Succeeded, so the training is finishing, but the job did not end within 5s")
        await job.reaches("Held")
        ledger = await job.ledger()
        assert writes(proxy, of={"trainjobs", "jobsets", "jobs", "pods"}) == []
        assert ledger["reason"] == "FinishOverdue"
        assert {each["type"]: each["status"] for each in ledger["conditions"]}["FinishOverdue"] == "True"
        done = await recovery("retry", job.name, "-n", job.namespace, "--kubeconfig", str(installed.kubeconfig))
        assert done.exit_code == 0, done
        [closed] = await job.closed_incidents(1)

    assert (closed["outcome"], closed["attempts"]) == ("Recovered", 1)
    assert await job.child_uid() != uid
    await job.trains()


async def test_a_job_set_that_failed_while_no_controller_ran_is_reported_once_and_left_as_it_is(
    installed: ControlPlane, namespace: str, jobs: StartsJobs, proxy: ApiProxy, controller: StartsController
) -> None:
    [before_policy] = await jobs("before-policy", ranks=8, labels={"late": "yes"})
    await apply(installed, namespace, rules())
    [job] = await jobs("llm", ranks=8)
    for each in (before_policy, job):
        await exit_ranks(each, range(8), 1)
        await until_condition(each, JOB_SETS, "Failed")
    await second_is_over()
    await apply(installed, namespace, rules("late", selector={"matchLabels": {"late": "yes"}}))

    for _ in range(2):
        async with controller() as process:
            [closed] = await job.closed_incidents(1)
            await has_reconciled(process, job, before_policy)

    assert (closed["outcome"], closed["outcomeReason"]) == ("Failed", "PlatformGaveUp")
    assert "Job llm-node-0 is failing: BackoffLimitExceeded" in closed["message"]
    assert len(await incidents_of(job)) == 1
    assert workload_writes(proxy) == []
    assert jobs_written_about(proxy, job, before_policy) == {"llm"}


@pytest.mark.central
async def test_with_the_budget_exhausted_the_second_failure_is_held(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1, budget={"limit": 1})
    async with controller():
        await lose(job, 1)
        [first] = await job.closed_incidents(1)
        assert first["outcome"] == "Recovered"
        await until_rounds(job, 2)
        await second_is_over()
        before, pods = workload_writes(proxy), await pod_uids(job)
        pod = await exit_rank(job, 1, 1)
        async with asyncio.timeout(GUARD_SECONDS):
            # Its kubelet restarts it at once, and rank 0 hangs.
            while (ledger := await job.ledger()).get("standing") != "Broken" or ledger["phase"] != "Held":
                await asyncio.sleep(0.05)
        await until_replaced(job)
        ledger = await job.ledger()
        assert ledger["phase"] == "Held"
        assert "held, because the budget of policy default is exhausted" in ledger["message"]
        assert {each["type"]: each["status"] for each in ledger["conditions"]} == {
            "Healthy": "False",
            "Recovering": "False",
            "BudgetExhausted": "True",
            "Paused": "False",
            "RecoveryProven": "Unknown",
        }
    assert f"pod {pod} (rank 1, node gpu-" in ledger["message"]
    assert "exited with exit code 1" in ledger["message"]
    assert "(limit 1 within 24h)" in ledger["message"]
    assert ledger["idleGPUs"] == 2, "all GPUs, because rank 0 hangs"
    assert workload_writes(proxy) == before
    assert await pod_uids(job) == pods, "the pods stay as they are"
    ledger = await job.ledger()
    assert (ledger["epoch"], ledger["totals"]["charged"], ledger["totals"]["incidents"]) == (1, 1, 2)


async def pod_uids(job: Job) -> set[str]:
    return {pod["metadata"]["uid"] for pod in await job.pods()}


@pytest.mark.central
async def test_restart_none_leaves_a_lost_member_to_kubernetes(
    training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(ranks=2, gpus=1, restart="None")
    pods = await pod_uids(job)
    async with controller() as process:
        await exit_rank(job, 1, 1)
        [closed] = await job.closed_incidents(1)
        await has_reconciled(process, job)

    assert (closed["outcome"], closed["outcomeReason"]) == ("Observed", "LeftToKubernetes")
    assert "policy default sets restart: None, so the failure is left to Kubernetes" in closed["message"]
    assert workload_writes(proxy) == []
    assert await pod_uids(job) == pods
