"""Candidates of an election. Each has its own clock and its own connection to the server."""

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from recovery.controller.leadership import Elector
from recovery.controller.leadership_guard import LeadershipTerm
from recovery.sim.virtual_time import VirtualClock
from tests.unit.controller.leases import LeaseServer, Way

LEASE = 15
TERM = 10.0
RETRY_MAX = 2 * 1.5


class OwnClock(VirtualClock):
    """The clock of one machine: it runs at its own rate, and its date may be wrong."""

    def __init__(self, *, rate: float = 1.0, ahead: timedelta = timedelta()) -> None:
        self.rate = rate
        self.ahead = ahead
        self.running = asyncio.Event()
        """Clear: the process is stopped, but its clock runs."""
        self.running.set()

    def now(self) -> datetime:
        return super().now() + self.ahead

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() * self.rate

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.rate)
        await self.running.wait()


class Candidate:
    """A process that leads whenever it can. It records its terms and why they ended."""

    def __init__(self, server: LeaseServer, name: str, *, clock: OwnClock | None = None, seed: int = 1) -> None:
        self.name = name
        self.way = Way(server)
        self.clock = clock or OwnClock()
        self.elector = Elector(
            api=self.way,
            clock=self.clock,
            entropy=random.Random(seed),
            namespace="recovery-system",
            identity=name,
            lease_seconds=LEASE,
        )
        self.current = True
        """Its knowledge of the cluster is current."""
        self.elector.follow(lambda: self.current)
        self.term: LeadershipTerm | None = None
        self.led_at: list[float] = []
        self.lost: list[tuple[float, str]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        return self.term is not None and self.term.lasts

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self.term = await self.elector.acquire()
            self.led_at.append(VirtualClock().monotonic_seconds())
            why = await self.elector.hold(self.term)
            assert not self.term.lasts
            self.lost.append((VirtualClock().monotonic_seconds(), why))

    async def kill(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def end(self) -> None:
        """End as the runner does: first stop all work of this term, then release the lease."""
        await self.kill()
        if self.term is not None:
            self.term.end()
        await self.elector.release()


@asynccontextmanager
async def running(*candidates: Candidate) -> Any:
    for candidate in candidates:
        candidate.start()
        await asyncio.sleep(1)
    yield
    for candidate in candidates:
        await candidate.kill()
