"""Two replicas, and the leader is killed or frozen in the middle of a recovery. It is still one incident, one charge.

Both reach the API server through one proxy. It holds a chosen request of the leader, so the test hits a chosen phase.
It releases the requests of a frozen leader only after the other one leads, so that they arrive as late as possible.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count

import pytest

from recovery import api_verbs
from recovery.ports import LEASES
from tests.cluster.acts import lose, object_kept
from tests.cluster.api_proxy import ApiProxy, Hold, SeenRequest
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import RECONCILES, ask, scrape
from tests.cluster.scene import LEASE_SECONDS, ControllerProcess, Job, until
from tests.cluster.stations import PASSING, in_phase, says
from tests.cluster.verdict import Before, assert_recovered_once, remember

pytestmark = pytest.mark.usefixtures("no_complaints")
PREPARED = "torch-recoverable"
RANKS = 8
VICTIM = 5
START_SECONDS = 3.0

HoldsIn = Callable[[ApiProxy], Hold]


def before_the_trigger(proxy: ApiProxy) -> Hold:
    """The ledger names the target; the trigger has not reached the server."""
    return proxy.hold(lambda seen: (seen.method, seen.resource) == ("DELETE", "jobs"))


def amid_the_pod_deletes(proxy: ApiProxy) -> Hold:
    """The Job is claimed, two of its pods are being deleted, and the ledger does not know it yet."""
    numbers = count(1)
    return proxy.hold(lambda seen: (seen.method, seen.resource) == ("DELETE", "pods") and next(numbers) > 2, every=True)


def once_it_says(phase: str) -> HoldsIn:
    """The ledger has that phase, but the leader has not received the answer to its write."""
    return lambda proxy: proxy.hold(says(phase), after=True)


PHASES = pytest.mark.parametrize(
    ("phase", "hold_in"),
    [
        pytest.param("Decided", before_the_trigger, id="Decided"),
        pytest.param("Decided", amid_the_pod_deletes, id="Decided-amid-the-pod-deletes"),
        pytest.param("TearingDown", once_it_says("TearingDown"), id="TearingDown"),
        pytest.param("Starting", once_it_says("Starting"), id="Starting"),
    ],
)


@asynccontextmanager
async def lasting(phase: str, job: Job) -> AsyncIterator[None]:
    """Keeps pods from ending, or from starting, so soon that one reconcile skips the phase."""
    pods = f"{job.child}-0-"
    if phase == "TearingDown":
        async with object_kept(job, await job.pod_of_rank(0)):
            yield
    elif phase == "Starting":
        job.fleet.kubelets.delay_start(pods, START_SECONDS, namespace=job.namespace)
        yield
        job.fleet.kubelets.delay_start(pods, 0.0, namespace=job.namespace)
    else:
        yield


async def reach(phase: str, hold_in: HoldsIn, job: Job, proxy: ApiProxy) -> tuple[Before, Hold]:
    """Break the training and wait until the leader is in that phase, with a request under way."""
    hold = hold_in(proxy)
    before = await remember(job)
    async with lasting(phase, job):
        await lose(job, VICTIM)
        await hold.wait()
    assert (await job.ledger())["phase"] == phase
    hold.withdraw()
    return before, hold


async def takes_over(standby: ControllerProcess, since: datetime, record: Callable[[str, object], None]) -> None:
    """Wait until the standby leads, and record how long that took."""
    await until("the standby leads", standby.leads)
    [said] = [line["ts"] for line in standby.lines() if line.get("msg") == "leading"]
    seconds = (datetime.fromisoformat(said) - since).total_seconds()
    record("handover_seconds", round(seconds, 2))
    print(f"the standby led {seconds:.2f} s later (lease {LEASE_SECONDS} s)")


@pytest.mark.central
@PHASES
async def test_the_leader_is_killed(
    phase: str,
    hold_in: HoldsIn,
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
    record_property: Callable[[str, object], None],
) -> None:
    job = await training(runtime=PREPARED, ranks=RANKS)
    async with controller() as leader, controller(standby=True) as standby:
        before, _ = await reach(phase, hold_in, job, proxy)
        await leader.kill()
        await takes_over(standby, job.fleet.clock.now(), record_property)
        await assert_recovered_once(job, proxy, before, suspects=[before[VICTIM]])


@pytest.mark.central
@PHASES
async def test_the_leader_is_frozen_for_longer_than_its_lease_and_goes_on(
    phase: str,
    hold_in: HoldsIn,
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
    record_property: Callable[[str, object], None],
) -> None:
    job = await training(runtime=PREPARED, ranks=RANKS)
    async with controller() as leader, controller(standby=True) as standby:
        before, hold = await reach(phase, hold_in, job, proxy)
        leader.freeze()
        frozen_at = job.fleet.clock.now()
        try:
            await takes_over(standby, frozen_at, record_property)
            frozen_seconds = (job.fleet.clock.now() - frozen_at).total_seconds()
            await asyncio.sleep(max(0.0, LEASE_SECONDS + 2 - frozen_seconds))
            hold.release()
            await until("what it had sent has arrived", lambda: all(seen.status for seen in deletes(proxy)))
        finally:
            leader.thaw()
        await until("the zombie has noticed", leader.stands_by)
        await assert_recovered_once(job, proxy, before, suspects=[before[VICTIM]])
        assert standby.leads()
        if phase == "Decided":
            assert [seen for seen in deletes(proxy) if seen.status in {404, 409}], "it came too late to do any harm"
        assert (await scrape(leader)).sum("recovery_leader") == 0


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
async def test_the_leader_is_killed_or_frozen_in_backoff(
    frozen: bool,
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
    record_property: Callable[[str, object], None],
) -> None:
    """The backoff ends while no replica leads, or while the leader that waits for it is frozen. It is resumed once.

    Until then the proxy keeps the standby from the Lease.
    """
    job = await training(ranks=2, gpus=1, **PASSING)
    async with controller() as leader, controller(standby=True) as standby:
        async with in_phase("Backoff", job, proxy):
            stopped_at = job.fleet.clock.now()
            if not frozen:
                await leader.kill()
            else:
                leader.freeze()
            kept_from_lease = proxy.hold(lambda seen: seen.resource == "leases", every=True)
            assert not standby.leads()
        try:
            resume_at = datetime.fromisoformat((await job.ledger())["nextAttemptAt"])
            while (wait_seconds := (resume_at - job.fleet.clock.now()).total_seconds()) > 0:
                await asyncio.sleep(wait_seconds)
            assert not standby.leads()
            assert [seen for seen in proxy.requests if suspend_of(seen) is False] == []
            kept_from_lease.release()
            await takes_over(standby, job.fleet.clock.now(), record_property)
            if frozen:
                gone_seconds = (job.fleet.clock.now() - stopped_at).total_seconds()
                await asyncio.sleep(max(0.0, LEASE_SECONDS + 2 - gone_seconds))
        finally:
            if frozen:
                leader.thaw()
        if frozen:
            await until("the zombie has noticed", leader.stands_by)
        history = await job.closed_incidents(2)
        await job.trains(past=job.fleet.world.step_of(job.training))
        assert [closed["outcome"] for closed in history] == ["Recovered", "Recovered"]
        ledger = await job.ledger()
        assert (ledger["epoch"], ledger["totals"]["charged"], ledger["totals"]["incidents"]) == (2, 2, 2)
        switched = [suspend_of(seen) for seen in proxy.writes(lambda seen: suspend_of(seen) is not None)]
        assert switched == [True, False], "suspended once, resumed once"


def suspend_of(seen: SeenRequest) -> bool | None:
    """The value of `spec.suspend` in an accepted patch of a TrainJob. None: it is no such patch."""
    if (seen.method, seen.resource, seen.status) != ("PATCH", "trainjobs", 200):
        return None
    values = [step["value"] for step in json.loads(seen.body) if step["path"] == "/spec/suspend"]
    return bool(values[0]) if values else None


@pytest.mark.central
async def test_a_leader_that_is_told_to_end_hands_over_without_a_wait_for_its_lease(
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
    record_property: Callable[[str, object], None],
) -> None:
    job = await training(runtime=PREPARED, ranks=RANKS)
    async with controller() as leader, controller(standby=True) as standby:
        assert await ask(standby, "/readyz") == (200, "ok\n"), "a rollout waits for it"
        samples = await scrape(standby)
        assert (samples.sum("recovery_leader"), samples.sum(RECONCILES)) == (0, 0)
        assert (await scrape(leader)).sum("recovery_leader") == 1
        told_at = job.fleet.clock.now()
        assert await leader.end() == 0
        await takes_over(standby, told_at, record_property)
        assert holders(proxy) == [leader.identity(), "", standby.identity()]
        lease = json.loads(
            await api_verbs.get(job.fleet.api, LEASES, "recovery-controller", namespace="recovery-system")
        )["spec"]
        assert (lease["holderIdentity"], lease["leaseTransitions"]) == (standby.identity(), 1)

        before = await remember(job)
        await lose(job, VICTIM)
        await assert_recovered_once(job, proxy, before, suspects=[before[VICTIM]])


def deletes(proxy: ApiProxy) -> list[SeenRequest]:
    """The deletions by both controllers, of Jobs and pods, including those under way."""
    return [seen for seen in proxy.requests if seen.method == "DELETE"]


def holders(proxy: ApiProxy) -> list[str]:
    """The holders of the Lease, in the order in which the API server accepted them. Empty: the Lease was released."""
    taken = [
        seen
        for seen in proxy.requests
        if seen.is_write and seen.resource == "leases" and seen.status is not None and seen.status < 300
    ]
    found: list[str] = []
    for seen in taken:
        body = json.loads(seen.body)
        record = body["spec"] if isinstance(body, dict) else body[1]["value"]
        if found[-1:] != [record["holderIdentity"]]:
            found.append(record["holderIdentity"])
    return found
