"""No node has room for a rank of a restarted group. The others give up their rendezvous, and the job lives on.

The node comes back after more exits than the `backoffLimit` of the shipped runtime allows. The Job controller and
JobSet are real. The ranks give up when the test says so.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from recovery import api_verbs
from recovery.core.model.reason import Reason
from recovery.ports import JOBS, TRAIN_JOBS
from tests.cluster.acts import exit_ranks, lose, until_reason
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Job, Object
from tests.cluster.test_recoveries import SHIPPED, no_node_for_rank_5
from tests.cluster.verdict import assert_recovered_once, member, remember

pytestmark = [pytest.mark.usefixtures("no_complaints"), pytest.mark.central]
OTHERS = 15
"""The ranks that have a node. Which rank has none is the scheduler's choice."""


Holds = Callable[[Job], Awaitable[bool]]


async def comes_true(holds: Holds, job: Job) -> None:
    """Wait until it holds for the job."""
    async with asyncio.timeout(GUARD_SECONDS):
        while not await holds(job):
            await asyncio.sleep(0.1)


async def child(job: Job) -> Object:
    found: Object = json.loads(await api_verbs.get(job.fleet.api, JOBS, job.child, namespace=job.namespace))
    return found


async def all_others_run(job: Job) -> bool:
    pods = [pod for pod in await job.pods() if "deletionTimestamp" not in pod["metadata"]]
    statuses = (status for pod in pods for status in pod["status"].get("containerStatuses", ()))
    return sum("running" in status["state"] for status in statuses) == OTHERS


async def restarts(job: Job) -> int:
    statuses = (status for pod in await job.pods() for status in pod["status"].get("containerStatuses", ()))
    return sum(status["restartCount"] for status in statuses)


async def test_the_job_survives_the_timeouts_of_the_ranks_that_wait(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await training(runtime=SHIPPED)
    async with controller():
        before = await remember(job)
        async with no_node_for_rank_5(job, before):
            await lose(job, 5)
            await job.reaches("Scheduling")
            for _ in range(2):
                await comes_true(all_others_run, job)
                await comes_true(survives_one_exit_of_each, job)
                await exit_ranks(job, [member(pod).rank for pod in await job.pods() if pod["spec"].get("nodeName")], 1)
                await comes_true(has_ended, job)
            await comes_true(all_others_run, job)
            await until_reason(job, Reason.WAITING_FOR_CAPACITY)
            assert await restarts(job) == 2 * OTHERS, "more than the six retries of the runtime"
        incident = await assert_recovered_once(job, proxy, before, suspects=[before[5]])
    assert [attempt["action"] for attempt in incident["attempts"]] == ["RecreateGroup"]
    own = (await child(job))["metadata"]["annotations"]["recovery.trainjob.dev/own-backoff-limit"]
    assert own == "6"


async def survives_one_exit_of_each(job: Job) -> bool:
    limit: int = (await child(job))["spec"]["backoffLimit"]
    return limit > await restarts(job) + OTHERS


async def has_ended(job: Job) -> bool:
    return not await all_others_run(job)


async def test_a_group_is_released_until_there_is_room_for_all_its_ranks(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await training(runtime=SHIPPED, whileWaiting="Release")
    async with controller():
        before = await remember(job)
        async with no_node_for_rank_5(job, before):
            await lose(job, 5)
            await job.reaches("Scheduling")
            await comes_true(is_free, job)
            await until_reason(job, Reason.RELEASED)
        [incident] = await job.closed_incidents(1)
        await job.trains(past=before.step)
    assert (incident["outcome"], incident["attempts"]) == ("Recovered", 1)
    assert incident["releasedGpuSeconds"] > 0, "others could have the GPUs"
    assert [f"{write.method} {write.resource}" for write in proxy.writes()].count("DELETE jobs") == 1


async def is_free(job: Job) -> bool:
    [made] = await job.items(TRAIN_JOBS)
    return bool(made["spec"].get("suspend")) and not await job.pods()
