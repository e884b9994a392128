"""The rate limit of a controller's client: client-go's token bucket.

The stock kube-controller-manager gives each of its controllers 20 requests a second and a burst of 30. So recreating a
group of 128 pods takes 13 s, most of it spent waiting here.
"""

from recovery.ports import Clock, Entropy

UNLIMITED = float("inf")


class Limiter:
    """A token bucket that serves requests in order of arrival. Each controller's client has its own."""

    def __init__(
        self,
        clock: Clock,
        *,
        per_second: float = 20.0,
        burst: int = 30,
        entropy: Entropy | None = None,
        request_seconds: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """`request_seconds`: the shortest and longest time that a request takes to arrive. `entropy` draws the time.

        So other requests can arrive between two requests of one sync. With (0, 0) nothing is drawn.
        """
        self._clock = clock
        self._entropy = entropy
        self._request_seconds = request_seconds
        self._per_second = per_second
        self._burst = burst
        self._free_at_seconds = 0.0
        """When the bucket is full again if no more requests come, in the clock's monotonic time."""

    async def take(self) -> None:
        """Wait until one request may be sent and has arrived."""
        await self._wait()
        if self._entropy and self._request_seconds[1] > 0:
            await self._clock.sleep(self._entropy.uniform(*self._request_seconds))

    async def _wait(self) -> None:
        if self._per_second == UNLIMITED:
            return
        now = self._clock.monotonic_seconds()
        self._free_at_seconds = max(self._free_at_seconds, now) + 1 / self._per_second
        wait_seconds = self._free_at_seconds - self._burst / self._per_second - now
        if wait_seconds > 0:
            await self._clock.sleep(wait_seconds)
