"""How many requests a second a controller's client may send: client-go's token bucket.

The stock kube-controller-manager gives each of its controllers 20 requests a second and a burst of 30: recreating a
group of 128 pods takes it 13 s, most of which is waiting here.
"""

from recovery.ports import Clock, Entropy

UNLIMITED = float("inf")


class Limiter:
    """A token bucket that serves requests in the order in which they come. One for each controller's client."""

    def __init__(
        self,
        clock: Clock,
        *,
        per_second: float = 20.0,
        burst: int = 30,
        entropy: Entropy | None = None,
        request_seconds: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """`request_seconds`: the least and most that a request takes to arrive, which `entropy` draws.

        Others then come between two requests of one sync. With (0, 0) nothing is drawn.
        """
        self._clock = clock
        self._entropy = entropy
        self._request_seconds = request_seconds
        self._per_second = per_second
        self._burst = burst
        self._free_at_seconds = 0.0
        """When the bucket would be full again if no more requests came (by the clock's monotonic time)."""

    async def take(self) -> None:
        """Wait for the right to send one request, and until it arrives."""
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
