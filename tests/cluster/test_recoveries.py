"""After a killed pod, an eviction, a cascade or a restarted container, the group is recovered exactly once.

Every test breaks a 16-node training in its own way and then uses the verdict of `tests.cluster.verdict`.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime

import pytest

from recovery import api_verbs
from recovery.ports import NODES, PatchKind
from recovery.sim.training.trace import EventKind
from tests.cluster.acts import evict, exit_rank, exit_ranks, lose, no_restarts
from tests.cluster.api_proxy import ApiProxy
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import ask, scrape, workload_writes
from tests.cluster.scene import Fleet, Job, until
from tests.cluster.verdict import Before, Member, assert_recovered_once, member, remember

pytestmark = pytest.mark.usefixtures("no_complaints")
SHIPPED, PREPARED = "torch-distributed", "torch-recoverable"
REPLACED = "its Job replaces the pod, and the other ranks are not restarted"
WhileItLasts = Callable[[Job, Before], AbstractAsyncContextManager[None]]
"""Keeps the new group in a phase, for long enough to lose a member in it."""
both_runtimes = pytest.mark.parametrize(
    "runtime", [pytest.param(SHIPPED, id="shipped", marks=pytest.mark.central), pytest.param(PREPARED, id="prepared")]
)
"""CI runs the shipped one, which leaves the controller less time and less evidence."""


@asynccontextmanager
async def cordoned(fleet: Fleet, nodes: Iterable[str]) -> AsyncIterator[None]:
    """These nodes take no new pods inside the block."""
    names = list(nodes)
    try:
        for name in names:
            await api_verbs.patch(fleet.api, NODES, name, {"spec": {"unschedulable": True}}, kind=PatchKind.MERGE)
        yield
    finally:
        for name in names:
            await api_verbs.patch(fleet.api, NODES, name, {"spec": {"unschedulable": None}}, kind=PatchKind.MERGE)


@both_runtimes
async def test_a_deleted_pod(
    runtime: str, training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await training(runtime=runtime)
    async with controller():
        before = await remember(job)
        await lose(job, 5)
        incident = await assert_recovered_once(job, proxy, before, suspects=[before[5]])
    assert (incident["class"], incident["cause"]) == ("PodDeleted", "PodDeleted")


async def test_a_pod_deleted_with_a_grace_of_centuries(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """Its deletionTimestamp is in another century. The controller can read it, and its caches lose nothing."""
    job = await training(ranks=4)
    async with controller() as process:
        before = await remember(job)
        await lose(job, 2, grace_seconds=10**11)
        incident = await assert_recovered_once(job, proxy, before, suspects=[before[2]])
        samples = await scrape(process)
        assert await ask(process, "/readyz") == (200, "ok\n")
    assert (incident["class"], incident["cause"]) == ("PodDeleted", "PodDeleted")
    assert samples.by("resource", "recovery_undecodable_objects")["pods"] == 0


@both_runtimes
async def test_an_evicted_pod(
    runtime: str, training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await training(runtime=runtime)
    async with controller():
        before = await remember(job)
        await evict(job, 5)
        incident = await assert_recovered_once(job, proxy, before, suspects=[before[5]])
    assert (incident["class"], incident["cause"]) == ("PodDisrupted", "EvictionByEvictionAPI")


@both_runtimes
async def test_eight_exits_at_once(
    runtime: str, training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """A switch fails. On the shipped runtime the restarts of the containers would exhaust the backoffLimit, so the
    controller does not wait for them."""
    job = await training(runtime=runtime)
    async with controller():
        before = await remember(job)
        victims = [before[rank] for rank in range(4, 12)]
        with no_restarts(job):
            await exit_ranks(job, range(4, 12), 1)
            exits = job.fleet.world.trace.of(job.training, EventKind.PROCESS_EXITED)
            assert (len(exits), workload_writes(proxy)) == (8, []), "all of them before the controller acts"
            incident = await assert_recovered_once(job, proxy, before, suspects=victims, exit_code=1)
    assert incident["class"] == "Unknown", "an exit code 1 that says nothing"


@pytest.mark.central
async def test_a_container_restarted_in_place_on_the_shipped_runtime(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await training(runtime=SHIPPED)
    async with controller():
        before = await remember(job)
        await exit_rank(job, 5, 1)
        incident = await assert_recovered_once(job, proxy, before, suspects=[before[5]], exit_code=1)
    assert (incident["class"], incident["cause"]) == ("Unknown", "Exit1")


@pytest.mark.central
async def test_a_pod_failed_with_137_on_the_prepared_runtime(
    training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    job = await training(runtime=PREPARED)
    async with controller():
        before = await remember(job)
        await exit_rank(job, 5, 137)
        incident = await assert_recovered_once(job, proxy, before, suspects=[before[5]], exit_code=137)
    assert (incident["class"], incident["cause"]) == ("Killed", "Exit137")


@both_runtimes
async def test_a_second_kill_while_the_old_pods_are_torn_down(
    runtime: str, training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """The survivors hang and ignore SIGTERM, so this lasts. The kill hits a pod that is being deleted: no effect."""
    job = await training(runtime=runtime, teardown={"graceSeconds": 10})
    async with controller():
        before = await remember(job)
        await exit_rank(job, 5, 1)
        await job.reaches("TearingDown")
        job.fleet.kubelets.exit_container(before[9].pod, 137, namespace=job.namespace)
        await assert_recovered_once(job, proxy, before, suspects=[before[5]], exit_code=1)


@asynccontextmanager
async def no_node_for_rank_5(job: Job, before: Before) -> AsyncIterator[None]:
    """Its replacement waits for a node inside the block."""
    spares = set(job.fleet.nodes) - {member.node for member in before.members}
    async with cordoned(job.fleet, {before[5].node, *spares}):
        yield


@asynccontextmanager
async def rank_3_starts_slowly(job: Job, before: Before) -> AsyncIterator[None]:
    del before
    job.fleet.kubelets.delay_start(f"{job.child}-3-", 20.0, namespace=job.namespace)
    yield


@both_runtimes
@pytest.mark.parametrize(
    ("phase", "while_it_lasts"), [("Scheduling", no_node_for_rank_5), ("Starting", rank_3_starts_slowly)]
)
async def test_a_second_kill_before_all_new_ranks_have_run(
    runtime: str,
    phase: str,
    while_it_lasts: WhileItLasts,
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
) -> None:
    """They have not all run at the same time yet. The Job replaces the lost member, and no rank hangs."""
    job = await training(runtime=runtime)
    async with controller():
        before = await remember(job)
        async with while_it_lasts(job, before):
            await lose(job, 5)
            victim, killed_at = await lose_a_new_member_in(job, phase, before)
        then = f"{victim} was deleted before all ranks ran; {REPLACED}"
        incident = await assert_recovered_once(
            job, proxy, before, suspects=[before[5]], then=then, last_kill_at=killed_at
        )
    assert [attempt["action"] for attempt in incident["attempts"]] == ["RecreateGroup", "None"]


@both_runtimes
async def test_a_second_kill_while_the_ranks_join(
    runtime: str, training: StartsTraining, controller: StartsController, proxy: ApiProxy
) -> None:
    """All new ranks ran at the same time, so the others hang again. A second trigger follows, with no new charge."""
    job = await training(runtime=runtime, backoff={"initial": "0s"})
    async with controller():
        before = await remember(job)
        job.fleet.kubelets.delay_ready(f"{job.child}-3-", 600.0, namespace=job.namespace)
        await lose(job, 5)
        await job.reaches("Rendezvous")
        job.fleet.kubelets.delay_ready(f"{job.child}-3-", 0.0, namespace=job.namespace)
        victim, killed_at = await member_of_rank(job, 9), job.fleet.clock.now()
        job.fleet.kubelets.exit_container(victim.pod, 137, namespace=job.namespace)
        incident = await assert_recovered_once(
            job, proxy, before, suspects=[before[5]], then=f"{victim} ", last_kill_at=killed_at, triggers=2
        )
    assert "exit code 137; attempt 2: deleting Job llm-node-0 again" in incident["message"]
    assert [attempt["action"] for attempt in incident["attempts"]] == ["RecreateGroup", "RecreateGroup"]


async def lose_a_new_member_in(job: Job, phase: str, before: Before) -> tuple[Member, datetime]:
    """Delete a pod of the new group that runs already, while the group as a whole is in that phase."""

    def new_ranks() -> list[int]:
        starts = job.fleet.world.trace.of(job.training, EventKind.PROCESS_STARTED)
        return [start.index for start in starts if start.job_uid != before.job_uid and start.index is not None]

    await until("a rank of the new group runs", lambda: bool(new_ranks()))
    await job.reaches(phase)
    victim, killed_at = await member_of_rank(job, new_ranks()[0]), job.fleet.clock.now()
    await lose(job, victim.rank)
    return victim, killed_at


async def member_of_rank(job: Job, rank: int) -> Member:
    name = await job.pod_of_rank(rank)
    return next(member(pod) for pod in await job.pods() if pod["metadata"]["name"] == name)
