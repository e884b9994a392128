"""Deletes of old pods: each pod once and by its UID, a limited number at a time, group by group."""

import asyncio
from collections import Counter

import pytest

from recovery.core.plan.actions import DeleteJob, DeletePods, ForceDeletePods, PodRef
from recovery.executors import group_recreate
from recovery.executors.in_flight_limit import IN_FLIGHT_MAX, IN_FLIGHT_MIN, LATE_SECONDS
from recovery.executors.pod_teardown import PODS_PER_SECOND, PodTeardown
from recovery.kube.client import WRITES_IN_FLIGHT_MAX, KubeApiClient
from recovery.ports import (
    JOBS,
    PODS,
    ApiRequest,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    TryLaterError,
)
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.unit.controller.fakes import LedgersApi, SetClock
from tests.unit.fake_api import Sent

GONE = NotFoundError("not found", status=404)


class Scene:
    def __init__(self) -> None:
        self.api = LedgersApi()
        self.clock = SetClock()
        self.teardown = PodTeardown(self.api, self.clock)

    async def delete(self, *names: str, grace_seconds: int | None = None) -> None:
        pods = tuple(PodRef(name, f"uid-{name}") for name in names)
        await self.teardown.delete_pods("ml", DeletePods(epoch=1, pods=pods, grace_seconds=grace_seconds))

    async def force(self, *names: str) -> None:
        pods = tuple(PodRef(name, f"uid-{name}") for name in names)
        await self.teardown.delete_pods("ml", ForceDeletePods(epoch=1, pods=pods))

    @property
    def asked(self) -> list[str]:
        return [request.name for request in self.api.writes]


async def test_each_delete_names_the_uid_of_its_pod_and_leaves_it_its_own_grace() -> None:
    scene = Scene()
    await scene.delete("a", "b")
    assert scene.api.writes == [
        Sent("delete", PODS, "a", "ml", uid="uid-a"),
        Sent("delete", PODS, "b", "ml", uid="uid-b"),
    ]


async def test_the_grace_of_the_policy_is_passed_on() -> None:
    scene = Scene()
    await scene.delete("a", grace_seconds=5)
    assert [request.grace_seconds for request in scene.api.writes] == [5]


@pytest.mark.parametrize("error", [GONE, ConflictError("another uid", status=409)], ids=["gone", "replaced"])
async def test_a_pod_that_is_gone_or_whose_name_is_anothers_is_success(error: Exception) -> None:
    scene = Scene()
    scene.api.next("delete", PODS, error)
    await scene.delete("a", "b")
    assert scene.asked == ["a", "b"]


async def test_every_pod_is_tried_and_the_first_error_is_raised_afterwards() -> None:
    scene = Scene()
    scene.api.next("delete", PODS, ForbiddenError("no", status=403), name="b")
    scene.api.next("delete", PODS, TryLaterError("later", status=429), name="c")
    with pytest.raises(ForbiddenError):
        await scene.delete("a", "b", "c", "d")
    assert scene.asked == ["a", "b", "c", "d"]


async def test_only_the_pods_that_could_not_be_asked_are_asked_again_at_once() -> None:
    scene = Scene()
    scene.api.next("delete", PODS, TryLaterError("later", status=429), name="b")
    with pytest.raises(TryLaterError):
        await scene.delete("a", "b", "c")
    await scene.delete("a", "b", "c")
    assert scene.asked == ["a", "b", "c", "b"]


async def test_a_pod_is_not_asked_twice_within_half_a_minute_and_is_asked_again_after_that() -> None:
    scene = Scene()
    await scene.delete("a")
    scene.clock.seconds = 29.9
    await scene.delete("a", "b")
    assert scene.asked == ["a", "b"]
    scene.clock.seconds = 30
    await scene.delete("a", "b")
    assert scene.asked == ["a", "b", "a"]


async def test_a_pod_that_took_the_name_of_one_that_was_asked_is_another_pod() -> None:
    scene = Scene()
    for uid in ("uid-1", "uid-2"):
        action = DeletePods(epoch=1, pods=(PodRef("a", uid),), grace_seconds=None)
        await scene.teardown.delete_pods("ml", action)
    assert [request.uid for request in scene.api.writes] == ["uid-1", "uid-2"]


async def test_no_pods_is_no_request() -> None:
    scene = Scene()
    await scene.delete()
    assert scene.asked == []


