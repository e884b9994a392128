"""A term of leadership, and the guard that sends no write once the term may be over.

Another candidate takes the lease when it has seen no renewal for the whole duration of the lease. A term ends earlier
than that. It is measured by this process's own monotonic clock, from before the last renewal was sent, so our term is
over before another one can begin. A process that was stopped (SIGSTOP, a page fault on a dead disk) and resumes later
finds its term over before it sends anything. No check can exclude a stop between the check and the socket. The ledger's
compare-and-swap and the preconditions of every action make it harmless, and also a machine whose clocks stop in sleep.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

from recovery.core.model.writer_lease import WriterLease
from recovery.ports import ApiClient, ApiRequest, Clock, NotLeadingError

_INSTANT_SECONDS = 1e-6
"""A shorter time counts as zero: a timer for it may not advance the clock at all."""


class LeadershipTerm:
    """The time from an election until the lease may belong to another replica. An ended term stays ended."""

    def __init__(
        self, clock: Clock, *, renewed_at: float, seconds: float = math.inf, lease: WriterLease | None = None
    ) -> None:
        """The term lasts for `seconds` from `renewed_at` (monotonic time of `clock`), and again from each renewal."""
        self.lease = lease
        """The Lease that this term is of. Another one after a renewal that had to create it again. None: there was no
        election."""
        self._clock = clock
        self._seconds = seconds
        self._ends_at = renewed_at + seconds
        self._limits: set[asyncio.Timeout] = set()

    @property
    def remaining_seconds(self) -> float:
        """How long the lease is certainly ours without another renewal. 0 or less: another replica may hold it."""
        return self._ends_at - self._clock.monotonic_seconds()

    @property
    def lasts(self) -> bool:
        """The lease is certainly still ours."""
        return self.remaining_seconds > _INSTANT_SECONDS

    def extend(self, renewed_at: float) -> None:
        """The lease was renewed by a request sent at `renewed_at`. This does not revive an ended term."""
        if not self.lasts:
            return
        self._ends_at = renewed_at + self._seconds
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(self._loop_time_of_end())

    def end(self) -> None:
        """End the term: no more writes begin in it."""
        self._ends_at = -math.inf

    @asynccontextmanager
    async def covers(self, action: str) -> AsyncIterator[None]:
        """Run the body only within the term. Raises NotLeadingError if the term has ended, or ends during the body.

        The second case exists because the API client retries a throttled request, and the retry is a write as well.
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
        """None: the term does not end."""
        remaining = self.remaining_seconds
        return None if remaining == math.inf else asyncio.get_running_loop().time() + remaining


class LeadershipGuard:
    """`ports.ApiClient` that writes only while a term lasts, and while no controller that goes first writes. Reads are
    always allowed, because they do no harm."""

    def __init__(
        self, api: ApiClient, term: LeadershipTerm, first: Callable[[], WriterLease | None] = lambda: None
    ) -> None:
        """`first`: the Lease of a controller for which this one holds. None: there is none."""
        self._api = api
        self._term = term
        self._first = first

    async def send(self, request: ApiRequest) -> bytes:
        if not request.writes:
            return await self._api.send(request)
        if (other := self._first()) is not None:
            raise NotLeadingError(f"{request}: not sent, because the controller of the older Lease {other}, writes too")
        async with self._term.covers(str(request)):
            return await self._api.send(request)

    def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        return self._api.watch(request)
