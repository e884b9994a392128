"""The pace of the demo: virtual time, slowed down to real time so that a person can follow.

A slow machine makes the demo longer. It changes no virtual second, so it changes nothing that the demo prints.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from recovery.sim.virtual_time import VirtualTimeLoop, raising_unhandled

T = TypeVar("T")


class Pace:
    """Waits until as much real time as virtual time has passed. It does not wait where the machine is behind."""

    def __init__(
        self, real_seconds: Callable[[], float] = time.monotonic, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._real_seconds = real_seconds
        self._wait = wait
        self._began = real_seconds()

    def __call__(self, virtual_seconds: float) -> None:
        ahead_seconds = virtual_seconds - (self._real_seconds() - self._began)
        if ahead_seconds > 0:
            self._wait(ahead_seconds)


def run_at_pace(work: Coroutine[Any, Any, T], pace: Callable[[float], None]) -> T:
    """Run the coroutine on its own loop in virtual time. What interrupts it also cancels its tasks, so that they close
    what they have opened."""
    loop = VirtualTimeLoop(pace=pace)
    with raising_unhandled(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)
