"""Serves an aiohttp application with limits on connections, on the time a request takes to arrive, and on its size.

aiohttp bounds only the size of one body. 150 clients that each send half a body and then wait would hold 270 MB of the
leader's memory. Any client that reaches the port can do that, so all our servers listen through here.

When all connections are taken, a new one replaces the one that we have waited for longest. So a client that holds
connections open cannot keep other clients out: a real request is complete within milliseconds.

A new certificate needs no new socket: each connection keeps the certificate that is current when it begins. Closing the
socket would reset the connections in its backlog, and to their clients the server would seem to be down.
"""

import asyncio
import errno
import logging
import socket
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger

_log = structlog.get_logger("recovery.http")

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BACKLOG = 128
_ACCEPT_AGAIN_SECONDS = 0.1
"""Pause of a socket when there is no file descriptor for another connection."""

ServerContext = Callable[[], ssl.SSLContext]
"""Returns the TLS context of the next connection."""
HeadCheck = Callable[[web.Request], None]
"""Looks at a request whose body has not been read. Raises web.HTTPException to refuse it."""
_LINGERING_SECONDS = 1.0
"""How long the rest of a refused request is read: a client that is still sending would not read the answer."""


class HttpLimits(msgspec.Struct, frozen=True):
    """What a server accepts from its clients."""

    connections: int = 64
    body_bytes: int = 1024 * 1024
    """Of one request. A larger body is answered with 413."""
    unread_bytes: int = 16 * 1024 * 1024
    """Of all incomplete requests together."""
    handshake_seconds: float = 5.0
    """For the TLS handshake."""
    request_seconds: float = 10.0
    """From the connection until its first request has arrived, and from the head of any request to the end of its
    body."""
    response_seconds: float = 10.0
    """For a client to receive its response."""
    idle_seconds: float = 360.0
    """From a response until the head of the next request on the same connection. Clients close earlier: the API server
    after 90 s, Prometheus after 5 minutes. If we closed first, a review could be sent on a closed connection."""


class PartsResponse(web.StreamResponse):
    """A response with a large body. The connection holds one part of it at a time."""

    def __init__(self, parts: Sequence[bytes], headers: dict[str, str]) -> None:
        super().__init__(headers=headers)
        self.content_length = sum(map(len, parts))
        self.parts = parts


