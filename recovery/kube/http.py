"""Sends requests to a real API server over HTTP: credentials, time limits, and the meaning of a broken exchange.

Requests bypass kubernetes_asyncio's generated methods and go straight to its connection pool with their bodies
unchanged: a write costs 0.3 ms of CPU instead of 3.4. A request is sent again here only after a 401, once. `client`
decides about all other retries.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress

import aiohttp
from yarl import URL

from recovery.kube.errors import error_from_answer, error_from_failure, is_strange
from recovery.kube.observer import NoObserver, RequestObserver
from recovery.kube.session import USER_AGENT, Session, SessionError
from recovery.kube.watch_lines import WATCH_IDLE_SECONDS_MAX, split_lines
from recovery.ports import ApiRequest, Clock, SilentWatchError, UnauthorizedError

REQUEST_SECONDS_MAX = 30.0
CONNECT_SECONDS_MAX = 10.0

DEAD_PEER_IDLE_SECONDS = 10
DEAD_PEER_PROBE_SECONDS = 5
DEAD_PEER_PROBES = 3
"""TCP keep-alive on watches: an API server that vanishes is noticed after 25 s of silence. `WATCH_IDLE_SECONDS_MAX` is
longer, and is for a watch whose connection a proxy keeps alive."""


class HttpTransport:
    """`ports.ApiClient` on a session's connection pool. It sends each request once."""

    def __init__(
        self,
        session: Session,
        *,
        clock: Clock,
        observer: RequestObserver | None = None,
        request_seconds_max: float | None = REQUEST_SECONDS_MAX,
        watch_idle_seconds_max: float = WATCH_IDLE_SECONDS_MAX,
    ) -> None:
        """`request_seconds_max` None: once connected, a request waits for its answer without a limit."""
        self._session = session
        self._clock = clock
        self._observer: RequestObserver = observer or NoObserver()
        self._connect_seconds_max = min(CONNECT_SECONDS_MAX, request_seconds_max or CONNECT_SECONDS_MAX)
        self._timeout = aiohttp.ClientTimeout(total=request_seconds_max, sock_connect=self._connect_seconds_max)
        self._request_seconds_max = request_seconds_max
        self._watch_timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._connect_seconds_max, sock_read=watch_idle_seconds_max
        )

    async def send(self, request: ApiRequest) -> bytes:
        response = await self._authorized(request, self._timeout)
        return await response.read()

    async def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        response = await self._authorized(request, self._watch_timeout)
        try:
            _notice_dead_peer(response)
            async for line in split_lines(_chunks(request, response, self._session.server)):
                yield line
        finally:
            response.close()

    async def _authorized(self, request: ApiRequest, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """The response. After a 401 the credentials are read again, once. A request that gets a 401 applies nothing."""
        version = self._session.credentials_version
        try:
            return await self._exchange(request, timeout)
        except UnauthorizedError as error:
            try:
                await self._session.refresh(version)
            except SessionError as failure:
                raise UnauthorizedError(f"{error}; no new credentials: {failure}", status=error.status) from failure
            return await self._exchange(request, timeout)

    async def _exchange(self, request: ApiRequest, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """A response with a 2xx status, its body read unless it is a watch. Raises for everything else.

        aiohttp itself sends a DELETE again if a kept-alive connection turns out to be closed. With preconditions that
        is harmless: the second one names a UID that no longer exists.
        """
        code, started = "cancelled", self._clock.monotonic_seconds()
        url = URL(request.url(self._session.server), encoded=True)
        try:
            headers = await self._headers(request)
            # A watch may be silent for longer, but a healthy server begins its response at once.
            async with asyncio.timeout(self._request_seconds_max):
                response = await self._session.pool.request(
                    request.method,
                    url,
                    data=request.body,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                    **self._session.connection_arguments(),
                )
            code = str(response.status)
            succeeded = 200 <= response.status < 300
            if not succeeded or request.verb != "watch":
                body = await response.read()
                if not succeeded or is_strange(request, body):
                    raise error_from_answer(request, response.status, response.headers, body, str(url.with_query(None)))
        except (aiohttp.ClientError, TimeoutError) as error:
            code = "timeout" if isinstance(error, TimeoutError) else "connection"
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            seconds_max = self._connect_seconds_max if connecting else self._request_seconds_max
            raise error_from_failure(request, error, self._session.server, seconds_max) from error
        finally:
            seconds = self._clock.monotonic_seconds() - started
            self._observer.request_finished(request.verb, request.target, code, seconds)
        return response

    async def _headers(self, request: ApiRequest) -> dict[str, str]:
        """Asks for uncompressed answers: within a cluster, bytes are cheaper than CPU on both sides."""
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            headers.update(await self._session.authorization())
        except SessionError as error:
            raise UnauthorizedError(f"{request}: {error}") from error
        return headers


async def _chunks(request: ApiRequest, response: aiohttp.ClientResponse, server: str) -> AsyncGenerator[bytes, None]:
    """The body as it arrives."""
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except TimeoutError as error:
        raise SilentWatchError(f"{request}: the connection stands, and nothing comes on it") from error
    except aiohttp.ClientError as error:
        raise error_from_failure(request, error, server) from error


def _notice_dead_peer(response: aiohttp.ClientResponse) -> None:
    """Have the kernel probe this connection while it is silent."""
    transport = response.connection.transport if response.connection is not None else None
    connected = transport.get_extra_info("socket") if transport is not None else None
    if connected is None:
        return  # the answer has already ended
    with suppress(OSError):  # the connection has already broken; reading it will show that
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):  # Linux; other systems keep their own intervals
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, DEAD_PEER_IDLE_SECONDS)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, DEAD_PEER_PROBE_SECONDS)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, DEAD_PEER_PROBES)
