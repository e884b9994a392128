"""How much of our HTTP server clients can take up, over real sockets."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from recovery import http_server
from recovery.admission.certificates import Certificates, make_certificates
from recovery.http_server import HttpLimits, PartsResponse, listen
from tests.held_port import held_port
from tests.unit.ipv6 import needs_ipv6_loopback
from tests.unit.patience import GUARD_SECONDS, comes, time_passes

LIMITS = HttpLimits(connections=4, body_bytes=1000, unread_bytes=2000)
PATIENT = msgspec.structs.replace(
    LIMITS, handshake_seconds=600, request_seconds=600, response_seconds=600, idle_seconds=600
)
"""Its timeouts are far longer than a test, on a slow machine too."""
PART = b"x" * 100_000
PARTS = 200


@dataclass
class Served:
    """A server, and what it has received."""

    port: int
    bodies: list[bytes] = field(default_factory=list)
    """The bodies of the requests that came through."""
    connections: list["asyncio.Task[None]"] = field(default_factory=list)
    """For each request that reached its handler, the task of its connection. It is done when the server has noticed
    the end of the connection."""

    async def client(self, sends: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sends)
        await writer.drain()
        return reader, writer

    async def post(self, body: bytes, scheme: str = "http") -> int:
        """The status of a real request."""
        async with (
            asyncio.timeout(GUARD_SECONDS),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting())) as session,
            session.post(f"{scheme}://127.0.0.1:{self.port}/", data=body) as answer,
        ):
            return answer.status


@asynccontextmanager
async def serving(limits: HttpLimits, *, port: int = 0, context: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    served = Served(0)

    async def take(request: web.Request) -> web.Response:
        served.connections.append(request.task)
        served.bodies.append(await request.read())
        return web.Response(text="taken")

    async def large(request: web.Request) -> web.StreamResponse:
        served.connections.append(request.task)
        return PartsResponse([PART] * PARTS, headers={"Content-Type": "text/plain"})

    routes = [web.post("/", take), web.get("/large", large)]
    asked = None if context is None else lambda: context
    async with listen(routes, "127.0.0.1", port, limits=limits, close_seconds=0.1, context=asked) as served.port:
        yield served


def half(declared: int = 900, sent: int = 500) -> bytes:
    """A request with a part of its body missing."""
    return f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {declared}\r\n\r\n".encode() + b"x" * sent


async def is_cut(reader: asyncio.StreamReader) -> bytes:
    """What arrives before the connection ends. Fails if it does not end."""
    received = b""
    async with asyncio.timeout(GUARD_SECONDS):
        try:
            while part := await reader.read(65536):
                received += part
        except ConnectionError:
            pass
    return received


async def test_a_request_is_answered_and_its_connection_serves_the_next_one() -> None:
    async with serving(PATIENT) as served:
        reader, writer = await served.client(half(declared=5, sent=5))
        assert (await reader.readuntil(b"taken")).startswith(b"HTTP/1.1 200")
        writer.write(half(declared=4, sent=4))
        assert (await reader.readuntil(b"taken")).startswith(b"HTTP/1.1 200")
        assert served.bodies == [b"x" * 5, b"x" * 4]


async def test_a_large_response_comes_whole() -> None:
    async with (
        serving(PATIENT) as served,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{served.port}/large") as answer,
    ):
        assert len(await answer.read()) == len(PART) * PARTS
        assert answer.headers["Content-Length"] == str(len(PART) * PARTS)


@pytest.mark.parametrize("path", [b"/", b"/unknown"])
async def test_when_all_connections_are_taken_the_one_that_was_waited_for_longest_gives_way(
    path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(PATIENT) as served:
        waiting = [await served.client(half(sent=9).replace(b"/", path, 1)) for _ in range(4)]
        for _ in range(3):
            assert await served.post(b"real") == 200
            await is_cut(waiting.pop(0)[0])
            await comes(served.connections[-1].done)  # the server has noticed that the real client disconnected
            waiting.append(await served.client(half(sent=9).replace(b"/", path, 1)))
        assert served.bodies == [b"real"] * 3
        assert not any(reader.at_eof() for reader, _ in waiting)
    assert caplog.records == []


async def test_silent_connections_keep_no_one_out() -> None:
    async with serving(PATIENT) as served:
        silent = [await served.client() for _ in range(20)]
        assert await served.post(b"real") == 200
        ends = [asyncio.create_task(is_cut(reader)) for reader, _ in silent]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert await served.post(b"real") == 200
        await comes(lambda: sum(not end.done() for end in ends) <= PATIENT.connections)
        for end in ends:
            end.cancel()


async def test_one_that_is_being_answered_does_not_give_way() -> None:
    answers, waiting = asyncio.Event(), 0

    async def wait(_: web.Request) -> web.Response:
        nonlocal waiting
        waiting += 1
        await answers.wait()
        return web.Response(text="done")

    routes = [web.post("/", wait)]
    async with listen(routes, "127.0.0.1", 0, limits=PATIENT, close_seconds=0.1) as port:
        served = Served(port)
        asking = [asyncio.create_task(served.post(b"real")) for _ in range(4)]
        await comes(lambda: waiting == len(asking))
        reader, _ = await served.client(half())
        assert await is_cut(reader) == b"", "the newest is refused instead"
        answers.set()
        assert await asyncio.gather(*asking) == [200] * 4


async def test_bodies_that_do_not_come_are_held_up_to_a_sum() -> None:
    limits = msgspec.structs.replace(PATIENT, connections=100)
    async with serving(limits) as served:
        clients = [await served.client(half(sent=900, declared=901)) for _ in range(20)]
        ends = [asyncio.create_task(is_cut(reader)) for reader, _ in clients]
        await comes(lambda: sum(end.done() for end in ends) >= 18)
        assert await served.post(b"x" * 900) == 200
        for end in ends:
            end.cancel()


@pytest.mark.parametrize(
    "request_head",
    [b"Content-Length: 1001", b"Transfer-Encoding: chunked"],
    ids=["by its length", "in chunks"],
)
async def test_a_body_that_is_too_large_is_refused(request_head: bytes) -> None:
    async with serving(PATIENT) as served:
        body = b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n" if b"chunked" in request_head else b""
        reader, _ = await served.client(b"POST / HTTP/1.1\r\nHost: a\r\n" + request_head + b"\r\n\r\n" + body)
        async with asyncio.timeout(GUARD_SECONDS):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        assert served.bodies == []


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"", b""), (b"POST / HTTP/1.1\r\nHost: a\r\n", b""), (half(), b"HTTP/1.1 408")],
    ids=["no request", "half a head", "half a body"],
)
async def test_what_does_not_arrive_in_time_ends_the_connection(
    sent: bytes, answer: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not logged, because anyone could fill the log with it."""
    with caplog.at_level(logging.INFO):
        async with serving(LIMITS) as served:
            reader, writer = await served.client(sent)
            assert await served.post(b"later") == 200, "so what was sent before has arrived"
            time_passes(LIMITS.request_seconds, monkeypatch)
            assert (await is_cut(reader)).startswith(answer)
            writer.close()
    assert caplog.records == []