# --- by force --------------------------------------------------------------------------------------------------------


async def test_by_force_no_one_is_waited_for_and_the_uid_is_named_even_so() -> None:
    scene = Scene()
    await scene.force("a", "b")
    assert scene.api.writes == [
        Sent("delete", PODS, "a", "ml", uid="uid-a", grace_seconds=0),
        Sent("delete", PODS, "b", "ml", uid="uid-b", grace_seconds=0),
    ]


async def test_a_pod_that_was_just_asked_in_good_order_is_forced_at_once_but_not_twice() -> None:
    scene = Scene()
    await scene.delete("a")
    await scene.force("a")
    await scene.force("a")
    await scene.delete("a")
    assert [request.grace_seconds for request in scene.api.writes] == [None, 0]
    scene.clock.seconds = 30
    await scene.force("a")
    assert [request.grace_seconds for request in scene.api.writes] == [None, 0, 0]


@pytest.mark.parametrize("error", [GONE, ConflictError("another uid", status=409)], ids=["gone", "replaced"])
async def test_one_that_is_gone_or_replaced_needs_no_force(error: Exception) -> None:
    scene = Scene()
    scene.api.next("delete", PODS, error)
    await scene.force("a", "b")
    assert scene.asked == ["a", "b"]


@virtual_time
async def test_force_may_have_no_more_in_flight_than_good_order() -> None:
    api = SlowApi()
    teardown = PodTeardown(api, VirtualClock())
    dead = ForceDeletePods(1, tuple(PodRef(f"dead-{i}", f"uid-dead-{i}") for i in range(1000)))
    forced = asyncio.create_task(teardown.delete_pods("ml", dead))
    orderly = asyncio.create_task(teardown.delete_pods("ml", pods_of("large", 1000)))
    await asyncio.sleep(1)
    assert api.in_flight == IN_FLIGHT_MAX
    await api.let_through(2000)
    await asyncio.gather(forced, orderly)
    assert api.most_in_flight == IN_FLIGHT_MAX


# --- over all groups -------------------------------------------------------------------------------------------------


class SlowApi(LedgersApi):
    """Holds pod deletes until the test lets them through. It accepts any number, like a client without a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Semaphore(0)
        self.in_flight = 0
        self.most_in_flight = 0
        self.at_seconds: list[float] = []

    async def answer(self, request: ApiRequest) -> bytes:
        self.at_seconds.append(asyncio.get_running_loop().time())
        if request.resource == PODS:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            await self.gate.acquire()
            self.in_flight -= 1
        return await super().answer(request)

    async def let_through(self, count: int) -> None:
        for _ in range(count):
            self.gate.release()
        await asyncio.sleep(1)

    @property
    def asked(self) -> Counter[str]:
        """The number of pod deletes by group, the first part of the pod's name."""
        return Counter(request.name.partition("-")[0] for request in self.sent("delete", PODS))


def pods_of(group: str, count: int) -> DeletePods:
    return DeletePods(1, tuple(PodRef(f"{group}-{i}", f"uid-{group}-{i}") for i in range(count)), None)


@virtual_time
async def test_a_thousand_deletes_that_hang_hold_up_no_trigger() -> None:
    api = SlowApi()
    teardown = PodTeardown(api, VirtualClock())
    large = asyncio.create_task(teardown.delete_pods("ml", pods_of("large", 1000)))
    await asyncio.sleep(1)
    assert api.in_flight == IN_FLIGHT_MAX
    assert IN_FLIGHT_MAX < WRITES_IN_FLIGHT_MAX, "of all writes, triggers and ledgers among them"
    await group_recreate.delete_job(api, "ml", DeleteJob(1, "small-node-0", "job-1", "7"))
    assert len(api.sent("delete", JOBS)) == 1
    await api.let_through(1000)
    await large
    assert api.asked["large"] == 1000
    assert api.most_in_flight == IN_FLIGHT_MAX


@virtual_time
async def test_a_small_group_does_not_wait_for_a_large_one_that_came_a_moment_before() -> None:
    api = SlowApi()
    teardown = PodTeardown(api, VirtualClock())
    large = asyncio.create_task(teardown.delete_pods("ml", pods_of("large", 1000)))
    await asyncio.sleep(0.01)
    small = asyncio.create_task(teardown.delete_pods("ml", pods_of("small", 16)))
    await asyncio.sleep(0.01)
    await api.let_through(16)
    assert api.asked == {"large": IN_FLIGHT_MAX, "small": 16}
    await api.let_through(1000)
    await asyncio.gather(large, small)
    assert api.asked == {"large": 1000, "small": 16}


