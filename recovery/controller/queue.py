"""The work queue: which groups to reconcile, each at most once at a time, urgent ones first.

Forty pods lost with one switch are forty events of one group within a few milliseconds, but only one reconcile. A group
that changes while it is reconciled is reconciled once more afterwards, never twice at the same time.

A group is urgent if it may have lost a member, or has an open incident. The callers say so. Its reconciles go before
those of the other groups: in a large cluster hundreds of groups change every second, and a loss must not wait behind
them. The other groups take a turn now and then, so that a storm of losses does not keep a healthy group waiting until
it ends. They are also coalesced for longer, because nothing is lost meanwhile: a group of a thousand pods that become
Ready one after the other is reconciled four times a second.
"""

import asyncio
import heapq
import math
from itertools import count
from typing import NamedTuple

from recovery.core.model.facts import GroupKey
from recovery.ports import Clock, Entropy

COALESCE_SECONDS = 0.005
HEALTHY_COALESCE_SECONDS = 0.05
HEALTHY_EVERY_SECONDS = 0.25
"""The least time between two reconciles of a group that is not urgent and keeps changing."""
URGENT_IN_A_ROW = 8
"""How many urgent groups go before one that is not urgent and is due."""
_BACKOFF_INITIAL_SECONDS = 0.1
_BACKOFF_MAX_SECONDS = 30.0


class _Turn(NamedTuple):
    """When a group is to be reconciled. Turns of the same time keep their order."""

    due: float
    number: int
    key: GroupKey
    urgent: bool


class Taken(NamedTuple):
    """A group to reconcile now."""

    key: GroupKey
    urgent: bool
    waited_seconds: float
    """For how long it has been due."""


class GroupQueue:
    """A delaying queue of group keys: an earlier time for a key wins over a later one, and urgent over not urgent."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._turns: dict[GroupKey, _Turn] = {}
        """The groups that wait."""
        self._urgent: list[_Turn] = []
        self._others: list[_Turn] = []
        """Heaps. They also have turns that others have replaced in the meantime."""
        self._in_a_row = 0
        self._taken_at: dict[GroupKey, float] = {}
        """When each group was last taken, oldest first, of those taken within `HEALTHY_EVERY_SECONDS`."""
        self._sequence = count()
        self._running: dict[GroupKey, _Turn | None] = {}
        """Groups being reconciled, and the next turn of each. None: not requested so far."""
        self._failures: dict[GroupKey, int] = {}
        self._not_before: dict[GroupKey, float] = {}
        """The end of a failing group's backoff. Until then it is not reconciled, even if it changes."""
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def depth(self) -> int:
        """Groups that wait for a reconcile that is due, or will be within the coalescing time."""
        soon = self._clock.monotonic_seconds() + HEALTHY_EVERY_SECONDS
        return sum(turn.due <= soon for turn in self._turns.values())

    def add(self, key: GroupKey, *, urgent: bool = False) -> None:
        """Reconcile the group soon."""
        if urgent:
            self.add_after(key, COALESCE_SECONDS, urgent=True)
            return
        rest = self._taken_at.get(key, -math.inf) + HEALTHY_EVERY_SECONDS - self._clock.monotonic_seconds()
        self.add_after(key, max(HEALTHY_COALESCE_SECONDS, rest))

    def add_after(self, key: GroupKey, seconds: float, *, urgent: bool = False) -> None:
        """Reconcile the group in `seconds`, unless an earlier reconcile is due."""
        due = max(self._clock.monotonic_seconds() + max(0.0, seconds), self._not_before.get(key, 0.0))
        running = key in self._running
        known = self._running[key] if running else self._turns.get(key)
        if known is not None:
            due, urgent = min(due, known.due), urgent or known.urgent
            if (due, urgent) == (known.due, known.urgent):
                return
        turn = _Turn(due, next(self._sequence), key, urgent)
        if running:
            self._running[key] = turn
        else:
            self._wait_for(turn)

    def _wait_for(self, turn: _Turn) -> None:
        self._turns[turn.key] = turn
        heapq.heappush(self._urgent if turn.urgent else self._others, turn)
        self._changed.set()

    def retry(self, key: GroupKey, *, urgent: bool = False) -> float:
        """Reconcile again after a failure, with jittered exponential backoff; returns the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        ceiling = min(_BACKOFF_MAX_SECONDS, _BACKOFF_INITIAL_SECONDS * 2.0 ** min(failures, 20))
        delay = self._entropy.uniform(ceiling / 2, ceiling)
        self._not_before[key] = self._clock.monotonic_seconds() + delay
        self.add_after(key, delay, urgent=urgent)
        return delay

    def succeeded(self, key: GroupKey) -> None:
        """Forget the failures of the group."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    async def take(self) -> Taken | None:
        """The next group that is due. None once the queue is closed.

        The caller must call `done` for it. There must be only one caller.
        """
        while not self._closed:
            now = self._clock.monotonic_seconds()
            turn = self._next(now)
            if turn is not None:
                del self._turns[turn.key]
                self._running[turn.key] = None
                self._remember(turn.key, now)
                return Taken(turn.key, turn.urgent, now - turn.due)
            await self._wait(now)
        return None

    def _remember(self, key: GroupKey, now: float) -> None:
        self._taken_at.pop(key, None)
        self._taken_at[key] = now
        while (oldest := next(iter(self._taken_at))) != key and self._taken_at[oldest] < now - HEALTHY_EVERY_SECONDS:
            del self._taken_at[oldest]

    def _next(self, now: float) -> _Turn | None:
        """The turn that is next, and no longer in its heap. None: no group is due."""
        urgent, other = self._first(self._urgent), self._first(self._others)
        other_is_due = other is not None and other.due <= now
        if urgent is not None and urgent.due <= now and not (other_is_due and self._in_a_row >= URGENT_IN_A_ROW):
            self._in_a_row += 1
            return heapq.heappop(self._urgent)
        if not other_is_due:
            return None
        self._in_a_row = 0
        return heapq.heappop(self._others)

    def _first(self, heap: list[_Turn]) -> _Turn | None:
        """The earliest turn that still counts. None: there is none."""
        while heap and self._turns.get(heap[0].key) is not heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def done(self, key: GroupKey) -> None:
        """The reconcile of the group is over. Queue the next one if it was requested meanwhile."""
        wanted = self._running.pop(key)
        if wanted is not None:
            due = max(self._clock.monotonic_seconds(), wanted.due, self._not_before.get(key, 0.0))
            self._wait_for(wanted._replace(due=due))

    def close(self) -> None:
        """Let every `take` return None."""
        self._closed = True
        self._changed.set()

    async def _wait(self, now: float) -> None:
        """Wait until something changes or the next reconcile is due."""
        self._changed.clear()
        first = [turn.due for turn in (self._first(self._urgent), self._first(self._others)) if turn is not None]
        if not first:
            await self._changed.wait()
            return
        waiter = asyncio.ensure_future(self._changed.wait())
        sleeper = asyncio.ensure_future(self._clock.sleep(max(0.0, min(first) - now)))
        try:
            await asyncio.wait({waiter, sleeper}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
            sleeper.cancel()
