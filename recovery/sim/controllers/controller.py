"""A control loop as in client-go: a queue of object keys, one sync of a key at a time, level-triggered.

A model reads the server's state directly, so its cache is always fresh. The lag of real controllers is modelled by a
delay before each sync, by the request limit, and by `stall`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from recovery.ports import Clock, Entropy
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.controllers.request_limiter import Limiter

K = TypeVar("K", bound=Hashable)

FIRST_RETRY_SECONDS = 0.005
CONFLICTS = frozenset({404, 409, 410, 422})
"""Codes of answers to a write that was based on an outdated state: sync again. Any other code is a bug of the model."""


class ModelController(ABC, Generic[K]):
    """Subclasses subscribe to the server, enqueue keys and sync them. Syncs happen only while `run` is running.

    A sync reads the state, and awaits `self.limiter.take()` before each write. As in real controllers, anything may
    change during that wait. So the sync reads again what it depends on, or lets the server refuse the write.
    """

    name = ""
    """The actor of its writes."""
    longest_retry_seconds = 30.0
    """The longest time between two tries of a failing sync."""

    def __init__(
        self,
        server: ApiServer,
        clock: Clock,
        entropy: Entropy,
        *,
        limiter: Limiter,
        delay_seconds: tuple[float, float] = (0.001, 0.02),
        workers: int = 5,
    ) -> None:
        """`delay_seconds`: the shortest and longest delay between a change and its sync."""
        self.server = server
        self.clock = clock
        self.entropy = entropy
        self.limiter = limiter
        self._delay_seconds = delay_seconds
        self._workers = workers
        self._waiting: deque[K] = deque()
        self._queued: set[K] = set()
        self._busy: set[K] = set()
        self._failures: dict[K, int] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._stalled = False

    @abstractmethod
    async def sync(self, key: K) -> None:
        """Bring the cluster one step closer to the desired state of the object."""

    async def run(self) -> None:
        """Sync keys until cancelled. Raises the model's bugs."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._start_some()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None  # a sync that ends because of the cancellation must not start another

    def enqueue(self, key: K) -> None:
        """Sync the key soon. Several calls before the sync lead to one sync."""
        if key not in self._queued:
            self._queued.add(key)
            self._waiting.append(key)
            self._start_some()

    def enqueue_after(self, key: K, seconds: float) -> None:
        """Sync the key in that many seconds, even if it is synced before."""
        asyncio.get_running_loop().call_later(seconds, self.enqueue, key)

    def stall(self, stalled: bool) -> None:
        """Model a controller that hangs or restarts: it starts no sync until a call with False."""
        self._stalled = stalled
        self._start_some()

    def _start_some(self) -> None:
        if self._tasks is None or self._stalled:
            return
        for _ in range(len(self._waiting)):
            if len(self._busy) >= self._workers:
                return
            key = self._waiting.popleft()
            if key in self._busy:
                self._waiting.append(key)
                continue
            self._busy.add(key)
            self._tasks.create_task(self._sync_one(key))

    async def _sync_one(self, key: K) -> None:
        await self.clock.sleep(self.entropy.uniform(*self._delay_seconds))
        self._queued.discard(key)
        try:
            await self.sync(key)
        except StatusError as error:
            if error.code not in CONFLICTS:
                raise
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self.enqueue_after(key, min(self.longest_retry_seconds, FIRST_RETRY_SECONDS * 2.0 ** (failures - 1)))
        else:
            self._failures.pop(key, None)
        finally:
            self._busy.discard(key)
            self._start_some()
