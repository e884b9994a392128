"""`ports.ApiClient` on a real API server.

Requests bypass kubernetes_asyncio's generated methods and go to its connection pool, bodies untouched: 0.3 ms of CPU
for a write in place of 3.4. Retries are decided by the class of the error alone, and only TryLaterError means that the
same request may be sent again: nothing was applied, and the request is not at fault. Everything under ReadAgainError is
the caller's to resolve, because only the caller knows what it had read before.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import nullcontext, suppress

import aiohttp
import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, stop_after_delay
from yarl import URL

from recovery.kube.errors import error_from_answer, error_from_failure
from recovery.kube.observer import NoObserver, RequestObserver
from recovery.kube.request import Request
from recovery.kube.session import USER_AGENT, Session, SessionError
from recovery.kube.watch import split_lines
from recovery.ports import (
    Clock,
    Entropy,
    PatchKind,
    Propagation,
    Resource,
    TryLaterError,
    UnauthorizedError,
)

REQUEST_SECONDS_MAX = 30.0
CONNECT_SECONDS_MAX = 10.0
WRITES_IN_FLIGHT_MAX = 64
"""Measured: 3,400 deletes a second with 64 in flight; more only fills the server's queues."""

TRIES_MAX = 4
RETRY_WINDOW_SECONDS = 30.0
"""No try begins later than this after the first one."""
BACKOFF_SECONDS_FIRST = 0.2
BACKOFF_SECONDS_MAX = 5.0
RETRY_AFTER_SECONDS_MAX = 10.0
"""What of a server's Retry-After is honoured within one call; who is told to wait longer hears it as an error."""

WATCH_GRACE_SECONDS = 10.0
"""How much longer than its time limit a silent watch is left open before it counts as dead."""
DEAD_PEER_IDLE_SECONDS = 10
DEAD_PEER_PROBE_SECONDS = 5
DEAD_PEER_PROBES = 3
"""TCP keep-alive on watches: an API server that went away without a word is noticed after 25 s of silence, not after
the minutes of the watch's own time limit."""

_encode = msgspec.json.Encoder().encode


class _Preconditions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    preconditions: _Preconditions
    propagation_policy: Propagation | None = None
    grace_period_seconds: int | None = None


class _Operation(msgspec.Struct, frozen=True):
    """One operation of a JSON patch, as far as the error of a failed one depends on it."""

    op: str = ""


