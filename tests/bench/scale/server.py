"""The fake API server's HTTP: watches with their initial events, and one answer for each other request.

It keeps when each request arrived. That is the moment at which the controller acted.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from recovery import ports
from recovery.sim.api.status_error import StatusError
from tests.bench.scale.fleet import Fleet, encode
from tests.bench.scale.requests import Requests

_RESOURCES = {each.plural: each for each in vars(ports).values() if isinstance(each, ports.Resource)}
_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}
_CHUNK_BYTES = 1 << 19
_BOOKMARK_SECONDS = 55.0


@dataclass(slots=True)
class Request:
    """A request of the controller."""

    at: float
    """Its arrival in monotonic seconds."""
    verb: str
    plural: str
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    content_type: str = ""
    body: bytes = b""
    code: int = 0
    answer_bytes: int = 0


def _parsed(method: str, target: str) -> Request:
    path, _, query = target.partition("?")
    parts = [unquote(part) for part in path.split("/")[1:]]
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = (*parts, "", "", "")[:3]
    fields = dict(parse_qsl(query))
    verb = _VERBS.get(method, "get" if name else "list")
    if fields.get("watch") == "true":
        verb = "watch"
    return Request(time.monotonic(), verb, plural, namespace, name, subresource, fields)


class Server:
    """Serves a fleet on a free port of the loopback interface."""

    def __init__(self, fleet: Fleet, requests: Requests) -> None:
        self.fleet = fleet
        self.requests = requests
        self.seen: list[Request] = []
        """All requests, without their bodies."""
        self.port = 0

    async def start(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def answer(self, request: Request) -> tuple[int, bytes, str]:
        """The code, the body and its content type."""
        try:
            code, body, content_type = self.requests.handle(
                request.verb,
                request.plural,
                (request.namespace, request.name),
                request.subresource,
                request.query,
                request.content_type,
                request.body,
            )
        except StatusError as error:
            code, content_type = error.code, "application/json"
            body = encode(
                {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "status": "Failure",
                    "message": error.message,
                    "reason": error.reason,
                    "code": code,
                    "details": {"name": error.name, "kind": error.kind},
                }
            )
        request.body, request.code, request.answer_bytes = b"", code, len(body)
        self.seen.append(request)
        return code, body, content_type


class _Connection(asyncio.Protocol):
    """One connection. A client sends the next request after the answer to the last one."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        self._flows = asyncio.Event()
        self._flows.set()
        self._end_watch: Callable[[], None] | None = None
        self._watching: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=1 << 22)

    def connection_lost(self, exc: Exception | None) -> None:
        self._flows.set()
        if self._watching is not None:
            self._watching.cancel()
        if self._end_watch is not None:
            self._end_watch()

    def pause_writing(self) -> None:
        self._flows.clear()

    def resume_writing(self) -> None:
        self._flows.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._buffer[:end].decode("latin1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            start, length = end + 4, int(headers.get("content-length", "0"))
            if len(self._buffer) < start + length:
                return
            method, target, _ = first.split(" ", 2)
            request = _parsed(method, target)
            request.content_type = headers.get("content-type", "")
            request.body = bytes(self._buffer[start : start + length])
            del self._buffer[: start + length]
            if request.verb == "watch":
                self._server.seen.append(request)
                self._watching = asyncio.ensure_future(self._watch(request))
            else:
                code, body, content_type = self._server.answer(request)
                head = f"HTTP/1.1 {code} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
                self._transport.write(head.encode() + body)

    # A watch takes the whole connection.

    async def _watch(self, request: Request) -> None:
        fleet = self._server.fleet
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json;stream=watch\r\nTransfer-Encoding: chunked\r\n\r\n"
        self._transport.write(head.encode())
        if request.query.get("sendInitialEvents") == "true":
            lines: list[bytes] = []
            size = 0
            for body in fleet.rendered(request.plural):
                lines.append(b'{"type":"ADDED","object":%s}\n' % body)
                size += len(body)
                if size > _CHUNK_BYTES:
                    self._send(b"".join(lines))
                    lines, size = [], 0
                    await self._flows.wait()
                    await asyncio.sleep(0)
            self._send(b"".join(lines))
            self._send(self._bookmark(request.plural, initial=True))
        self._end_watch = fleet.watch(request.plural, self._send)
        while not self._transport.is_closing():
            await asyncio.sleep(_BOOKMARK_SECONDS)
            self._send(self._bookmark(request.plural, initial=False))

    def _send(self, data: bytes) -> None:
        if data:
            self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _bookmark(self, plural: str, *, initial: bool) -> bytes:
        resource = _RESOURCES[plural]
        metadata: dict[str, object] = {"resourceVersion": str(self._server.fleet.version), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return encode({"type": "BOOKMARK", "object": body}) + b"\n"
