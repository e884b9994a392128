"""Things that happen later, on the clock of the port: a kill at the end of a grace period, a process that times out.

One heap and one sleeper serve thousands of them, and those of one moment happen in order, which the loop's own timers
do not promise. Setting a timer starts nothing, so it is safe at any moment, that in which everything is being cancelled
included; an exception in what happens ends `run`, and with it the model.
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
    """Something to happen."""

    due_seconds: float
    """On the clock's monotonic scale."""
    serial: int
    happen: Callable[[], None]
    cancelled: bool = field(default=False)

    def __lt__(self, other: "Timer") -> bool:
        return (self.due_seconds, self.serial) < (other.due_seconds, other.serial)

    def cancel(self) -> None:
        """It will not happen; no effect if it has."""
        self.cancelled = True


class Timers:
    """Callbacks at later moments, those of one moment in the order in which they were set. Works while `run` does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[Timer] = []
        self._serial = 0
        self._asleep = False
        self._due = asyncio.Event()
        """Wakes the sleeper."""
        self._wake: asyncio.TimerHandle | None = None
        """Sets it for the earliest timer. None: there is none."""

    def after(self, seconds: float, happen: Callable[[], None]) -> Timer:
        """Call `happen` in that many seconds, unless cancelled."""
        self._serial += 1
        timer = Timer(self._clock.monotonic_seconds() + seconds, self._serial, happen)
        heapq.heappush(self._heap, timer)
        if self._asleep and self._heap[0] is timer:
            self._wake_in(seconds)
        return timer

    async def run(self) -> None:
        """Until cancelled; what was not due by then never happens."""
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
        """Once, in place of what was set before; infinity: not at all."""
        if self._wake:
            self._wake.cancel()
        self._wake = None if seconds == math.inf else asyncio.get_running_loop().call_later(seconds, self._due.set)

    def _fire(self) -> float:
        """Let everything happen that is due. Returns the seconds until the next is; infinity: there is none."""
        while self._heap:
            timer = self._heap[0]
            left_seconds = timer.due_seconds - self._clock.monotonic_seconds()
            if not timer.cancelled and left_seconds > SAME_INSTANT_SECONDS:
                return left_seconds
            heapq.heappop(self._heap)
            if not timer.cancelled:
                timer.happen()
        return math.inf
