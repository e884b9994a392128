"""Pods with several containers: helpers that end, and sidecars that never start or end, beside the training."""

import asyncio
import json

import pytest

from recovery.ports import JOB_SETS
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import MakesRuntime, StartsController, StartsTraining
from tests.cluster.controller_record import has_reconciled, workload_writes
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Fleet, Job, Object
from tests.cluster.stations import is_trigger
from tests.cluster.test_groups import STEP
from tests.cluster.verdict import assert_one_trigger

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints")]

RANKS = 4
START_SECONDS = 5
NOWHERE = "example.invalid/log-shipper:nowhere"
FAIL_JOB_ON_42: Object = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}


def with_others(*others: Object, pod_failure_policy: Object | None = None) -> Object:
    """A runtime whose pods hold these containers beside the training."""
    containers = [*others, {"name": "node", "image": "example.com/training"}]
    job: Object = {
        "backoffLimit": 1000,
        **({"podFailurePolicy": pod_failure_policy} if pod_failure_policy else {}),
        "template": {"spec": {"restartPolicy": "Never", "containers": containers}},
    }
    node = {"name": "node", "template": {"metadata": {"labels": {STEP: "trainer"}}, "spec": job}}
    return {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}}


async def exit_trainer(job: Job, rank: int, code: int) -> str:
    """End the training container of that rank; returns the name of its pod."""
    pod = await job.pod_of_rank(rank)
    job.fleet.kubelets.exit_container(pod, code, namespace=job.namespace, container="node")
    return pod


async def helpers_end(job: Job) -> None:
    """End the helper in each pod, and wait until the pods' status shows it."""
    for pod in await job.pods():
        job.fleet.kubelets.exit_container(pod["metadata"]["name"], 0, namespace=job.namespace, container="helper")
    async with asyncio.timeout(GUARD_SECONDS):
        while any("terminated" not in state for state in await states(job, "helper")):
            await asyncio.sleep(0.05)


async def states(job: Job, container: str) -> list[Object]:
    """`state` of that container in each pod."""
    return [
        status["state"]
        for pod in await job.pods()
        for status in pod["status"].get("containerStatuses", ())
        if status["name"] == container
    ]


async def test_a_finished_helper_and_a_broken_sidecar_open_nothing_and_hold_nothing_up(
    training: StartsTraining, runtime: MakesRuntime, controller: StartsController, proxy: ApiProxy, fleet: Fleet
) -> None:
    """A group that trains is not torn down because of them. After the death of a trainer, the recovery still ends."""
    helper, shipper = {"name": "helper", "image": "example.com/helper"}, {"name": "log-shipper", "image": NOWHERE}
    fleet.kubelets.withhold_image(NOWHERE)
    name = await runtime(with_others(helper, shipper))
    async with controller():
        job = await training(runtime=name, ranks=RANKS, gpus=1, timeouts={"start": f"{START_SECONDS}s"})
        await helpers_end(job)
        assert {pod["status"]["phase"] for pod in await job.pods()} == {"Pending"}, "as the kubelet has it"
        uid = await job.child_uid()
        await asyncio.sleep(2 * START_SECONDS)  # nothing may happen in this time
        assert (await job.groups(), await job.child_uid()) == ([], uid)
        assert workload_writes(proxy) == []
        step = fleet.world.step_of(job.training)
        await exit_trainer(job, 2, 1)
        (incident,) = await job.closed_incidents(1)
        assert incident["outcome"] == "Recovered"
        await job.trains(past=step)
    assert_one_trigger(proxy)


async def test_fail_job_on_42_is_left_to_the_job_while_a_sidecar_keeps_the_pod_running(
    training: StartsTraining, runtime: MakesRuntime, controller: StartsController, proxy: ApiProxy
) -> None:
    shipper = {"name": "log-shipper", "image": "example.com/log-shipper"}
    job = await training(
        runtime=await runtime(with_others(shipper, pod_failure_policy=FAIL_JOB_ON_42)), ranks=RANKS, gpus=1
    )
    async with controller() as process:
        await has_reconciled(process, job)
        pod = await exit_trainer(job, 2, 42)
        async with asyncio.timeout(GUARD_SECONDS):
            while not (await job.ledger()).get("incident"):
                await asyncio.sleep(0.05)
        assert (await job.ledger())["incident"]["attempts"][0]["action"] == "None"
        job.fleet.kubelets.exit_container(pod, 0, namespace=job.namespace, container="log-shipper")
        (incident,) = await job.closed_incidents(1)
    assert (incident["outcome"], incident["outcomeReason"]) == ("Failed", "NativePolicy")
    assert proxy.writes(is_trigger) == []
    (jobset,) = await job.items(JOB_SETS)
    assert jobset["status"]["terminalState"] == "Failed", json.dumps(jobset["status"])
