"""Many groups fail at once and the API server is slow to delete pods, or many change at once and one fails.

No group's trigger waits for the deletes of others, and none waits for healthy groups.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec
import pytest

from recovery.controller.leadership import SoleLeader
from recovery.controller.queue import COALESCE_SECONDS, GroupQueue
from recovery.controller.runner import _RECONCILES_AT_ONCE, Controller
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.core.model.ledger_object import LedgerObject
from recovery.executors.in_flight_limit import IN_FLIGHT_MAX
from recovery.ports import JOBS, PODS, ApiRequest, GroupChanged
from recovery.sim.virtual_time import VirtualClock, VirtualTimeLoop, virtual_time
from tests.unit.controller.fakes import Ears, FakeStore, LedgersApi
from tests.unit.controller.scene import lost
from tests.unit.controller.test_queue import Chance
from tests.unit.core.groups import training
from tests.unit.core.world import at


class Clock(VirtualClock):
    """Virtual time that starts at the date of the unit tests' world."""

    def now(self) -> datetime:
        return at(self.monotonic_seconds())


class NoPodGoes(LedgersApi):
    """Deletes of pods are never answered."""

    async def answer(self, request: ApiRequest) -> bytes:
        if (request.verb, request.resource) == ("delete", PODS):
            await asyncio.Event().wait()
        return await super().answer(request)


class Groups(FakeStore):
    """The same group many times, each in its own namespace."""

    def __init__(self, api: LedgersApi, count: int) -> None:
        super().__init__(api, lost())
        self._keys = [GroupKey(f"ml-{number}", "train") for number in range(count)]

    def keys(self) -> Iterable[GroupKey]:
        return tuple(self._keys)

    def snapshot(self, key: GroupKey) -> Snapshot:
        return _moved(super().snapshot(key), key)

    async def read_live(self, key: GroupKey) -> Snapshot:
        return _moved(await super().read_live(key), key)

    def orphans(self, key: GroupKey) -> Sequence[LedgerObject]:
        return ()

    def subscribe(self, changed: GroupChanged) -> None:
        """Nothing changes, so nothing is reported."""


def _moved(snapshot: Snapshot, key: GroupKey) -> Snapshot:
    assert snapshot.workload is not None
    workload = msgspec.structs.replace(snapshot.workload, uid=f"{snapshot.workload.uid}-{key.namespace}")
    pods = tuple(msgspec.structs.replace(pod, uid=f"{pod.uid}-{key.namespace}") for pod in snapshot.pods)
    return msgspec.structs.replace(snapshot, key=key, workload=workload, pods=pods)


@virtual_time
async def test_groups_whose_pod_deletes_hang_hold_up_no_trigger_of_another_group() -> None:
    api, clock, groups = NoPodGoes(), Clock(), 600
    controller = Controller(
        api=api,
        store=Groups(api, groups),
        clock=clock,
        entropy=Chance(),
        observer=Ears(),
        leadership=SoleLeader(clock),
    )
    running = asyncio.create_task(controller.run(asyncio.Event()))
    await asyncio.sleep(5)
    assert len(api.sent("delete", PODS)) == IN_FLIGHT_MAX, "no delete has come back, so no other was sent"
    assert {request.namespace for request in api.sent("delete", JOBS)} == {f"ml-{number}" for number in range(groups)}
    assert len(api.sent("delete", JOBS)) == groups
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(api.sent("delete", PODS)) == IN_FLIGHT_MAX, "the end of the term ends the deletes that wait"


class ReadsHang(Groups):
    """Live reads are answered only once `answers` is set."""

    def __init__(self, api: LedgersApi, count: int) -> None:
        super().__init__(api, count)
        self.answers = asyncio.Event()
        self.reconciled: list[str] = []
        """The namespaces of the groups, in the order of their reconciles."""

    def snapshot(self, key: GroupKey) -> Snapshot:
        self.reconciled.append(key.namespace)
        return super().snapshot(key)

    async def read_live(self, key: GroupKey) -> Snapshot:
        await self.answers.wait()
        return await super().read_live(key)

    def subscribe(self, changed: GroupChanged) -> None:
        self.changed = changed


