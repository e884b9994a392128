"""Implements `ports.ApiClient` on a transport: limits the requests in flight and decides which may be sent again.

The class of the error alone decides about a retry. Only TryLaterError means that the same request may be sent again:
nothing was applied, and the request is not at fault. The caller resolves every ReadAgainError, because only the caller
knows what it had read before.
"""

import asyncio
from collections.abc import AsyncGenerator

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from recovery.ports import ApiClient, ApiRequest, Clock, Entropy, TryLaterError

WRITES_IN_FLIGHT_MAX = 64
"""Measured: 3,400 deletes a second with 64 in flight. More only fill the server's queues."""
READS_IN_FLIGHT_MAX = 96
"""In a storm hundreds of groups are read live at once. Together with the writes in flight and the watches, these reads
stay below `session.CONNECTIONS_MAX`, so that no write waits for a connection that a read holds."""

TRIES_MAX = 4
RETRY_WINDOW_SECONDS = 30.0
"""No try begins later than this after the first one."""
BACKOFF_SECONDS_FIRST = 0.2
BACKOFF_SECONDS_MAX = 5.0
RETRY_AFTER_SECONDS_MAX = 10.0
"""A longer Retry-After is cut to this within one call."""


class KubeApiClient:
    """`ports.ApiClient` with retries. One client serves a whole process."""

    def __init__(
        self,
        transport: ApiClient,
        *,
        clock: Clock,
        entropy: Entropy,
        retry_window_seconds: float = RETRY_WINDOW_SECONDS,
    ) -> None:
        """`transport` sends a request once. No try begins later than `retry_window_seconds` after the first one."""
        self._retry_window_seconds = retry_window_seconds
        self._transport = transport
        self._clock = clock
        self._entropy = entropy
        self._writes_in_flight = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        self._reads_in_flight = asyncio.Semaphore(READS_IN_FLIGHT_MAX)
        self._retrying = AsyncRetrying(
            retry=retry_if_exception_type(TryLaterError),
            wait=self._wait_seconds,
            sleep=clock.sleep,
            reraise=True,
        )

    def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        """One attempt. What to do about a broken stream depends on how far its reader has come."""
        return self._transport.watch(request)

    async def send(self, request: ApiRequest) -> bytes:
        """The answer's body. Retries within bounds, and only where nothing was applied.

        A request with `once` is never retried.
        """
        if request.once:
            return await self._once(request)
        no_try_after = self._clock.monotonic_seconds() + self._retry_window_seconds

        def over(state: RetryCallState) -> bool:
            return state.attempt_number >= TRIES_MAX or self._clock.monotonic_seconds() >= no_try_after

        # A copy for each call: tenacity keeps the state of its loop per thread, not per task.
        return await self._retrying.copy(stop=over)(self._once, request)

    async def _once(self, request: ApiRequest) -> bytes:
        async with self._writes_in_flight if request.writes else self._reads_in_flight:
            return await self._transport.send(request)

    def _wait_seconds(self, state: RetryCallState) -> float:
        """The server's Retry-After, spread so that clients do not all retry at once; else exponential backoff."""
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, TryLaterError) and error.retry_after_seconds is not None:
            return min(error.retry_after_seconds, RETRY_AFTER_SECONDS_MAX) * self._entropy.uniform(1.0, 1.2)
        ceiling = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2.0 ** (state.attempt_number - 1))
        return self._entropy.uniform(ceiling / 2, ceiling)
