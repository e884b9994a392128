"""The barrier's server: whom it admits, and what others can make it hold."""

import asyncio
import contextlib
import random

import pytest

from recovery.agent._trainjob_recovery import server as module
from recovery.agent._trainjob_recovery.messages import Beat, Challenge, Done, Hello, StopEpoch, Welcome
from recovery.agent._trainjob_recovery.server import SPARE_CONNECTIONS, UNREAD_LIMIT_BYTES
from recovery.agent._trainjob_recovery.wire import LINE_LIMIT_BYTES, barrier_mac, encode
from tests.unit.ipv6 import needs_ipv6_loopback
from tests.unit.patience import comes

from .peers import INC, KEY, NONCE, Peer, dialled, listening

ADDRESSES = ["127.0.0.1", pytest.param("::1", marks=needs_ipv6_loopback)]


@pytest.mark.parametrize("address", ADDRESSES)
async def test_a_member_that_knows_the_key_is_welcomed(address: str) -> None:
    async with listening(4) as (server, recorded, port), dialled(port, address) as peer:
        await peer.greet(3)
        assert isinstance(await peer.hear(), Welcome)
        peer.write(encode(Beat()) + encode(Done(1)))
        await comes(lambda: recorded.said_by == [(3, Beat()), (3, Done(1))])
        server.send(next(iter(recorded.links)), StopEpoch(1))
        assert await peer.hear() == StopEpoch(1)
        server.beat()
        assert await peer.hear() == Beat()


async def test_the_barrier_proves_that_it_knows_the_key() -> None:
    async with listening(4) as (_, _, port), dialled(port) as peer:
        peer.write(encode(Hello(2, INC, NONCE)))
        challenge = await peer.hear()
        assert isinstance(challenge, Challenge)
        assert challenge.mac == barrier_mac(KEY, NONCE, 2)


async def test_another_key_is_closed_without_an_answer() -> None:
    async with listening(4) as (server, recorded, port), dialled(port) as peer:
        await peer.greet(1, key="another")
        assert await peer.is_closed()
        assert (recorded.links, server.connections) == ({}, 0)


@pytest.mark.parametrize(
    "line",
    [
        encode(Hello(4, INC, NONCE)),
        encode(Done(1)),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\n",
        b"x" * (LINE_LIMIT_BYTES + 1),
    ],
    ids=["a slot of no member", "no hello", "HTTP", "TLS", "too long"],
)
async def test_what_is_no_hello_is_closed_without_an_answer(line: bytes) -> None:
    async with listening(4) as (_, recorded, port), dialled(port) as peer:
        peer.write(line)
        assert await peer.is_closed()
        assert recorded.links == {}


async def test_a_member_that_says_what_only_a_barrier_says_is_closed() -> None:
    async with listening(4) as (_, recorded, port), dialled(port) as peer:
        await peer.greet(0)
        await peer.hear()
        peer.write(encode(StopEpoch(1)))
        assert await peer.is_closed()
        assert (recorded.links, recorded.said_by) == ({}, [])


async def test_who_says_nothing_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELLO_SECONDS", 0.2)
    async with listening(4) as (server, recorded, port), dialled(port) as member, dialled(port) as silent:
        await member.greet(0)
        await member.hear()
        silent.write(b"{")
        assert await silent.is_closed()
        assert (server.connections, list(recorded.links.values())) == (1, [0])


async def test_each_that_says_nothing_is_closed_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELLO_SECONDS", 0.2)
    async with listening(4) as (server, _, port), dialled(port) as first:
        await comes(lambda: server.connections == 1)
        await asyncio.sleep(0.1)
        async with dialled(port) as second:
            assert await first.is_closed()
            assert await second.is_closed()
            async with dialled(port) as third:  # no stranger was left
                assert await third.is_closed()
    assert server.connections == 0


async def test_a_slow_reader_is_cut_off() -> None:
    async with listening(1) as (server, recorded, port), dialled(port) as peer:
        await peer.greet(0)
        await comes(lambda: recorded.links != {})
        link, most = next(iter(recorded.links)), 0
        while recorded.links:
            server.send(link, StopEpoch(1))
            most = max(most, server.held_bytes)
        assert most <= UNREAD_LIMIT_BYTES + 200
        assert server.connections == 0


async def test_more_strangers_than_fit_keep_no_member_away() -> None:
    async with listening(2) as (server, recorded, port), contextlib.AsyncExitStack() as stack:
        member = await stack.enter_async_context(dialled(port))
        await member.greet(0)
        await member.hear()
        for _ in range(SPARE_CONNECTIONS + 30):
            await stack.enter_async_context(dialled(port))
        await comes(lambda: server.connections == 2 + SPARE_CONNECTIONS)
        late = await stack.enter_async_context(dialled(port))
        await late.greet(1)
        assert isinstance(await late.hear(), Welcome)
        assert sorted(recorded.links.values()) == [0, 1]


async def garbage(port: int, number: int) -> None:
    """One connection of a drawn kind, left in a drawn way."""
    draw = random.Random(number)
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        peer = Peer(reader, writer)
        kind = draw.choice(["bytes", "long", "hello", "key", "slow", "nothing"])
        if kind == "bytes":
            peer.write(draw.randbytes(draw.randint(1, 4000)) + b"\n")
        elif kind == "long":
            peer.write(b"{" * draw.randint(LINE_LIMIT_BYTES - 5, 60_000))
        elif kind == "hello":
            peer.write(encode(Hello(draw.randint(0, 10), INC, NONCE)) * draw.randint(1, 3))
        elif kind == "key":
            peer.write(encode(Hello(1, INC, NONCE)))
            await asyncio.wait_for(reader.readuntil(), 5)
            await peer.greet(1, key="another")
        elif kind == "slow":
            for _ in range(5):
                peer.write(b" ")
                await asyncio.sleep(0.002)
        if draw.random() < 0.5:
            await asyncio.wait_for(reader.read(), 0.05)
        writer.transport.abort() if draw.random() < 0.5 else writer.close()


async def test_1500_garbage_connections_disturb_nothing_and_hold_little() -> None:
    async with listening(4) as (server, recorded, port), dialled(port) as member:
        await member.greet(2)
        await member.hear()
        most_connections = most_bytes = 0
        for start in range(0, 1500, 100):
            batch = asyncio.gather(*(garbage(port, number) for number in range(start, start + 100)))
            while not batch.done():
                most_connections = max(most_connections, server.connections)
                most_bytes = max(most_bytes, server.held_bytes)
                await asyncio.sleep(0.001)
            await batch
        assert most_connections <= 4 + SPARE_CONNECTIONS
        assert most_bytes <= (4 + SPARE_CONNECTIONS) * (LINE_LIMIT_BYTES + UNREAD_LIMIT_BYTES)
        assert most_bytes < 1_000_000
        await comes(lambda: server.connections == 1)
        member.write(encode(Done(1)))
        await comes(lambda: recorded.said_by == [(2, Done(1))])
        assert list(recorded.links.values()) == [2]


async def test_a_taken_port_is_an_error() -> None:
    async with listening(1) as (_, _, port):
        with pytest.raises(OSError, match=r"[Aa]ddress"):
            async with listening(1) as (other, _, _):
                await other.listen(port)
