"""Timers: those that are due run in order, and cancelled ones do not run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from recovery.sim.timers import Timers
from recovery.sim.virtual_time import VirtualClock, virtual_time


@asynccontextmanager
async def running() -> AsyncIterator[Timers]:
    timers = Timers(VirtualClock())
    task = asyncio.create_task(timers.run())
    yield timers
    task.cancel()


@virtual_time
async def test_they_fire_at_their_time_in_order() -> None:
    fired: list[tuple[str, float]] = []
    clock = VirtualClock()

    def note(name: str) -> None:
        fired.append((name, clock.monotonic_seconds()))

    async with running() as timers:
        timers.after(30, lambda: note("late"))
        await asyncio.sleep(5)
        timers.after(10, lambda: note("early"))
        timers.after(25, lambda: note("as late"))
        await asyncio.sleep(100)
        assert fired == [("early", 15.0), ("late", 30.0), ("as late", 30.0)]


@virtual_time
async def test_a_cancelled_one_does_not_fire_and_holds_up_nothing() -> None:
    fired: list[str] = []
    async with running() as timers:
        timers.after(10, lambda: fired.append("cancelled")).cancel()
        timers.after(20, lambda: fired.append("kept"))
        await asyncio.sleep(21)
        assert fired == ["kept"]


@virtual_time
async def test_one_may_set_another() -> None:
    fired: list[str] = []
    async with running() as timers:

        def first() -> None:
            timers.after(0, lambda: fired.append("second"))

        timers.after(10, first)
        await asyncio.sleep(10.5)
        assert fired == ["second"]


@virtual_time
async def test_what_breaks_in_one_ends_the_run() -> None:
    timers = Timers(VirtualClock())
    task = asyncio.create_task(timers.run())
    fired: list[str] = []
    timers.after(1, lambda: fired.remove("absent"))
    with pytest.raises(ValueError, match="not in list"):
        await task
