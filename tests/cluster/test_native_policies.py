"""The user's own policies come first: where the Job or JobSet decides about a failure, the controller stands aside.

Each test has its own training runtime: the shipped prepared one with the policies under test.
"""

from collections.abc import AsyncIterator
from typing import Protocol

import pytest
import pytest_asyncio
import yaml

from recovery.ports import JOB_SETS
from tests.cluster.acts import evict, exit_rank, incidents_of, lose, until_condition, until_rounds
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, workload_writes
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import REPOSITORY, Job, Object, apply, until

pytestmark = pytest.mark.central

FAIL_ON_42 = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
IGNORE_DISRUPTIONS = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


class MakesRuntime(Protocol):
    """The type of the fixture `runtime`. It creates a ClusterTrainingRuntime and returns its name."""

    async def __call__(self, *, job: Object, failure_policy: Object | None = None) -> str: ...


@pytest_asyncio.fixture(loop_scope="session")
async def runtime(installed: ControlPlane, namespace: str) -> AsyncIterator[MakesRuntime]:
    made: list[str] = []

    async def make(*, job: Object, failure_policy: Object | None = None) -> str:
        """`job`: fields of the Job's spec. The pods' grace is 1 s, because hung ranks use all of it."""
        body = yaml.safe_load((REPOSITORY / "policies" / "runtime-prepared.yaml").read_text())
        name = f"runtime-{namespace.rpartition('-')[2]}"
        body["metadata"]["name"] = name
        jobset = body["spec"]["template"]["spec"]
        if failure_policy is not None:
            jobset["failurePolicy"] = failure_policy
        [replicated] = jobset["replicatedJobs"]
        spec = replicated["template"]["spec"]
        spec.update(job)
        spec["template"]["spec"]["terminationGracePeriodSeconds"] = 1
        await apply(installed, None, body)
        made.append(name)
        return name

    yield make
    for name in made:
        await installed.kubectl("delete", "clustertrainingruntime", name, "--wait=false")


async def jobset_of(job: Job) -> Object:
    [jobset] = await job.items(JOB_SETS)
    return jobset


async def restarts_of(job: Job) -> list[tuple[str, int]]:
    """Action and epoch of every attempt, in all incidents, that restarted the group. Standing aside does not."""
    attempts = [attempt for spec in await incidents_of(job) for attempt in spec.get("attempts", [])]
    return [(each["action"], each["epoch"]) for each in attempts if each["action"] != "None"]


