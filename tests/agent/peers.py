"""The other end of a connection, as tests play it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from recovery.agent._trainjob_recovery.messages import Challenge, FromMember, Hello, Message, Proof, Welcome
from recovery.agent._trainjob_recovery.server import Server
from recovery.agent._trainjob_recovery.wire import decode, encode, member_mac

KEY = "the-uid-of-the-job"
INC, NONCE = "a" * 16, "b" * 32


@dataclass
class Recorded:
    """What a server reports. It welcomes everybody."""

    server: Server | None = None
    links: dict[int, int] = field(default_factory=dict)
    """Slots by link."""
    said_by: list[tuple[int, FromMember]] = field(default_factory=list)

    def joined(self, link: int, hello: Hello, proof: Proof) -> None:
        assert self.server is not None
        self.links[link] = hello.slot
        self.server.send(link, Welcome("c" * 16, 1, False, 0.0, 60.0))

    def said(self, link: int, message: FromMember) -> None:
        self.said_by.append((self.links[link], message))

    def lost(self, link: int) -> None:
        del self.links[link]


@asynccontextmanager
async def listening(slots: int) -> AsyncIterator[tuple[Server, Recorded, int]]:
    recorded = Recorded()
    recorded.server = Server(slots, KEY, recorded)
    port = await recorded.server.listen(0)
    try:
        yield recorded.server, recorded, port
    finally:
        await recorded.server.close(0.0)


@dataclass
class Peer:
    """A connection that says whatever a test wants."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def hear(self) -> Message:
        return decode(await asyncio.wait_for(self.reader.readuntil(), 45))

    async def is_closed(self) -> bool:
        """Whether the other side closes it without another byte."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(), 45) == b""
        return True

    async def greet(self, slot: int, *, key: str = KEY, inc: str = INC) -> None:
        self.write(encode(Hello(slot, inc, NONCE)))
        challenge = await self.hear()
        assert isinstance(challenge, Challenge)
        self.write(encode(Proof(member_mac(key, challenge.nonce, slot, inc), None, 1, "running")))


@asynccontextmanager
async def dialled(port: int, address: str = "127.0.0.1") -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()