@virtual_time
async def test_a_large_group_waits_for_no_small_one_that_comes_after_it_would_be_done() -> None:
    teardown = PodTeardown(Server(seconds_each=0.004), VirtualClock())
    large = asyncio.create_task(teardown.delete_pods("ml", pods_of("large", 1000)))
    await asyncio.sleep(1000 / PODS_PER_SECOND)
    await teardown.delete_pods("ml", pods_of("small", 16))
    assert large.done()


@virtual_time
async def test_groups_of_one_size_go_one_after_the_other_so_that_the_first_can_restart() -> None:
    api = SlowApi()
    teardown = PodTeardown(api, VirtualClock())
    groups = [asyncio.create_task(teardown.delete_pods("ml", pods_of(name, 100))) for name in ("a", "b", "c")]
    await asyncio.sleep(0.01)
    await api.let_through(100)
    assert [group.done() for group in groups] == [True, False, False]
    assert api.asked == {"a": 100, "b": IN_FLIGHT_MAX}
    await api.let_through(1000)
    await asyncio.gather(*groups)


@virtual_time
async def test_while_many_groups_wait_for_their_triggers_few_deletes_are_sent() -> None:
    api, waiting = Server(seconds_each=0.0005), [True]
    teardown = PodTeardown(api, VirtualClock(), triggers_wait=lambda: bool(waiting))
    deletes = asyncio.create_task(teardown.delete_pods("ml", pods_of("large", 1000)))
    await asyncio.sleep(0.25)
    assert api.waited[-1][1] < 0.001, "two at a time wait for one answer at most"
    waiting.clear()
    await asyncio.sleep(0.1)
    assert api.waited[-1][1] == pytest.approx(0.0005 * (IN_FLIGHT_MAX - 1))
    await deletes


# --- as fast as the server answers -----------------------------------------------------------------------------------


class Server(LedgersApi):
    """Answers one delete after the other. After `falls_behind_at` it needs ten times as long for each."""

    def __init__(self, *, seconds_each: float, falls_behind_at: float = float("inf")) -> None:
        super().__init__()
        self._seconds_each = seconds_each
        self._falls_behind_at = falls_behind_at
        self._free_at = 0.0
        self.waited: list[tuple[float, float]] = []
        """When each delete was sent, and for how long it waited in the server's queue."""

    async def answer(self, request: ApiRequest) -> bytes:
        now = asyncio.get_running_loop().time()
        began = max(now, self._free_at)
        self._free_at = began + self._seconds_each * (10 if now >= self._falls_behind_at else 1)
        self.waited.append((now, began - now))
        await asyncio.sleep(self._free_at - now)
        return await super().answer(request)


@virtual_time
async def test_a_quick_server_is_asked_as_fast_as_it_answers() -> None:
    api = Server(seconds_each=0.0005)
    await PodTeardown(api, VirtualClock()).delete_pods("ml", pods_of("large", 1000))
    assert asyncio.get_running_loop().time() == pytest.approx(0.5)


@virtual_time
async def test_a_server_that_falls_behind_gets_fewer_at_a_time_so_that_triggers_need_not_wait() -> None:
    api = Server(seconds_each=0.002, falls_behind_at=1)
    await PodTeardown(api, VirtualClock()).delete_pods("ml", pods_of("large", 1500))
    waited_before = [waited for at, waited in api.waited if at < 1]
    waited_after = [waited for at, waited in api.waited if at > 5]
    assert max(waited_before) == pytest.approx(0.094)
    assert len(waited_before) == pytest.approx(500 + IN_FLIGHT_MAX, abs=2), "no fewer while it answers in time"
    assert max(waited_after) < LATE_SECONDS + (IN_FLIGHT_MIN + 1) * 0.02, "and not 47 deletes of 20 ms each"
    assert asyncio.get_running_loop().time() == pytest.approx(1 + 1000 * 0.02, rel=0.05), "it is never idle"