async def test_fail_job_without_a_failure_policy_fails_the_job_as_its_user_wrote(
    runtime: MakesRuntime, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(runtime=await runtime(job={"podFailurePolicy": FAIL_ON_42}), ranks=4, gpus=1)
    uid = await job.child_uid()
    async with controller() as process:
        pod = await exit_rank(job, 2, 42)
        [closed] = await job.closed_incidents(1)
        await has_reconciled(process, job)

    assert (closed["outcome"], closed["outcomeReason"]) == ("Failed", "NativePolicy")
    assert f"pod {pod} (rank 2, node gpu-" in closed["message"]
    assert "failed with exit code 42; standing aside, because podFailurePolicy rule 0" in closed["message"]
    assert workload_writes(proxy) == []
    assert await job.child_uid() == uid
    assert (await jobset_of(job))["status"]["terminalState"] == "Failed"
    ledger = await job.ledger()
    assert (ledger.get("epoch", 0), ledger["totals"].get("charged", 0)) == (0, 0)


async def test_a_job_that_failed_by_its_own_rule_while_no_controller_ran_is_told_as_such(
    runtime: MakesRuntime, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    job = await training(runtime=await runtime(job={"podFailurePolicy": FAIL_ON_42}), ranks=4, gpus=1)
    await exit_rank(job, 2, 42)
    await until_condition(job, JOB_SETS, "Failed")
    async with controller() as process:
        [closed] = await job.closed_incidents(1)
        await has_reconciled(process, job)

    assert (closed["outcome"], closed["outcomeReason"]) == ("Failed", "NativePolicy")
    assert "PodFailurePolicy" in closed["message"] or "podFailurePolicy" in closed["message"]
    assert workload_writes(proxy) == []


async def test_fail_job_with_a_failure_policy_is_the_job_sets_restart_which_is_adopted(
    runtime: MakesRuntime, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    restarts = await runtime(job={"podFailurePolicy": FAIL_ON_42}, failure_policy={"maxRestarts": 3})
    job = await training(runtime=restarts, ranks=4, gpus=1)
    step = job.fleet.world.step_of(job.training)
    async with controller() as process:
        failed_at = job.fleet.clock.now()
        await exit_rank(job, 2, 42)
        [closed] = await job.closed_incidents(1)
        await until(
            "all ranks train past their step before the failure",
            lambda: job.fleet.world.passed(job.training, step, failed_at),
        )
        await has_reconciled(process, job)

    assert (closed["outcome"], closed["outcomeReason"]) == ("Recovered", "AllRanksReady")
    assert "JobSet llm restarts the group itself: adopted as this incident's restart" in closed["message"]
    assert await restarts_of(job) == [("Adopted", 1)]
    assert workload_writes(proxy) == [], "no deletion on top of the platform's own"
    assert (await jobset_of(job))["status"]["restarts"] == 1
    ledger = await job.ledger()
    totals = ledger["totals"]
    assert (ledger["epoch"], totals["restarts"], totals.get("charged", 0)) == (1, 1, 0)
    assert not job.fleet.world.trace.overlaps(job.training)


async def test_backoff_limit_zero_is_a_decision_and_used_up_restarts_are_the_end(
    runtime: MakesRuntime, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    one_restart = await runtime(job={"backoffLimit": 0}, failure_policy={"maxRestarts": 1})
    job = await training(runtime=one_restart, ranks=4, gpus=1)
    async with controller() as process:
        await exit_rank(job, 1, 1)
        [first] = await job.closed_incidents(1)
        assert first["outcome"] == "Recovered"
        assert (await jobset_of(job))["status"]["restarts"] == 1
        await until_rounds(job, 2)
        await exit_rank(job, 3, 1)
        [second, _] = await job.closed_incidents(2)
        await has_reconciled(process, job)

    assert (second["outcome"], second["outcomeReason"]) == ("Failed", "NativePolicy")
    assert await restarts_of(job) == [("Adopted", 1)]
    assert workload_writes(proxy) == []
    assert (await jobset_of(job))["status"]["terminalState"] == "Failed"
    ledger = await job.ledger()
    totals = ledger["totals"]
    assert (ledger["epoch"], totals.get("charged", 0), totals["incidents"]) == (1, 0, 2)


async def test_with_all_restarts_used_a_deleted_pod_is_left_to_its_job(
    runtime: MakesRuntime, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    none_allowed = await runtime(job={"backoffLimit": 1000}, failure_policy={"maxRestarts": 0})
    job = await training(runtime=none_allowed, ranks=4, gpus=1)
    async with controller() as process:
        await lose(job, 1)
        [closed] = await job.closed_incidents(1)
        await has_reconciled(process, job)

    assert (closed["outcome"], closed["outcomeReason"]) == ("Observed", "LeftToKubernetes")
    assert "standing aside, because the failurePolicy of JobSet llm allows no more restarts" in closed["message"]
    assert workload_writes(proxy) == []


async def test_a_disruption_that_a_rule_ignores_recreates_the_group_without_a_charge(
    runtime: MakesRuntime, training: StartsTraining, controller: StartsController
) -> None:
    job = await training(runtime=await runtime(job={"podFailurePolicy": IGNORE_DISRUPTIONS}), ranks=4, gpus=1)
    async with controller() as process:
        pod = await evict(job, 1)
        [closed] = await job.closed_incidents(1)
        await has_reconciled(process, job)

    assert closed["outcome"] == "Recovered"
    assert await restarts_of(job) == [("RecreateGroup", 1)]
    [incident] = await incidents_of(job)
    [attempt] = incident["attempts"]
    assert f"podFailurePolicy rule 0 of Job llm-node-0 (action Ignore) matches pod {pod}" in attempt["message"]
    totals = (await job.ledger())["totals"]
    assert (totals["restarts"], totals.get("charged", 0)) == (1, 0)


async def test_a_disruption_that_a_rule_ignores_is_left_to_its_job_where_the_policy_says_so(
    runtime: MakesRuntime, training: StartsTraining, proxy: ApiProxy, controller: StartsController
) -> None:
    ignores = await runtime(job={"podFailurePolicy": IGNORE_DISRUPTIONS})
    job = await training(runtime=ignores, ranks=4, gpus=1, onNativeIgnore="StandAside")
    async with controller() as process:
        pod = await evict(job, 1)
        [closed] = await job.closed_incidents(1)
        await has_reconciled(process, job)

    assert (closed["outcome"], closed["outcomeReason"]) == ("Observed", "LeftToKubernetes")
    assert f"podFailurePolicy rule 0 of Job llm-node-0 (action Ignore) matches pod {pod}" in closed["message"]
    assert workload_writes(proxy) == []