class KubeApiClient:
    """The REST verbs of `ports.ApiClient`, which says what each of them means. One client serves a whole process."""

    def __init__(
        self,
        session: Session,
        *,
        clock: Clock,
        entropy: Entropy,
        observer: RequestObserver | None = None,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        self._session = session
        self._clock = clock
        self._entropy = entropy
        self._observer: RequestObserver = observer or NoObserver()
        self._timeout = aiohttp.ClientTimeout(total=request_seconds_max, sock_connect=CONNECT_SECONDS_MAX)
        self._writes_in_flight = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        self._retrying = AsyncRetrying(
            retry=retry_if_exception_type(TryLaterError),
            stop=stop_after_attempt(TRIES_MAX) | stop_after_delay(RETRY_WINDOW_SECONDS),
            wait=self._wait_seconds,
            sleep=clock.sleep,
            reraise=True,
        )

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        return await self._send(Request("get", resource, namespace, name))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int | None = None,
        continue_token: str = "",
    ) -> bytes:
        query = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version or "",
            "limit": limit or "",
            "continue": continue_token,
        }
        return await self._send(Request("list", resource, namespace, query=_present(query)))

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        send_initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[bytes, None]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version or "",
            "sendInitialEvents": "true" if send_initial_events else "",
            "resourceVersionMatch": "NotOlderThan" if send_initial_events else "",
            "timeoutSeconds": timeout_seconds,
        }
        request = Request("watch", resource, namespace, query=_present(query))
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS_MAX, sock_read=timeout_seconds + WATCH_GRACE_SECONDS
        )
        response = await self._authorized(request, timeout)
        try:
            _notice_dead_peer(response)
            async for line in split_lines(_chunks(request, response)):
                yield line
        finally:
            response.close()

    async def create(
        self,
        resource: Resource,
        body: object,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> bytes:
        return await self._send(Request("create", resource, namespace, name, subresource, body=_encode(body)))

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        *,
        kind: PatchKind,
        namespace: str | None = None,
        subresource: str = "",
    ) -> bytes:
        encoded = _encode(body)
        request = Request(
            "patch",
            resource,
            namespace,
            name,
            subresource,
            body=encoded,
            content_type=kind.value,
            tests=kind is PatchKind.JSON and _has_test(encoded),
        )
        return await self._send(request)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> bytes:
        options = _DeleteOptions(
            preconditions=_Preconditions(uid=uid, resource_version=resource_version),
            propagation_policy=propagation,
            grace_period_seconds=grace_seconds,
        )
        return await self._send(Request("delete", resource, namespace, name, body=_encode(options)))

    async def _send(self, request: Request) -> bytes:
        """The answer's body. Tries again where nothing was applied, within bounds, and only then."""
        # A copy for each call: tenacity keeps the state of its loop per thread, not per task.
        return await self._retrying.copy()(self._once, request)

    async def _once(self, request: Request) -> bytes:
        async with self._writes_in_flight if request.writes else nullcontext():
            response = await self._authorized(request, self._timeout)
            return await response.read()

    async def _authorized(self, request: Request, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """The response; after a 401 the credentials are read anew, once. Nothing is applied by what gets a 401."""
        version = self._session.credentials_version
        try:
            return await self._exchange(request, timeout)
        except UnauthorizedError as error:
            try:
                await self._session.refresh(version)
            except SessionError as failure:
                raise UnauthorizedError(f"{error}; no new credentials: {failure}", status=error.status) from failure
            return await self._exchange(request, timeout)

    async def _exchange(self, request: Request, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """A response with a 2xx status, its body read unless it is a watch. Raises for everything else.

        aiohttp itself sends a DELETE once more if a kept-alive connection turns out to be closed. With preconditions
        that is harmless: the second one meets a dead UID.
        """
        code, started = "cancelled", self._clock.monotonic_seconds()
        try:
            response = await self._session.pool.request(
                request.method,
                URL(request.url(self._session.server), encoded=True),
                data=request.body,
                headers=await self._headers(request),
                timeout=timeout,
                allow_redirects=False,
                **self._session.connection_arguments(),
            )
            code = str(response.status)
            if not 200 <= response.status < 300:
                raise error_from_answer(request, response.status, response.headers, await response.read())
            if request.verb != "watch":
                await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            code = "timeout" if isinstance(error, TimeoutError) else "connection"
            raise error_from_failure(request, error) from error
        finally:
            seconds = self._clock.monotonic_seconds() - started
            self._observer.request_finished(request.verb, request.target, code, seconds)
        return response

    async def _headers(self, request: Request) -> dict[str, str]:
        """Uncompressed answers: within a cluster the bytes are cheaper than the CPU on both sides."""
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            headers.update(await self._session.authorization())
        except SessionError as error:
            raise UnauthorizedError(f"{request}: {error}") from error
        return headers

    def _wait_seconds(self, state: RetryCallState) -> float:
        """What the server asked for, spread so that many do not come back at once; else exponential backoff."""
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, TryLaterError) and error.retry_after_seconds is not None:
            return min(error.retry_after_seconds, RETRY_AFTER_SECONDS_MAX) * self._entropy.uniform(1.0, 1.2)
        ceiling = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2.0 ** (state.attempt_number - 1))
        return self._entropy.uniform(ceiling / 2, ceiling)


async def _chunks(request: Request, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """The body as it arrives."""
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError) as error:
        raise error_from_failure(request, error) from error


def _notice_dead_peer(response: aiohttp.ClientResponse) -> None:
    """Have the kernel probe this connection while it is silent."""
    transport = response.connection.transport if response.connection is not None else None
    connected = transport.get_extra_info("socket") if transport is not None else None
    if connected is None:
        return  # the answer ended already
    with suppress(OSError):  # the connection broke already, which reading it will tell
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):  # Linux; other systems keep their own intervals
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, DEAD_PEER_IDLE_SECONDS)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, DEAD_PEER_PROBE_SECONDS)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, DEAD_PEER_PROBES)


def _has_test(json_patch: bytes) -> bool:
    return any(operation.op == "test" for operation in msgspec.json.decode(json_patch, type=list[_Operation]))


def _present(query: Mapping[str, str | int]) -> dict[str, str | int]:
    return {key: value for key, value in query.items() if value}