class Busy(LedgersApi):
    """Refuses all deletes for a while with 429, and asks to try again after a second."""

    def __init__(self, *, until: float) -> None:
        super().__init__()
        self._until = until
        self.at_seconds: list[float] = []

    async def answer(self, request: ApiRequest) -> bytes:
        now = asyncio.get_running_loop().time()
        self.at_seconds.append(round(now, 3))
        if now < self._until:
            raise TryLaterError("too many requests", status=429, retry_after_seconds=1)
        await asyncio.sleep(0.01)
        return await super().answer(request)


class Mean:
    """`Entropy`: the lower end of each range."""

    def uniform(self, low: float, high: float) -> float:
        return low


@virtual_time
async def test_while_the_server_refuses_it_is_asked_once_a_retry_after_and_by_fewer_each_time() -> None:
    transport, clock = Busy(until=1.5), VirtualClock()
    api = KubeApiClient(transport, clock=clock, entropy=Mean())
    await PodTeardown(api, clock).delete_pods("ml", pods_of("large", 1000))
    sent = Counter(transport.at_seconds)
    assert [sent[0.0], sent[1.0], sent[2.0]] == [IN_FLIGHT_MAX] * 3, "the same 48, until they are answered"
    assert sent[2.02] == pytest.approx(IN_FLIGHT_MAX / 2, abs=1), "then half as many at a time"
    assert sent.total() == 1000 + 2 * IN_FLIGHT_MAX


@virtual_time
async def test_after_refusals_that_outlast_all_tries_the_next_deletes_are_few() -> None:
    transport, clock = Busy(until=1000), VirtualClock()
    teardown = PodTeardown(transport, clock)
    with pytest.raises(TryLaterError):
        await teardown.delete_pods("ml", pods_of("large", 1000))
    await asyncio.sleep(1000)
    transport.at_seconds.clear()
    await teardown.delete_pods("ml", pods_of("large", 1000))
    sent = Counter(transport.at_seconds)
    assert sent[transport.at_seconds[0]] == IN_FLIGHT_MIN
    assert max(sent.values()) > IN_FLIGHT_MIN * 4, "more with each answer in time"


# --- the end ---------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_reconcile_that_is_cancelled_gives_its_slots_and_its_turns_back() -> None:
    api = SlowApi()
    teardown = PodTeardown(api, VirtualClock())
    large = asyncio.create_task(teardown.delete_pods("ml", pods_of("large", 1000)))
    await asyncio.sleep(1)
    small = asyncio.create_task(teardown.delete_pods("ml", pods_of("small", 60)))
    await asyncio.sleep(1)
    large.cancel()
    await asyncio.gather(large, return_exceptions=True)
    await asyncio.sleep(1)
    assert api.asked == {"large": IN_FLIGHT_MAX, "small": IN_FLIGHT_MAX}
    await api.let_through(1000)
    await small
    assert api.asked["small"] == 60


@virtual_time
async def test_a_slot_that_is_granted_to_a_reconcile_in_the_moment_of_its_end_is_not_lost() -> None:
    api = SlowApi()
    teardown = PodTeardown(api, VirtualClock())
    holding = asyncio.create_task(teardown.delete_pods("ml", pods_of("holding", IN_FLIGHT_MAX)))
    await asyncio.sleep(1)
    waiting = asyncio.create_task(teardown.delete_pods("ml", pods_of("waiting", IN_FLIGHT_MAX)))
    await asyncio.sleep(1)
    holding.cancel()
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(holding, waiting, return_exceptions=True)
    asyncio.create_task(teardown.delete_pods("ml", pods_of("last", IN_FLIGHT_MAX)))  # noqa: RUF006
    await asyncio.sleep(1)
    assert api.asked["last"] == IN_FLIGHT_MAX
    await api.let_through(1000)


class SlowWebhook(LedgersApi):
    """A webhook of one namespace takes ten seconds for each delete of a pod, as one that times out does. The pods of
    the others are deleted in 5 ms."""

    async def answer(self, request: ApiRequest) -> bytes:
        await asyncio.sleep(10 if (request.name or "").startswith("large") else 0.005)
        return await super().answer(request)


@virtual_time
async def test_a_group_whose_deletes_hang_holds_up_no_other_until_it_is_done() -> None:
    teardown = PodTeardown(SlowWebhook(), VirtualClock())
    large = asyncio.create_task(teardown.delete_pods("slow", pods_of("large", 1000)))
    await asyncio.sleep(3)
    await teardown.delete_pods("ml", pods_of("small", 16))
    done_at = asyncio.get_running_loop().time()
    large.cancel()
    assert done_at < 30
