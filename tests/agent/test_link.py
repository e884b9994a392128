"""A member's link: dials again, proves itself, and trusts no stranger."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from recovery.agent._trainjob_recovery import link as module
from recovery.agent._trainjob_recovery.link import BarrierLink
from recovery.agent._trainjob_recovery.messages import Beat, Done, FromBarrier, Proof, StopEpoch, Welcome
from recovery.agent._trainjob_recovery.server import Server
from recovery.agent._trainjob_recovery.wire import encode
from tests.unit.patience import comes

from .peers import INC, KEY, Recorded, listening


@dataclass
class AgentMember:
    welcomes: list[Welcome] = field(default_factory=list)
    messages: list[FromBarrier] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def proof(self, mac: str) -> Proof:
        return Proof(mac, None, 1, "running")

    def welcomed(self, welcome: Welcome) -> None:
        self.welcomes.append(welcome)

    def heard(self, message: FromBarrier) -> None:
        self.messages.append(message)


@asynccontextmanager
async def linked(port: int, key: str = KEY, slot: int = 1) -> AsyncIterator[tuple[BarrierLink, AgentMember]]:
    member = AgentMember()
    link = BarrierLink(
        ["127.0.0.1"], port, key=key, slot=slot, inc=INC, events=member, say=member.said.append, draw=random.Random(1)
    )
    dialling = asyncio.ensure_future(link.run())
    try:
        yield link, member
    finally:
        link.stop()
        dialling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await dialling


@asynccontextmanager
async def impostor(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers each first line with these bytes, and keeps what follows."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        heard.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()


async def test_a_link_says_and_hears_messages() -> None:
    async with listening(2) as (server, recorded, port), linked(port) as (link, member):
        await comes(lambda: link.up)
        link.send(Done(1))
        await comes(lambda: recorded.said_by == [(1, Done(1))])
        server.send(next(iter(recorded.links)), StopEpoch(1))
        await comes(lambda: member.messages == [StopEpoch(1)])
        assert len(member.welcomes) == 1


async def test_a_lost_link_is_dialled_again() -> None:
    async with listening(2) as (server, recorded, port), linked(port) as (link, member):
        await comes(lambda: link.up)
        server.close_link(next(iter(recorded.links)))
        await comes(lambda: len(member.welcomes) == 2)
        assert link.up


async def test_a_barrier_that_comes_late_is_found() -> None:
    async with listening(2) as (_, _, port):
        pass
    async with linked(port) as (link, member):
        link.send(Done(1))
        await asyncio.sleep(0.2)
        assert (link.up, member.welcomes) == (False, [])
        recorded = Recorded()
        recorded.server = Server(2, KEY, recorded)
        await recorded.server.listen(port)
        await comes(lambda: link.up)
        assert recorded.said_by == []
        await recorded.server.close(0.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\n",
        encode(StopEpoch(1)),
        b'{"type":"challenge","nonce":"' + b"a" * 32 + b'","mac":"' + b"0" * 64 + b'"}\n',
        b"x" * 20_000 + b"\n",
    ],
    ids=["nonsense", "no challenge", "another key", "too long"],
)
async def test_a_stranger_gets_no_proof(answer: bytes) -> None:
    async with impostor(answer) as (port, heard), linked(port) as (_, member):
        await comes(lambda: len(heard) >= 3)
        assert set(heard) == {b""}
        assert (member.welcomes, member.messages) == ([], [])


async def test_another_key_is_said_once() -> None:
    async with listening(2) as (server, _, port), linked(port, key="another") as (_, member):
        await comes(lambda: member.said != [])
        await asyncio.sleep(0.3)
        assert member.said == ["what answers at the barrier's address does not know this job's key"]
        assert server.connections <= 1


async def test_both_sides_beat_and_a_silent_barrier_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(module, "SILENCE_SECONDS", 1.0)
    async with listening(2) as (server, recorded, port), linked(port) as (_, member):
        await comes(lambda: (1, Beat()) in recorded.said_by)
        server.beat()
        await comes(lambda: Beat() in member.messages)
        await comes(lambda: len(member.welcomes) >= 2)


async def test_what_a_barrier_may_not_say_ends_the_link() -> None:
    async with listening(2) as (server, recorded, port), linked(port) as (link, member):
        await comes(lambda: link.up)
        server.send(next(iter(recorded.links)), Welcome("c" * 16, 1, True, 600.0, 60.0))
        await comes(lambda: len(member.welcomes) == 2)
        assert member.messages == []
