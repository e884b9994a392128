"""A control loop as client-go makes them: keys of objects, one sync of a key at a time, level-triggered.

A model reads the server's state directly: its cache is always fresh. What makes real controllers late is modelled by a
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
"""The object is no longer what the sync took it for: sync again. Anything else is a bug of the model."""


class ModelController(ABC, Generic[K]):
    """Subclasses subscribe to the server, enqueue keys and sync them. Works while `run` does.

    A sync reads what is there, awaits `self.limiter.take()` before each write, and writes; between the two anything may
    have happened, as in the real ones, so it reads again what it depends on or lets the server refuse the write.
    """

    name = ""
    """As the actor of its writes."""
    longest_retry_seconds = 30.0
    """The most between two tries of a sync that fails."""

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
        """`delay_seconds`: least and most between a change and the sync of it."""
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
        """Sync one object and bring the world one step nearer to it."""

    async def run(self) -> None:
        """Until cancelled. Raises what is a bug of the model."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._start_some()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._tasks = None  # a sync that is ended by this must not begin another

    def enqueue(self, key: K) -> None:
        """Sync it soon. Many changes before the sync are one."""
        if key not in self._queued:
            self._queued.add(key)
            self._waiting.append(key)
            self._start_some()

    def enqueue_after(self, key: K, seconds: float) -> None:
        """Sync it in that many seconds, whatever happens before."""
        asyncio.get_running_loop().call_later(seconds, self.enqueue, key)

    def stall(self, stalled: bool) -> None:
        """A controller that hangs or is being restarted: it begins no sync until a call with False."""
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
