"""Things that happen later, on the clock of the port: a kill at the end of a grace period, a process that times out.

One heap and one sleeper serve thousands of them. Setting a timer starts nothing, so it is safe at any moment, that in
which everything is being cancelled included; an exception in what happens ends `run`, and with it the model.
"""

import asyncio
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from recovery.ports import Clock

SAME_INSTANT_SECONDS = 1e-6


@dataclass(order=True)
class Timer:
    """Something to happen."""

    due_seconds: float
    """On the clock's monotonic scale."""
    serial: int
    happen: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """It will not happen; no effect if it has."""
        self.cancelled = True


class Timers:
    """Callbacks at later moments, those of one moment in the order in which they were set. Works while `run` does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[Timer] = []
        self._serial = 0
        self._earlier = asyncio.Event()
        """Set when the sleeper has to look again."""

    def after(self, seconds: float, happen: Callable[[], None]) -> Timer:
        """Call `happen` in that many seconds, unless cancelled."""
        self._serial += 1
        timer = Timer(self._clock.monotonic_seconds() + seconds, self._serial, happen)
        if not self._heap or timer < self._heap[0]:
            self._earlier.set()
        heapq.heappush(self._heap, timer)
        return timer

    async def run(self) -> None:
        """Until cancelled; what was not due by then never happens."""
        while True:
            self._earlier.clear()
            left_seconds = self._fire()
            if left_seconds == math.inf:
                await self._earlier.wait()
                continue
            sleeping = asyncio.ensure_future(self._clock.sleep(left_seconds))
            waking = asyncio.ensure_future(self._earlier.wait())
            try:
                await asyncio.wait((sleeping, waking), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeping.cancel()
                waking.cancel()

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