@virtual_time
async def test_a_loss_gets_the_next_free_slot_before_a_change_that_came_earlier() -> None:
    clock, api = Clock(), NoPodGoes()
    store = ReadsHang(api, _RECONCILES_AT_ONCE)
    controller = Controller(
        api=api, store=store, clock=clock, entropy=Chance(), observer=Ears(), leadership=SoleLeader(clock)
    )
    running = asyncio.create_task(controller.run(asyncio.Event()))
    await asyncio.sleep(5)
    assert len(set(store.reconciled)) == _RECONCILES_AT_ONCE, "each of them holds a slot"
    store.changed(GroupKey("changed", "train"), loss=False)
    await asyncio.sleep(1)
    store.changed(GroupKey("lost", "train"), loss=True)
    await asyncio.sleep(1)
    store.answers.set()
    await asyncio.sleep(1)
    assert [each for each in dict.fromkeys(store.reconciled) if not each.startswith("ml-")] == ["lost", "changed"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


RECONCILE_SECONDS = 0.002
CHANGES_EVERY_SECONDS = 0.001
LATEST_LOSS_SECONDS = COALESCE_SECONDS + 10 * RECONCILE_SECONDS
"""A loss has two reconciles, the second one with live facts. Others may be running or take a turn before each."""


class OneProcessor(Groups):
    """Healthy groups, of which each reconcile takes time. Nothing else runs meanwhile, as in the real process."""

    lost: GroupKey | None = None

    def snapshot(self, key: GroupKey) -> Snapshot:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.spend(RECONCILE_SECONDS)
        return super().snapshot(key) if key == self.lost else _moved(training(4).snapshot(), key)

    def subscribe(self, changed: GroupChanged) -> None:
        self.changed = changed


async def seconds_until_trigger() -> float:
    """Twice as many changes arrive as the processor can handle. After one second a group loses a pod."""
    clock, api = Clock(), LedgersApi()
    store = OneProcessor(api, 2_000)
    lost_group = GroupKey("ml-5", "train")
    controller = Controller(
        api=api, store=store, clock=clock, entropy=Chance(), observer=Ears(), leadership=SoleLeader(clock)
    )
    running = asyncio.create_task(controller.run(asyncio.Event()))
    await asyncio.sleep(20)
    began = clock.monotonic_seconds()
    for number, key in enumerate(store.keys()):
        await asyncio.sleep(max(0.0, began + number * CHANGES_EVERY_SECONDS - clock.monotonic_seconds()))
        if number == 1_000:
            store.lost, at_loss = lost_group, clock.monotonic_seconds()
            store.changed(lost_group, loss=True)
        store.changed(key, loss=False)
        if api.sent("delete", JOBS):
            break
    while not api.sent("delete", JOBS):
        await asyncio.sleep(CHANGES_EVERY_SECONDS)
    took = clock.monotonic_seconds() - at_loss
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return took


@virtual_time
async def test_a_loss_among_thousands_of_changes_is_handled_within_a_few_reconciles_time() -> None:
    assert await seconds_until_trigger() <= LATEST_LOSS_SECONDS


@virtual_time
async def test_first_in_first_out_is_seen() -> None:
    """The measure that the test above relies on would show a queue without an urgent lane."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupQueue, "add", without_urgency(GroupQueue.add))
        patch.setattr(GroupQueue, "add_after", without_urgency(GroupQueue.add_after))
        assert await seconds_until_trigger() > 10 * LATEST_LOSS_SECONDS


def without_urgency(method: Callable[..., None]) -> Callable[..., None]:
    def queue(self: GroupQueue, *arguments: object, urgent: bool = False) -> None:
        method(self, *arguments)

    return queue
