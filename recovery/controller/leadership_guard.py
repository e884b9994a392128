"""A term of leadership, and the guard that lets no write out once it may be over.

Another candidate takes the lease when it has seen no renewal for the whole of its duration. A term ends earlier than
that, by this process's own monotonic clock and counted from before the last renewal was sent; so it is over for us
before it can begin for anybody else. A process that was stopped (SIGSTOP, a page fault on a dead disk) and goes on
later finds its term over before it has sent anything. What no check can exclude, a stop between the check and the
socket, is harmless by the ledger's compare-and-swap and the preconditions of every action. So is a machine that sleeps
with its clocks.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from recovery.ports import ApiClient, ApiRequest, Clock, NotLeadingError

_INSTANT_SECONDS = 1e-6
"""Less than this is nothing: a timer for it need not move a clock at all."""


class LeadershipTerm:
    """From an election until the lease may belong to another replica. A term that has ended stays ended."""

    def __init__(self, clock: Clock, *, renewed_at: float, seconds: float = math.inf) -> None:
        """It lasts for `seconds` from `renewed_at` (by `clock`'s monotonic time), and so on from each renewal."""
        self._clock = clock
        self._seconds = seconds
        self._ends_at = renewed_at + seconds
        self._limits: set[asyncio.Timeout] = set()

    @property
    def remaining_seconds(self) -> float:
        """For how long the lease is certainly ours, unless it is renewed; 0 or less: it may be another's."""
        return self._ends_at - self._clock.monotonic_seconds()

    @property
    def lasts(self) -> bool:
        """The lease is certainly still ours."""
        return self.remaining_seconds > _INSTANT_SECONDS

    def extend(self, renewed_at: float) -> None:
        """The lease was renewed by a request sent at `renewed_at`. It revives no term that has ended."""
        if not self.lasts:
            return
        self._ends_at = renewed_at + self._seconds
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(self._loop_time_of_end())

    def end(self) -> None:
        """Nothing more is done in this term."""
        self._ends_at = -math.inf

    @asynccontextmanager
    async def covers(self, action: str) -> AsyncIterator[None]:
        """Do something only within the term: raises NotLeadingError if it has ended, or ends meanwhile.

        Meanwhile, because the API client repeats a request that was put off, and the repetition is a write as well.
        """
        if not self.lasts:
            raise NotLeadingError(f"{action}: not sent, because another process may hold the lease by now")
        try:
            async with asyncio.timeout_at(self._loop_time_of_end()) as limit:
                self._limits.add(limit)
                try:
                    yield
                finally:
                    self._limits.discard(limit)
        except TimeoutError as error:
            raise NotLeadingError(
                f"{action}: given up on, because another process may hold the lease by now"
            ) from error

    def _loop_time_of_end(self) -> float | None:
        """None: it does not end."""
        remaining = self.remaining_seconds
        return None if remaining == math.inf else asyncio.get_running_loop().time() + remaining


class LeadershipGuard:
    """`ports.ApiClient` that writes only as long as a term lasts. Reads are always allowed: they do no harm."""

    def __init__(self, api: ApiClient, term: LeadershipTerm) -> None:
        self._api = api
        self._term = term

    async def send(self, request: ApiRequest) -> bytes:
        if not request.writes:
            return await self._api.send(request)
        async with self._term.covers(str(request)):
            return await self._api.send(request)

    def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        return self._api.watch(request)
