"""The queue: a group is reconciled once at a time, many changes make one reconcile, and failures back off."""

import asyncio

from recovery.controller.queue import (
    COALESCE_SECONDS,
    HEALTHY_COALESCE_SECONDS,
    HEALTHY_EVERY_SECONDS,
    URGENT_IN_A_ROW,
    GroupQueue,
    Taken,
)
from recovery.core.model.facts import GroupKey
from recovery.sim.virtual_time import VirtualClock, virtual_time

ONE, OTHER = GroupKey("ml", "one"), GroupKey("ml", "other")


class Chance:
    """`ports.Entropy` that always draws the same share of the range."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self.share


def queue(share: float = 1.0) -> GroupQueue:
    return GroupQueue(VirtualClock(), Chance(share))


def seconds() -> float:
    return VirtualClock().monotonic_seconds()


async def taken(queue: GroupQueue) -> GroupKey:
    """The next key. Raises TimeoutError if none comes."""
    async with asyncio.timeout(3600):
        found = await queue.take()
    assert found is not None, "the queue is closed"
    return found[0]


async def nothing_within(queue: GroupQueue, seconds: float) -> bool:
    """Whether nothing is taken in that time. No one else may take from the queue."""
    take = asyncio.create_task(queue.take())
    done, _ = await asyncio.wait({take}, timeout=seconds)
    take.cancel()
    return not done


@virtual_time
async def test_many_changes_within_a_moment_are_one_reconcile() -> None:
    changes = queue()
    for _ in range(40):
        changes.add(ONE)
        await asyncio.sleep(HEALTHY_COALESCE_SECONDS / 100)
    assert await taken(changes) == ONE
    assert seconds() == HEALTHY_COALESCE_SECONDS
    changes.done(ONE)
    assert await nothing_within(changes, 3600)


@virtual_time
async def test_a_healthy_group_that_keeps_changing_is_reconciled_four_times_a_second() -> None:
    changes = queue()
    taken_at: list[float] = []

    async def reconciles() -> None:
        while True:
            taken_at.append((await taken(changes), seconds())[1])
            await asyncio.sleep(0.01)
            changes.done(ONE)

    working = asyncio.create_task(reconciles())
    for _ in range(200):
        changes.add(ONE)
        await asyncio.sleep(0.005)
    working.cancel()
    assert [round(at, 3) for at in taken_at] == [0.05, 0.3, 0.55, 0.8]


@virtual_time
async def test_a_loss_is_reconciled_within_milliseconds_although_its_group_waits_already() -> None:
    changes = queue()
    changes.add(ONE)
    changes.add(ONE, urgent=True)
    assert await changes.take() == Taken(ONE, urgent=True, waited_seconds=0.0)
    assert seconds() == COALESCE_SECONDS
    changes.done(ONE)
    assert await nothing_within(changes, 3600)


@virtual_time
async def test_a_loss_goes_before_all_healthy_groups_however_long_they_are_due() -> None:
    changes = queue()
    for number in range(500):
        changes.add_after(GroupKey("ml", f"healthy-{number}"), 0)
    await asyncio.sleep(10)
    changes.add(ONE, urgent=True)
    await asyncio.sleep(COALESCE_SECONDS)
    assert await taken(changes) == ONE


@virtual_time
async def test_healthy_groups_have_their_turns_in_a_storm_of_losses() -> None:
    """A healthy group may have lost a member in a way that no event shows, or a person asks for something."""
    changes = queue()
    for number in range(100):
        changes.add_after(GroupKey("ml", f"lost-{number}"), 0, urgent=True)
    changes.add_after(ONE, 0)
    changes.add_after(OTHER, 0)
    order = [await taken(changes) for _ in range(102)]
    assert order.index(ONE) == URGENT_IN_A_ROW
    assert order.index(OTHER) == 2 * URGENT_IN_A_ROW + 1


@virtual_time
async def test_a_loss_during_a_reconcile_is_urgent_afterwards_and_so_is_a_retry() -> None:
    changes = queue()
    changes.add_after(ONE, 0)
    assert await taken(changes) == ONE
    changes.add(ONE, urgent=True)
    changes.done(ONE)
    assert await changes.take() == Taken(ONE, urgent=True, waited_seconds=0.0)
    changes.retry(ONE, urgent=True)
    changes.done(ONE)
    assert await changes.take() == Taken(ONE, urgent=True, waited_seconds=0.0)


@virtual_time
async def test_an_earlier_time_wins_and_a_later_one_is_dropped() -> None:
    changes = queue()
    changes.add_after(ONE, 60)
    changes.add_after(ONE, 10)
    changes.add_after(ONE, 30)
    assert await taken(changes) == ONE
    assert seconds() == 10
    changes.done(ONE)
    assert await nothing_within(changes, 3600)


@virtual_time
async def test_an_earlier_time_wakes_a_take_that_waits_already() -> None:
    changes = queue()
    changes.add_after(ONE, 600)
    take = asyncio.create_task(changes.take())
    await asyncio.sleep(1)
    changes.add_after(OTHER, 2)
    assert await take == Taken(OTHER, urgent=False, waited_seconds=0.0)
    assert seconds() == 3


@virtual_time
async def test_groups_come_in_the_order_of_their_times_and_it_is_told_how_late_they_are() -> None:
    changes = queue()
    changes.add_after(OTHER, 2)
    changes.add_after(ONE, 1)
    await asyncio.sleep(5)
    assert await changes.take() == Taken(ONE, urgent=False, waited_seconds=4.0)
    assert await changes.take() == Taken(OTHER, urgent=False, waited_seconds=3.0)


@virtual_time
async def test_a_time_in_the_past_is_now() -> None:
    changes = queue()
    changes.add_after(ONE, -100)
    assert await changes.take() == Taken(ONE, urgent=False, waited_seconds=0.0)


@virtual_time
async def test_a_group_being_reconciled_is_never_taken_twice_at_once_and_once_more_afterwards() -> None:
    changes = queue()
    changes.add(ONE)
    assert await taken(changes) == ONE
    for _ in range(3):
        changes.add(ONE)
    assert await nothing_within(changes, 100)
    changes.done(ONE)
    assert await taken(changes) == ONE
    changes.done(ONE)
    assert await nothing_within(changes, 3600)


@virtual_time
async def test_what_is_asked_for_later_during_a_reconcile_keeps_its_time() -> None:
    changes = queue()
    changes.add_after(ONE, 0)
    assert await taken(changes) == ONE
    changes.add_after(ONE, 90)
    changes.add_after(ONE, 30)
    changes.add_after(ONE, 60)
    await asyncio.sleep(10)
    changes.done(ONE)
    assert await taken(changes) == ONE
    assert seconds() == 30


@virtual_time
async def test_other_groups_do_not_wait_for_one_that_is_being_reconciled() -> None:
    changes = queue()
    changes.add(ONE)
    changes.add(OTHER)
    assert await taken(changes) == ONE
    assert await taken(changes) == OTHER


@virtual_time
async def test_retries_wait_twice_as_long_each_time_up_to_half_a_minute() -> None:
    most, least = queue(1.0), queue(0.0)
    ceilings = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    for ceiling in ceilings:
        assert round(most.retry(ONE), 6) == ceiling
        assert round(least.retry(ONE), 6) == ceiling / 2
    for _ in range(2000):
        assert most.retry(ONE) == 30.0


@virtual_time
async def test_a_retry_comes_when_it_was_said_to_come() -> None:
    changes = queue()
    changes.add_after(ONE, 0)
    assert await taken(changes) == ONE
    delay = changes.retry(ONE)
    changes.done(ONE)
    assert await taken(changes) == ONE
    assert seconds() == delay


@virtual_time
async def test_a_group_that_fails_is_left_in_peace_however_often_it_changes() -> None:
    changes = queue()
    changes.add_after(ONE, 0)
    assert await taken(changes) == ONE
    changes.add(ONE)
    delay = changes.retry(ONE)
    changes.done(ONE)
    changes.add(ONE)
    assert await taken(changes) == ONE
    assert seconds() == delay
    changes.succeeded(ONE)
    changes.add(ONE)
    changes.done(ONE)
    assert await taken(changes) == ONE
    assert seconds() == delay + HEALTHY_EVERY_SECONDS


@virtual_time
async def test_success_forgets_the_failures_of_that_group_alone() -> None:
    changes = queue()
    for key in (ONE, OTHER, ONE, OTHER):
        changes.retry(key)
    changes.succeeded(ONE)
    assert changes.retry(ONE) == 0.1
    assert changes.retry(OTHER) == 0.4
    changes.succeeded(GroupKey("ml", "never failed"))


@virtual_time
async def test_closing_ends_a_take_that_waits_and_all_later_ones() -> None:
    for prepare in (lambda _: None, lambda changes: changes.add_after(ONE, 600)):
        changes = queue()
        prepare(changes)
        take = asyncio.create_task(changes.take())
        await asyncio.sleep(1)
        changes.close()
        assert await take is None
        changes.add_after(ONE, 0)
        assert await changes.take() is None
    assert seconds() == 2


@virtual_time
async def test_depth_counts_what_is_due_and_neither_what_is_later_nor_what_is_reconciled() -> None:
    changes = queue()
    assert changes.depth == 0
    changes.add(ONE)
    changes.add_after(OTHER, 60)
    assert changes.depth == 1
    assert await taken(changes) == ONE
    changes.add(ONE)
    assert changes.depth == 0
    changes.done(ONE)
    assert changes.depth == 1
    await asyncio.sleep(60)
    assert changes.depth == 2
