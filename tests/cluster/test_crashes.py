"""The controller is killed between two of its writes and started again: nothing is repeated and nothing is lost.

The proxy holds a chosen request of the first controller, or the answer to it, while SIGKILL ends that controller. What
was held never arrives. The second controller knows only what the API server has.
"""

import asyncio
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import count

import pytest

from tests.cluster.acts import lose, object_kept, second_is_over
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Job, Object
from tests.cluster.stations import has_triggered, is_trigger
from tests.cluster.verdict import Before, Member, assert_one_trigger, assert_recovered_once, member, moment, remember

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints")]
PREPARED = "torch-recoverable"
VICTIM = 5


def writes_ledger(seen: SeenRequest) -> bool:
    return (seen.method, seen.resource) == ("PATCH", "recoverygroups/status")


def deletes_pod(seen: SeenRequest) -> bool:
    return (seen.method, seen.resource) == ("DELETE", "pods")


async def break_it(job: Job) -> Before:
    """Delete the pod of one rank, in a later second than the one in which the ranks met: a new leader knows no more."""
    before = await remember(job)
    await second_is_over()
    await lose(job, VICTIM)
    return before


async def test_killed_before_the_ledger_is_written(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """The API server has no record of the incident yet. The deleted pod, which a finalizer keeps, shows the loss."""
    job = await training(runtime=PREPARED)
    async with AsyncExitStack() as while_kept:
        await while_kept.enter_async_context(object_kept(job, await job.pod_of_rank(VICTIM)))
        async with controller() as first:
            hold = proxy.hold(writes_ledger)
            before = await break_it(job)
            await hold.wait()
            await first.kill()
        assert await job.ledger() == {}
        async with controller():
            await job.reaches("TearingDown")
            await while_kept.aclose()
            await assert_recovered_once(job, proxy, before, suspects=[before[VICTIM]])


async def test_killed_before_the_ledger_is_written_and_the_deleted_pod_is_gone(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """The only evidence left is the Job's new pod in a group that had trained. It dates the loss."""
    job = await training(runtime=PREPARED)
    async with controller() as first:
        hold = proxy.hold(writes_ledger)
        before = await break_it(job)
        await hold.wait()
        await first.kill()
    assert await job.ledger() == {}
    replacement, created_at = await replaced(job, before)
    async with controller():
        incident = await assert_recovered_once(job, proxy, before, suspects=[replacement], dated_at=created_at)
    assert "it replaced a member whose loss was not seen" in incident["message"]


async def test_killed_after_the_ledger_is_written(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """The ledger names the target, and the target still exists. The second controller carries out the decision."""
    job = await training(runtime=PREPARED)
    async with controller() as first:
        hold = proxy.hold(writes_ledger, after=True)
        before = await break_it(job)
        await hold.wait()
        await first.kill()
    assert proxy.writes(is_trigger) == []
    assert target_of(await job.ledger()) == [before.job_uid]
    async with controller():
        await assert_recovered_once(job, proxy, before, suspects=[before[VICTIM]])


async def test_killed_after_the_trigger(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """The Job and its pods are being deleted, but the first controller never got the answer. The second one deletes
    neither again."""
    job = await training(runtime=PREPARED)
    async with controller() as first:
        hold = proxy.hold(has_triggered, after=True)
        before = await break_it(job)
        await hold.wait()
        await first.kill()
    assert_one_trigger(proxy)
    asked = [write.path for write in proxy.writes(deletes_pod)]
    assert len(asked) == len(set(asked)), "each once"
    # The victim's own pod may be gone by then, or have a replacement, which goes too.
    others = {each.pod for each in before.members} - {before[VICTIM].pod}
    assert {path.rpartition("/")[2] for path in asked} >= others
    assert len(asked) <= job.ranks
    async with controller():
        await assert_recovered_once(job, proxy, before, suspects=[before[VICTIM]])
    assert [write.path for write in proxy.writes(deletes_pod)] == asked


async def test_killed_amid_the_pod_deletes(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """At most five of the pods are being deleted. The second controller deletes the others."""
    job = await training(runtime=PREPARED)
    numbers = count(1)
    async with controller() as first:
        hold = proxy.hold(lambda seen: deletes_pod(seen) and next(numbers) > 5, every=True)
        before = await break_it(job)
        await hold.wait()
        await first.kill()
        hold.withdraw()
    assert len(proxy.writes(deletes_pod)) <= 5
    async with controller():
        await assert_recovered_once(job, proxy, before, suspects=[before[VICTIM]])


async def replaced(job: Job, before: Before) -> tuple[Member, datetime]:
    """Wait until the Job's replacement of the lost pod has a node; returns it and its creation time.

    The Job controller backs off for 10 s after a Job's first failed pod.
    """
    async with asyncio.timeout(GUARD_SECONDS):
        while True:
            for pod in await job.pods():
                found = member(pod)
                if found.rank == VICTIM and found.pod != before[VICTIM].pod and found.node:
                    return found, moment(pod["metadata"]["creationTimestamp"])
            await asyncio.sleep(0.1)


def target_of(ledger: Object) -> list[str]:
    """UIDs of the Jobs that are the target of the open incident."""
    uids: list[str] = ledger["incident"]["target"]["jobUIDs"]
    return uids
