"""Deletes of old pods: each pod once and by its UID, a limited number at a time, no group at another's expense."""

import asyncio
from collections import Counter

import pytest

from recovery.core.plan.actions import DeleteJob, DeletePods, ForceDeletePods, PodRef
from recovery.executors import group_recreate
from recovery.executors.pod_teardown import DELETES_AT_ONCE, DELETES_IN_FLIGHT_MAX, DELETES_PER_SECOND, PodTeardown
from recovery.kube.client import WRITES_IN_FLIGHT_MAX
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
async def test_force_has_no_more_slots_and_no_more_speed_than_good_order() -> None:
    api = SlowApi()
    teardown = PodTeardown(api, VirtualClock())
    dead = ForceDeletePods(1, tuple(PodRef(f"dead-{i}", f"uid-dead-{i}") for i in range(1000)))
    forced = asyncio.create_task(teardown.delete_pods("ml", dead))
    orderly = asyncio.create_task(teardown.delete_pods("ml", pods_of("large", 1000)))
    await asyncio.sleep(1)
    assert api.in_flight == DELETES_IN_FLIGHT_MAX
    await api.let_through(2000)
    await asyncio.gather(forced, orderly)
    assert api.most_in_flight == DELETES_IN_FLIGHT_MAX
    assert max(api.at_seconds) >= (2000 - DELETES_AT_ONCE) / DELETES_PER_SECOND


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
    assert api.in_flight == DELETES_IN_FLIGHT_MAX
    assert DELETES_IN_FLIGHT_MAX < WRITES_IN_FLIGHT_MAX, "of all writes, triggers and ledgers among them"
    await group_recreate.delete_job(api, "ml", DeleteJob(1, "small-node-0", "job-1", "7"))
    assert len(api.sent("delete", JOBS)) == 1
    await api.let_through(1000)
    await large
    assert api.asked["large"] == 1000
    assert api.most_in_flight == DELETES_IN_FLIGHT_MAX


@virtual_time
async def test_a_small_group_does_not_wait_for_all_the_pods_of_a_large_one() -> None:
    api = SlowApi()
    teardown = PodTeardown(api, VirtualClock())
    large = asyncio.create_task(teardown.delete_pods("ml", pods_of("large", 1000)))
    await asyncio.sleep(1)
    small = asyncio.create_task(teardown.delete_pods("ml", pods_of("small", 16)))
    await asyncio.sleep(1)
    await api.let_through(32)
    assert api.asked == {"large": DELETES_IN_FLIGHT_MAX + 16, "small": 16}, "every other slot is the small group's"
    await api.let_through(1000)
    await asyncio.gather(large, small)
    assert api.asked == {"large": 1000, "small": 16}


@virtual_time
async def test_beyond_the_first_the_deletes_come_at_a_steady_rate() -> None:
    api = SlowApi()
    api.gate = asyncio.Semaphore(10_000)
    await PodTeardown(api, VirtualClock()).delete_pods("ml", pods_of("large", 1000))
    assert sum(at == 0 for at in api.at_seconds) == DELETES_AT_ONCE
    for second in (0.5, 1.0, 2.0):
        sent = sum(at <= second for at in api.at_seconds)
        assert abs(sent - DELETES_AT_ONCE - second * DELETES_PER_SECOND) <= 1


@virtual_time
async def test_after_a_rest_as_many_as_at_first_go_at_once() -> None:
    api = SlowApi()
    api.gate = asyncio.Semaphore(10_000)
    teardown = PodTeardown(api, VirtualClock())
    await teardown.delete_pods("ml", pods_of("first", 400))
    await asyncio.sleep(60)
    await teardown.delete_pods("ml", pods_of("second", 400))
    last = api.at_seconds[400:]
    assert sum(at == last[0] for at in last) == DELETES_AT_ONCE


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
    assert api.asked == {"large": DELETES_IN_FLIGHT_MAX, "small": DELETES_IN_FLIGHT_MAX}
    await api.let_through(1000)
    await small
    assert api.asked["small"] == 60


@virtual_time
async def test_a_slot_that_is_granted_to_a_reconcile_in_the_moment_of_its_end_is_not_lost() -> None:
    api = SlowApi()
    teardown = PodTeardown(api, VirtualClock())
    holding = asyncio.create_task(teardown.delete_pods("ml", pods_of("holding", DELETES_IN_FLIGHT_MAX)))
    await asyncio.sleep(1)
    waiting = asyncio.create_task(teardown.delete_pods("ml", pods_of("waiting", DELETES_IN_FLIGHT_MAX)))
    await asyncio.sleep(1)
    holding.cancel()
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(holding, waiting, return_exceptions=True)
    asyncio.create_task(teardown.delete_pods("ml", pods_of("last", DELETES_IN_FLIGHT_MAX)))  # noqa: RUF006
    await asyncio.sleep(1)
    assert api.asked["last"] == DELETES_IN_FLIGHT_MAX
    await api.let_through(1000)
