"""Timers on the clock of the port: a kill at the end of a grace period, the timeout of a process.

One heap and one sleeper serve thousands of timers. Timers of the same instant fire in order, which the event loop's own
timers do not guarantee. Setting a timer starts no task, so it is safe at any time, even while everything is being
cancelled. An exception in a callback ends `run`, and with it the model.
"""

import asyncio
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from recovery.ports import Clock

SAME_INSTANT_SECONDS = 1e-6


@dataclass(slots=True)
class Timer:
    """A callback to run later."""

    due_seconds: float
    """In the clock's monotonic time."""
    serial: int
    happen: Callable[[], None]
    cancelled: bool = field(default=False)

    def __lt__(self, other: "Timer") -> bool:
        return (self.due_seconds, self.serial) < (other.due_seconds, other.serial)

    def cancel(self) -> None:
        """Cancel the timer. No effect if it has fired."""
        self.cancelled = True


class Timers:
    """Runs callbacks later, those of the same instant in the order in which they were set, while `run` is running."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[Timer] = []
        self._serial = 0
        self._asleep = False
        self._due = asyncio.Event()
        """Wakes the sleeper."""
        self._wake: asyncio.TimerHandle | None = None
        """Sets `_due` for the earliest timer. None: there is no timer."""

    def after(self, seconds: float, happen: Callable[[], None]) -> Timer:
        """Call `happen` in that many seconds, unless cancelled."""
        self._serial += 1
        timer = Timer(self._clock.monotonic_seconds() + seconds, self._serial, happen)
        heapq.heappush(self._heap, timer)
        if self._asleep and self._heap[0] is timer:
            self._wake_in(seconds)
        return timer

    async def run(self) -> None:
        """Fire timers until cancelled. Timers that are not due by then never fire."""
        while True:
            self._due.clear()
            self._wake_in(self._fire())
            self._asleep = True
            try:
                await self._due.wait()
            finally:
                self._asleep = False
                self._wake_in(math.inf)

    def _wake_in(self, seconds: float) -> None:
        """Wake the sleeper in that many seconds instead of at the earlier set time. Infinity: do not wake it."""
        if self._wake:
            self._wake.cancel()
        self._wake = None if seconds == math.inf else asyncio.get_running_loop().call_later(seconds, self._due.set)

    def _fire(self) -> float:
        """Fire all due timers. Returns the seconds until the next one. Infinity: there is none."""
        while self._heap:
            timer = self._heap[0]
            left_seconds = timer.due_seconds - self._clock.monotonic_seconds()
            if not timer.cancelled and left_seconds > SAME_INSTANT_SECONDS:
                return left_seconds
            heapq.heappop(self._heap)
            if not timer.cancelled:
                timer.happen()
        return math.inf
