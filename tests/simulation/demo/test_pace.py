"""Virtual time at the pace of real time: what waits, what does not, and what is closed when it is interrupted."""

import asyncio
from dataclasses import dataclass, field

import pytest

from recovery.sim.demo.pace import Pace, run_at_pace
from recovery.sim.virtual_time import VirtualClock


@dataclass
class Machine:
    """A real clock, and how long the work of one virtual moment takes."""

    work_seconds: float = 0.0
    now: float = 1000.0
    waits: list[float] = field(default_factory=list)

    def real_seconds(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(round(seconds, 6))
        self.now += seconds

    async def work(self, clock: VirtualClock, moments: int) -> float:
        """Works at each whole second. Returns the virtual time of the end."""
        for _ in range(moments):
            self.now += self.work_seconds
            await clock.sleep(1.0)
        return clock.monotonic_seconds()


def run(machine: Machine, moments: int) -> float:
    return run_at_pace(machine.work(VirtualClock(), moments), Pace(machine.real_seconds, machine.wait))


def test_a_virtual_second_takes_a_real_one() -> None:
    machine = Machine()

    assert run(machine, 3) == 3.0
    assert machine.waits == [1.0, 1.0, 1.0]


def test_the_work_of_the_machine_counts() -> None:
    machine = Machine(work_seconds=0.25)

    assert run(machine, 3) == 3.0
    assert machine.waits == [0.75, 0.75, 0.75]


def test_a_machine_that_is_too_slow_waits_for_nothing_and_loses_no_virtual_time() -> None:
    machine = Machine(work_seconds=60.0)

    assert run(machine, 3) == 3.0
    assert machine.waits == []


def test_after_a_pause_of_the_machine_it_catches_up() -> None:
    machine = Machine()

    async def pause_once() -> None:
        await machine.work(VirtualClock(), 1)
        machine.now += 2.5
        await machine.work(VirtualClock(), 4)

    run_at_pace(pause_once(), Pace(machine.real_seconds, machine.wait))
    assert machine.waits == [1.0, 0.5, 1.0]


def test_an_interrupt_cancels_what_runs_so_that_it_closes_what_it_has_opened() -> None:
    closed = []

    def interrupted(virtual_seconds: float) -> None:
        raise KeyboardInterrupt

    async def opened() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            closed.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_at_pace(opened(), interrupted)
    assert closed == [True]


def test_an_error_that_nothing_awaits_is_raised() -> None:
    async def forget() -> None:
        asyncio.get_running_loop().call_soon(_fail)
        await asyncio.sleep(1)

    with pytest.raises(ZeroDivisionError):
        run_at_pace(forget(), lambda virtual_seconds: None)


def _fail() -> None:
    raise ZeroDivisionError
