"""The work queue: which groups to reconcile, each at most once at a time, coalesced for a few milliseconds.

Forty pods lost with one switch are forty events of one group within a few milliseconds, but only one reconcile. A group
that changes while it is reconciled is reconciled once more afterwards, never twice at the same time.
"""

import asyncio
import heapq
from itertools import count

from recovery.core.model.facts import GroupKey
from recovery.ports import Clock, Entropy

COALESCE_SECONDS = 0.005
_BACKOFF_INITIAL_SECONDS = 0.1
_BACKOFF_MAX_SECONDS = 30.0


class GroupQueue:
    """A delaying queue of group keys: an earlier time for a key wins over a later one."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._due: dict[GroupKey, float] = {}
        self._heap: list[tuple[float, int, GroupKey]] = []
        self._sequence = count()
        self._running: dict[GroupKey, float | None] = {}
        """Groups being reconciled, and when to reconcile each again. None: not requested so far."""
        self._failures: dict[GroupKey, int] = {}
        self._not_before: dict[GroupKey, float] = {}
        """The end of a failing group's backoff. Until then it is not reconciled, even if it changes."""
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def depth(self) -> int:
        """Groups that wait for a reconcile that is due, or will be within the coalescing time."""
        soon = self._clock.monotonic_seconds() + COALESCE_SECONDS
        return sum(due <= soon for due in self._due.values())

    def add(self, key: GroupKey) -> None:
        """Reconcile the group soon."""
        self.add_after(key, COALESCE_SECONDS)

    def add_after(self, key: GroupKey, seconds: float) -> None:
        """Reconcile the group in `seconds`, unless an earlier reconcile is due."""
        due = max(self._clock.monotonic_seconds() + max(0.0, seconds), self._not_before.get(key, 0.0))
        if key in self._running:
            wanted = self._running[key]
            self._running[key] = due if wanted is None else min(wanted, due)
            return
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._sequence), key))
        self._changed.set()

    def retry(self, key: GroupKey) -> float:
        """Reconcile again after a failure, with jittered exponential backoff; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        ceiling = min(_BACKOFF_MAX_SECONDS, _BACKOFF_INITIAL_SECONDS * 2.0 ** min(failures, 20))
        delay = self._entropy.uniform(ceiling / 2, ceiling)
        self._not_before[key] = self._clock.monotonic_seconds() + delay
        self.add_after(key, delay)
        return delay

    def succeeded(self, key: GroupKey) -> None:
        """Forget the failures of the group."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    async def take(self) -> tuple[GroupKey, float] | None:
        """The next group that is due, and for how many seconds it has been due. None once the queue is closed.

        The caller must call `done` for it. There must be only one caller.
        """
        while not self._closed:
            now = self._clock.monotonic_seconds()
            while self._heap and self._heap[0][0] <= now:
                due, _, key = heapq.heappop(self._heap)
                if self._due.get(key) != due:
                    continue  # an earlier reconcile has replaced this one
                del self._due[key]
                self._running[key] = None
                return key, now - due
            await self._wait(now)
        return None

    def done(self, key: GroupKey) -> None:
        """The reconcile of the group is over. Queue the next one if it was requested meanwhile."""
        wanted = self._running.pop(key)
        if wanted is not None:
            self.add_after(key, wanted - self._clock.monotonic_seconds())

    def close(self) -> None:
        """Let every `take` return None."""
        self._closed = True
        self._changed.set()

    async def _wait(self, now: float) -> None:
        """Wait until something changes or the next reconcile is due."""
        self._changed.clear()
        if not self._heap:
            await self._changed.wait()
            return
        waiter = asyncio.ensure_future(self._changed.wait())
        sleeper = asyncio.ensure_future(self._clock.sleep(max(0.0, self._heap[0][0] - now)))
        try:
            await asyncio.wait({waiter, sleeper}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
            sleeper.cancel()
