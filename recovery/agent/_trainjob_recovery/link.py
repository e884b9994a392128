"""A member's link to the barrier. It dials for as long as the agent lives, and nothing waits for it."""

import asyncio
import contextlib
import random
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from .messages import (
    Beat,
    Challenge,
    ExitAgent,
    Finished,
    FromBarrier,
    FromMember,
    Hello,
    Permit,
    Proof,
    Start,
    StopEpoch,
    Welcome,
)
from .wire import LINE_LIMIT_BYTES, WireError, barrier_mac, decode, encode, member_mac, same

BEAT_SECONDS = 5.0
SILENCE_SECONDS = 15.0
"""A link on which nothing was heard for so long is lost."""
HANDSHAKE_SECONDS = 10.0
SHORTEST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 1.0
UNSENT_LIMIT_BYTES = 65_536
_FROM_BARRIER = (Permit, StopEpoch, Start, ExitAgent, Finished, Beat)
_LINK_ENDS = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError, WireError)


class LinkEvents(Protocol):
    def proof(self, mac: str) -> Proof: ...

    def welcomed(self, welcome: Welcome) -> None: ...

    def heard(self, message: FromBarrier) -> None: ...


class BarrierLink:
    def __init__(
        self,
        addresses: Sequence[str],
        port: int,
        *,
        key: str,
        slot: int,
        inc: str,
        events: LinkEvents,
        say: Callable[[str], None],
        draw: random.Random,
    ) -> None:
        """Dials the addresses in turn. `draw` spreads the dials of many members."""
        self._addresses = addresses
        self._port = port
        self._key = key
        self._slot = slot
        self._inc = inc
        self._events = events
        self._say = say
        self._draw = draw
        self._writer: asyncio.StreamWriter | None = None
        """None: there is no link."""
        self._doubted = False
        self._stopped = False

    @property
    def up(self) -> bool:
        return self._writer is not None

    def send(self, message: FromMember) -> None:
        """Without a link the message is lost: a welcome makes the member say again what counts."""
        if self._writer is None:
            return
        self._writer.write(encode(message))
        if self._writer.transport.get_write_buffer_size() > UNSENT_LIMIT_BYTES:
            self._writer.transport.abort()

    def stop(self) -> None:
        """Dial no more. A cancellation alone may be lost: `wait_for` drops one that comes with the error of a dial."""
        self._stopped = True

    async def run(self) -> None:
        """Ends by being cancelled, after `stop`."""
        wait_seconds, attempt = SHORTEST_WAIT_SECONDS, 0
        while not self._stopped:
            address = self._addresses[attempt % len(self._addresses)]
            attempt += 1
            try:
                welcomed = await self._dial(address)
            except _LINK_ENDS:
                welcomed = False
            wait_seconds = SHORTEST_WAIT_SECONDS if welcomed else min(LONGEST_WAIT_SECONDS, wait_seconds * 1.7)
            if not self._stopped:
                await asyncio.sleep(wait_seconds * self._draw.uniform(0.5, 1.5))

    async def flush(self, within_seconds: float) -> None:
        """Wait until all that was said has left this process."""
        deadline = asyncio.get_running_loop().time() + within_seconds
        while self._writer is not None and self._writer.transport.get_write_buffer_size():
            if asyncio.get_running_loop().time() >= deadline:
                return
            await asyncio.sleep(0.01)

    async def _dial(self, address: str) -> bool:
        """One link, from dialling to its end. Returns whether the barrier has welcomed this member."""
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(address, self._port, limit=LINE_LIMIT_BYTES), HANDSHAKE_SECONDS
        )
        try:
            welcome = await asyncio.wait_for(self._greet(reader, writer), HANDSHAKE_SECONDS)
            self._writer = writer
            self._events.welcomed(welcome)
            with contextlib.suppress(*_LINK_ENDS):
                await self._stay(reader)
            return True
        finally:
            self._writer = None
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Welcome:
        nonce = secrets.token_hex(16)
        writer.write(encode(Hello(self._slot, self._inc, nonce)))
        challenge = decode(await reader.readuntil())
        if not isinstance(challenge, Challenge):
            raise WireError("no challenge")
        if not same(challenge.mac, barrier_mac(self._key, nonce, self._slot)):
            if not self._doubted:
                self._doubted = True
                self._say("what answers at the barrier's address does not know this job's key")
            raise WireError("another key")
        writer.write(encode(self._events.proof(member_mac(self._key, challenge.nonce, self._slot, self._inc))))
        welcome = decode(await reader.readuntil())
        if not isinstance(welcome, Welcome):
            raise WireError("no welcome")
        return welcome

    async def _stay(self, reader: asyncio.StreamReader) -> None:
        beats = asyncio.ensure_future(self._beat())
        try:
            while True:
                message = decode(await asyncio.wait_for(reader.readuntil(), SILENCE_SECONDS))
                if not isinstance(message, _FROM_BARRIER):
                    raise WireError("not for a barrier to say")
                self._events.heard(message)
        finally:
            beats.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self.send(Beat())
