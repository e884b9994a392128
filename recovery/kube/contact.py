"""Decides whether requests reach the API server, and if not, whether a new process would reach it.

A restart helps only if this process is at fault: its connection pool is stuck, or the kubeconfig now names another
server. While the API server is down a restart does harm: a process that starts without it exits, and the kubelet waits
up to five minutes before it starts the next one. So a process that cannot reach the server tries what a new one would
do, and reports itself unhealthy only if that succeeds.
"""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import msgspec

from recovery.kube.observer import RequestObserver
from recovery.kube.session import SessionError, open_session
from recovery.ports import Clock

SILENCE_SECONDS = 300.0
"""After this long without an answer a new session is tried. Longer than a restart of an API server or any request."""
TRIAL_SECONDS_MAX = 3.0
"""A trial that takes longer counts as failed."""
TRIAL_INTERVAL_SECONDS = 10.0
"""At least this long between trials, because anybody can request `/healthz`."""
TRIAL_VALID_SECONDS = 60.0
"""How long a result is valid, counted from the start of its trial. Several periods of the liveness probe, because a
probe gets the result of a trial that an earlier probe has started."""

_NO_ANSWER = frozenset({"timeout", "connection"})


class Health(msgspec.Struct, frozen=True):
    """What `/healthz` answers."""

    restart_helps: bool
    words: str
    """One line."""


class ApiContact:
    """A `RequestObserver` that remembers since when no request was answered, and forwards every call."""

    def __init__(
        self, clock: Clock, reaches_with_new_session: Callable[[], Awaitable[bool]], observer: RequestObserver
    ) -> None:
        """`reaches_with_new_session`: opens a session and returns whether it gets an answer."""
        self._clock = clock
        self._reaches_with_new_session = reaches_with_new_session
        self._observer = observer
        self._failing_since_seconds: float | None = None
        """None: the last request was answered, or none has been sent."""
        self._trial: asyncio.Task[bool] | None = None
        """The latest trial. None: every result has been taken."""
        self._trial_started_at_seconds = float("-inf")
        self._reached: bool | None = None
        """The result of the last finished trial. None: no trial has finished."""
        self._reached_as_of_seconds = float("-inf")
        """When that trial was started."""

    def request_finished(self, verb: str, resource: str, code: str, seconds: float) -> None:
        self._observer.request_finished(verb, resource, code, seconds)
        if code not in _NO_ANSWER:
            if code.isdigit():
                self._failing_since_seconds = None
        elif self._failing_since_seconds is None:
            self._failing_since_seconds = self._clock.monotonic_seconds()

    def health(self) -> Health:
        """The health by the last finished trial. Starts the next trial if it is due.

        It does not wait for a trial. During an outage a trial takes seconds. If every caller held a connection that
        long, none would be left for the kubelet's probe.
        """
        now = self._clock.monotonic_seconds()
        if self._failing_since_seconds is None or now - self._failing_since_seconds < SILENCE_SECONDS:
            return Health(False, "ok")
        self._take_result()
        self._try_if_due(now)
        words = f"no request has reached the API server for {now - self._failing_since_seconds:.0f} s"
        if self._reached is None or now - self._reached_as_of_seconds >= TRIAL_VALID_SECONDS:
            return Health(False, f"ok, but {words}; a new session is being tried")
        if self._reached:
            return Health(True, f"{words}, and a new session reaches it: this process is at fault")
        return Health(False, f"ok, but {words}; a new session does not reach it either")

    def _take_result(self) -> None:
        if self._trial is not None and self._trial.done():
            ended, self._trial = self._trial, None
            self._reached, self._reached_as_of_seconds = ended.result(), self._trial_started_at_seconds

    def _try_if_due(self, now: float) -> None:
        if self._trial is None and now - self._trial_started_at_seconds >= TRIAL_INTERVAL_SECONDS:
            self._trial_started_at_seconds = now
            self._trial = asyncio.ensure_future(self._reaches_with_new_session())


async def reaches_with_new_session(kubeconfig: str | None, context: str | None) -> bool:
    """Open a session as a new process would, and send one request. Any answer counts."""
    try:
        async with (
            asyncio.timeout(TRIAL_SECONDS_MAX),
            open_session(kubeconfig=kubeconfig, context=context) as session,
            session.pool.get(f"{session.server}/version", **session.connection_arguments()),
        ):
            return True
    except (SessionError, aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        return False