@pytest.mark.parametrize(
    "sent",
    [b"not HTTP\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
    ids=["no HTTP", "bad chunks"],
)
async def test_what_is_no_request_ends_the_connection_at_once(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with serving(PATIENT) as served:
            reader, writer = await served.client(sent)
            assert (await is_cut(reader)).startswith(b"HTTP/1.0 400")
            writer.close()
    assert caplog.records == []


async def test_a_response_that_is_not_read_in_time_is_cut(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.INFO):
        async with serving(LIMITS) as served:
            reader, writer = await served.client(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
            await comes(lambda: len(served.connections) == 1)
            time_passes(LIMITS.response_seconds, monkeypatch)
            await comes(served.connections[0].done)
            assert 0 < len(await is_cut(reader)) < len(PART) * PARTS
            writer.close()
    assert caplog.records == []


@pytest.mark.parametrize("takes_bytes", [0, 1000])
async def test_a_client_that_goes_away_during_its_response_is_nothing_to_log(
    takes_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with serving(PATIENT) as served:
            for _ in range(2 * PATIENT.connections):
                known = len(served.connections)
                reader, writer = await served.client(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
                await comes(lambda: len(served.connections) > known)  # noqa: B023 - it is called here
                await reader.read(takes_bytes)
                writer.transport.abort()
                await comes(served.connections[-1].done)
            assert await served.post(b"real") == 200
    assert caplog.records == []


@pytest.mark.parametrize("more", [b"", b"POST / HTTP/1.1\r\n"], ids=["nothing", "half the next head"])
async def test_a_connection_on_which_no_other_request_arrives_ends(
    more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(LIMITS) as served:
        reader, writer = await served.client(half(declared=1, sent=1))
        await reader.readuntil(b"taken")
        writer.write(more)
        assert await served.post(b"later") == 200, "so what was sent before has arrived"
        time_passes(LIMITS.idle_seconds, monkeypatch)
        assert await is_cut(reader) == b""


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    made = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
    (tmp_path / "tls.pem").write_bytes(made.serving + made.key)
    context = ssl.create_default_context(purpose=ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.pem")
    return context


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def test_handshakes_that_do_not_go_on_end_and_keep_no_one_out(
    tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.INFO):
        async with serving(PATIENT, context=tls) as served:
            silent = [await served.client() for _ in range(PATIENT.connections)]
            assert await served.post(b"real", "https") == 200
            await is_cut(silent[0][0])
            reader, _ = await served.client(b"GET / HTTP/1.1\r\n\r\n" * 20)
            await is_cut(reader)
        async with serving(LIMITS, context=tls) as served:
            reader, _ = await served.client()
            assert await served.post(b"later", "https") == 200, "so its handshake has begun"
            time_passes(LIMITS.handshake_seconds, monkeypatch)
            await is_cut(reader)
    assert caplog.records == []


async def test_nothing_is_left_of_those_who_went_away() -> None:
    async with serving(PATIENT) as served:
        for _ in range(3 * PATIENT.connections):
            reader, writer = await served.client(half(sent=900, declared=901))
            writer.write_eof()
            await is_cut(reader)  # the server has noticed
            writer.close()
        kept = [await served.client(half(sent=1)) for _ in range(PATIENT.connections - 1)]
        assert await served.post(b"x" * 1000) == 200
        assert not any(reader.at_eof() for reader, _ in kept)


@needs_ipv6_loopback
async def test_without_a_host_it_listens_on_all_families() -> None:
    async with listen([], None, 0, limits=PATIENT, close_seconds=0.1) as port:
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with closing(socket.socket(family)) as client:
                client.setblocking(False)
                async with asyncio.timeout(GUARD_SECONDS):
                    await asyncio.get_running_loop().sock_connect(client, (address, port))


async def test_without_a_host_a_family_that_is_disabled_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with net.ipv6.conf.all.disable_ipv6: the family has sockets, but no address."""

    class NoIpv6(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(errno.EADDRNOTAVAIL, "no address")
            super().bind(address)

    monkeypatch.setattr(socket, "socket", NoIpv6)
    async with listen([], "", 0, limits=PATIENT, close_seconds=0.1) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
    with pytest.raises(OSError, match="no address"):
        async with listen([], "::1", 0, limits=PATIENT, close_seconds=0.1):
            pass


async def test_the_end_cuts_those_that_wait() -> None:
    with held_port() as port:
        async with serving(PATIENT, port=port) as served:
            reader, _ = await served.client(half())
            assert await served.post(b"later") == 200, "so what was sent before has arrived"
        await is_cut(reader)
        with pytest.raises(ConnectionRefusedError):
            await served.client()


@pytest.mark.parametrize("steps", range(5))
async def test_the_end_answers_or_ends_a_connection_that_has_just_arrived(steps: int) -> None:
    """However far the event loop has got with it: a client without an answer waits for its own timeout."""
    client = socket.socket()
    client.setblocking(False)
    async with serving(PATIENT) as served:
        assert await served.post(b"real") == 200
        with suppress(BlockingIOError):
            client.connect(("127.0.0.1", served.port))
        for _ in range(steps):
            await asyncio.sleep(0)
    reader, writer = await asyncio.open_connection(sock=client)
    assert await is_cut(reader) == b""
    writer.close()  # with its socket: the event loop would confuse a transport that is left with the next one


async def test_a_server_without_a_file_descriptor_accepts_again_when_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept, refused = socket.socket.accept, 0

    def accept_later(listening: socket.socket) -> Any:
        nonlocal refused
        if refused < 2:
            refused += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    monkeypatch.setattr(http_server, "_ACCEPT_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(socket.socket, "accept", accept_later)
    async with serving(PATIENT) as served:
        assert await served.post(b"real") == 200
    assert refused == 2
