"""The event loop that jumps from timer to timer: what runs when, and how a run ends."""

import asyncio
from datetime import timedelta

import pytest

from recovery.sim.virtual_time import BEGIN, DeadlockError, VirtualClock, run_in_virtual_time, virtual_time


@virtual_time
async def test_waiting_is_a_jump_to_the_next_timer() -> None:
    clock = VirtualClock()

    await clock.sleep(86_400.0 * 3)

    assert clock.monotonic_seconds() == pytest.approx(86_400.0 * 3)
    assert clock.now() == BEGIN + timedelta(days=3)


@virtual_time
async def test_no_time_passes_while_there_is_something_to_run() -> None:
    clock = VirtualClock()

    for _ in range(1000):
        await asyncio.sleep(0)

    assert clock.monotonic_seconds() == 0.0


@virtual_time
async def test_whoever_waits_shorter_is_first() -> None:
    woken: list[str] = []

    async def wait(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(f"{name} at {asyncio.get_running_loop().time():g}")

    await asyncio.gather(wait("slow", 60), wait("quick", 0.5), wait("middling", 2))

    assert woken == ["quick at 0.5", "middling at 2", "slow at 60"]


def test_nothing_to_run_and_nothing_waited_for_is_an_error() -> None:
    async def forget() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError):
        run_in_virtual_time(forget())


def test_a_timer_that_was_cancelled_is_not_waited_for() -> None:
    async def forget() -> None:
        asyncio.get_running_loop().call_later(60, lambda: None).cancel()
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError):
        run_in_virtual_time(forget())


@pytest.mark.parametrize("others", range(8))
def test_timers_of_one_moment_are_called_in_the_order_in_which_they_were_set(others: int) -> None:
    """The heap alone is not stable: earlier and later timers in it move the ones between."""

    async def order() -> list[int]:
        loop = asyncio.get_running_loop()
        called: list[int] = []
        for number in range(others):
            loop.call_at(1.0 + number, lambda: None)
        for number in range(50):
            loop.call_at(9.0, called.append, number)
            if number % 5 < others:
                loop.call_at(9.0 - number / 100 - others / 10, lambda: None)
        await asyncio.sleep(20)
        return called

    assert run_in_virtual_time(order()) == list(range(50))


@virtual_time
async def test_sleepers_of_one_moment_wake_up_in_the_order_in_which_they_lay_down() -> None:
    woken: list[int] = []

    async def wait(number: int) -> None:
        await asyncio.sleep(number / 4)
        await asyncio.sleep(10 - number / 4)
        woken.append(number)

    await asyncio.gather(*(wait(number) for number in range(8)))

    assert woken == list(range(8)), "all woke up at 10 s; who set its last timer first is first"


@virtual_time
async def test_a_set_of_tasks_is_gone_through_in_the_order_in_which_they_were_made() -> None:
    """By default the order would depend on their addresses in memory."""

    async def nothing() -> None: ...

    gap: list[object] = []
    tasks = []
    for number in range(200):
        tasks.append(asyncio.create_task(nothing()))
        gap.append(bytearray(number * 37 % 4096))  # So the tasks are not adjacent in memory.
    serials = [hash(task) for task in tasks]

    assert serials == list(range(serials[0], serials[0] + len(tasks)))
    assert list(set(tasks[7::-1])) == list(set(tasks[:8]))
    await asyncio.gather(*tasks)


@virtual_time
async def test_tasks_are_numbered_again_in_each_run() -> None:
    current = asyncio.current_task()
    assert hash(current) == 1


def test_an_exception_that_no_one_awaited_ends_the_run() -> None:
    reached: list[float] = []

    async def fail() -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError("of a task that no one looks after")

    async def work() -> None:
        forgotten = asyncio.create_task(fail())
        forgotten.add_done_callback(lambda _: None)
        del forgotten
        await asyncio.sleep(10)
        reached.append(asyncio.get_running_loop().time())

    with pytest.raises(ZeroDivisionError, match="no one looks after"):
        run_in_virtual_time(work())
    assert not reached, "nothing goes on as if it had not been"


def test_an_exception_in_a_timer_ends_the_run() -> None:
    reached: list[float] = []

    def fail() -> None:
        raise LookupError("in a callback")

    async def work() -> None:
        asyncio.get_running_loop().call_later(5, fail)
        await asyncio.sleep(10)
        reached.append(asyncio.get_running_loop().time())

    with pytest.raises(LookupError, match="in a callback"):
        run_in_virtual_time(work())
    assert not reached


def test_an_exception_that_no_one_awaited_is_raised_though_the_work_ended_before_it_was_noticed() -> None:
    async def fail() -> None:
        raise ZeroDivisionError("noticed late")

    async def work() -> str:
        forgotten = asyncio.create_task(fail())
        await asyncio.wait({forgotten})
        return "done"

    with pytest.raises(ZeroDivisionError, match="noticed late"):
        run_in_virtual_time(work())


def test_what_the_work_raises_is_raised() -> None:
    async def fail() -> None:
        raise RuntimeError("its own")

    with pytest.raises(RuntimeError, match="its own"):
        run_in_virtual_time(fail())


def test_a_task_that_is_left_over_is_no_failure() -> None:
    async def work() -> str:
        forgotten = asyncio.create_task(asyncio.sleep(3600))
        await asyncio.sleep(0)
        assert not forgotten.done()
        return "done"

    assert run_in_virtual_time(work()) == "done"