class _Connection(asyncio.Protocol):
    """One client. Passes everything on to aiohttp's protocol, and cuts the connection at its deadline."""

    def __init__(self, gate: "_Gate", http: web.RequestHandler) -> None:
        self._gate = gate
        self._http = http
        self._transport: asyncio.Transport | None = None
        """None: the handshake is not over, or the connection is lost."""
        self._deadline: asyncio.TimerHandle | None = None
        self.handshake: asyncio.Task[None] | None = None
        """None: the handshake is over."""
        self.unread_bytes = 0
        """Received of an incomplete request."""
        self.working = False
        """Its request is complete and its response is being made. Only then is it never cut to make room."""

    def expects_request_within(self, seconds: float) -> None:
        self.arrived()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.cut)

    def arrived(self) -> None:
        """What the deadline was for has arrived."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def complete(self) -> None:
        """The whole request has arrived."""
        self.arrived()
        self._gate.unread_bytes -= self.unread_bytes
        self.unread_bytes, self.working = 0, True

    def cut(self) -> None:
        """Close the connection now."""
        self.arrived()
        if self._transport is not None:
            self._transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()
        self._gate.lost(self._http)

    # --- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.expects_request_within(self._gate.limits.request_seconds)
        self._http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self.working:
            self.unread_bytes += len(data)
            self._gate.received(len(data))
        self._http.data_received(data)

    def eof_received(self) -> None:
        self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None  # breaks a reference cycle: the buffers of both would wait for the garbage collector
        self.arrived()
        self._gate.lost(self._http)
        self._http.connection_lost(error)


class _Gate:
    """All connections of a server."""

    def __init__(
        self, server: web.Server, limits: HttpLimits, context: ServerContext | None, check_head: HeadCheck | None
    ) -> None:
        self._server = server
        self.limits = limits
        self._context = context
        self._check_head = check_head
        self._connections: dict[object, _Connection] = {}
        """By aiohttp's protocol. The one that we have waited for longest comes first."""
        self._listening: dict[socket.socket, asyncio.TimerHandle | None] = {}
        """The listening sockets. None: the socket accepts now. Otherwise: the timer after which it accepts again."""
        self.unread_bytes = 0

    def accept_from(self, listening: socket.socket) -> None:
        """Accept connections until `accept_no_more`.

        This is not a task: one that is cancelled between the accept and its next step would lose the connection, which
        would stay open while its client waits for an answer.
        """
        self._listening[listening] = None
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def accept_no_more(self) -> None:
        loop = asyncio.get_running_loop()
        for listening, again in self._listening.items():
            loop.remove_reader(listening)
            if again is not None:
                again.cancel()
        self._listening.clear()

    def _accept(self, listening: socket.socket) -> None:
        """Accept one connection, if its client still waits."""
        try:
            client, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # the client has gone already
            return
        except OSError:  # no file descriptor is left
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            self._listening[listening] = loop.call_later(_ACCEPT_AGAIN_SECONDS, self.accept_from, listening)
            return
        try:
            client.setblocking(False)
            self._admit(client)
        except Exception as error:  # noqa: BLE001 - the boundary: one client must not end the server
            _log.error("a connection was dropped: this is a bug", error=str(error), exc_info=error)
            client.close()

    def _admit(self, client: socket.socket) -> None:
        if len(self._connections) >= self.limits.connections and not self._one_gives_way():
            client.close()
            return
        http = self._server()
        connection = self._connections[http] = _Connection(self, http)
        connection.handshake = asyncio.create_task(self._shake_hands(client, connection, http))

    async def _shake_hands(self, client: socket.socket, connection: _Connection, http: object) -> None:
        context = None if self._context is None else self._context()
        timeout = None if context is None else self.limits.handshake_seconds
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: connection, client, ssl=context, ssl_handshake_timeout=timeout)
        except OSError:  # includes all TLS errors; they are the client's fault
            self.lost(http)
        finally:
            connection.handshake = None

    def lost(self, http: object) -> None:
        """A connection has ended."""
        connection = self._connections.pop(http, None)
        if connection is not None:
            self.unread_bytes -= connection.unread_bytes

    def received(self, count: int) -> None:
        """Bytes of an incomplete request have arrived."""
        self.unread_bytes += count
        while self.unread_bytes > self.limits.unread_bytes and self._one_gives_way(only_unread=True):
            pass

    def _one_gives_way(self, *, only_unread: bool = False) -> bool:
        """Cut the connection that we have waited for longest. False: there is none to cut.

        `only_unread`: cut only a connection with an incomplete request.
        """
        for connection in self._connections.values():
            if not connection.working and (connection.unread_bytes or not only_unread):
                connection.cut()
                return True
        return False

    def cut_all(self) -> None:
        for connection in tuple(self._connections.values()):
            connection.cut()

    @web.middleware
    async def middleware(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Read the whole request, then answer it."""
        connection = self._connections.get(request.protocol)
        if connection is None:  # it was cut meanwhile
            raise web.HTTPServiceUnavailable
        connection.arrived()
        if self._check_head is not None:
            self._check_head(request)
        if (request.content_length or 0) > self.limits.body_bytes:
            raise web.HTTPRequestEntityTooLarge(self.limits.body_bytes, request.content_length or 0)
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                await request.read()
        except (TimeoutError, ConnectionError, web.RequestPayloadError) as error:
            _let_go(error)
            refusal = web.HTTPRequestTimeout if isinstance(error, TimeoutError) else web.HTTPBadRequest
            # Not from the error itself, which would be logged with a traceback.
            raise refusal(headers={"Connection": "close"}) from None
        connection.complete()
        try:
            response = await handler(request)
        finally:
            self._answered(request.protocol)
        try:
            async with asyncio.timeout(self.limits.response_seconds):
                await response.prepare(request)
                for part in response.parts if isinstance(response, PartsResponse) else ():
                    await response.write(part)
                    await asyncio.sleep(0)  # a socket that takes all of it at once would block the event loop
                await response.write_eof()
        except (TimeoutError, ConnectionError):  # the client reads too slowly, or has disconnected
            connection.cut()
        return response

    def _answered(self, http: object) -> None:
        """The response is made. From now on this connection is the last one to be cut."""
        connection = self._connections.pop(http, None)
        if connection is not None:
            connection.working = False
            self._connections[http] = connection


@asynccontextmanager
async def listen(
    routes: list[web.RouteDef],
    host: str | None,
    port: int,
    *,
    limits: HttpLimits,
    close_seconds: float,
    context: ServerContext | None = None,
    check_head: HeadCheck | None = None,
) -> AsyncIterator[int]:
    """Serve these routes while the context is open. Yields the port, which the system chooses if `port` is 0.

    `host` None or empty: all addresses of all families. `close_seconds`: how long the shutdown waits for responses in
    progress. `context`: called for each connection; None: no TLS. `check_head`: called for each request before its body
    is read; None: every head is accepted. Raises OSError if it cannot listen.
    """
    gates: list[_Gate] = []

    @web.middleware
    async def limited(request: web.Request, handler: _Handler) -> web.StreamResponse:
        return await gates[0].middleware(request, handler)

    application = web.Application(middlewares=[limited], client_max_size=limits.body_bytes)
    application.add_routes(routes)
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=close_seconds,
        keepalive_timeout=limits.idle_seconds,
        lingering_time=_LINGERING_SECONDS,
    )
    if _not_of_a_client not in server_logger.filters:
        server_logger.addFilter(_not_of_a_client)
    await runner.setup()
    assert runner.server is not None
    gate = _Gate(runner.server, limits, context, check_head)
    gates.append(gate)
    sockets: list[socket.socket] = []
    try:
        sockets.extend(await _sockets(host, port))
        for each in sockets:
            gate.accept_from(each)
        yield int(sockets[0].getsockname()[1])
    finally:
        gate.accept_no_more()
        for each in sockets:
            each.close()
        await runner.cleanup()
        gate.cut_all()


def _let_go(error: BaseException | None) -> None:
    """Free the part of a body that was read. A traceback keeps its frames until the garbage collector runs, and that
    depends on the number of objects, not on their size."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _not_of_a_client(record: logging.LogRecord) -> bool:
    """A log filter. False for a request that is not HTTP: any client could fill the log with tracebacks."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


async def _sockets(host: str | None, port: int) -> list[socket.socket]:
    """Listening sockets on all addresses of the host. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                each = socket.socket(family, kind, protocol)
            except OSError:  # the kernel does not have this family
                continue
            try:
                shared = port or (sockets[0].getsockname()[1] if sockets else 0)
                _bind(each, (address[0], shared, *address[2:]))
            except OSError as error:
                each.close()
                if not host and error.errno == errno.EADDRNOTAVAIL:  # it has the family, which is disabled
                    continue
                raise
            sockets.append(each)
    except OSError:
        for each in sockets:
            each.close()
        raise
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, "no address to listen on")
    return sockets


def _bind(listening: socket.socket, address: tuple[object, ...]) -> None:
    listening.setblocking(False)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listening.family == socket.AF_INET6:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # the other family has its own socket
    listening.bind(address)
    listening.listen(_BACKLOG)
