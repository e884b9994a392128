"""The machine of an agent with a link to the barrier, and no processes: thousands of them fit into one event loop.

The machine is the agent's own (`AgentMember`), the protocol and the proofs are those of the wire, and the waits between
dials are those of `link.py`. The link itself is lighter: a protocol in place of streams and tasks.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from recovery.agent._trainjob_recovery.link import HANDSHAKE_SECONDS, LONGEST_WAIT_SECONDS, SHORTEST_WAIT_SECONDS
from recovery.agent._trainjob_recovery.member import AgentMember, BeginZygote, Effect, End, StartRanks, StopRanks, Tell
from recovery.agent._trainjob_recovery.member import RankEnd as _RankEnd
from recovery.agent._trainjob_recovery.messages import Beat, Challenge, Failure, FromMember, Hello, Message, Welcome
from recovery.agent._trainjob_recovery.slot_progress import RankProgress
from recovery.agent._trainjob_recovery.wire import Lines, WireError, barrier_mac, decode, encode, member_mac, same

STEP_SECONDS = 0.5


@dataclass(frozen=True)
class Place:
    """Where an agent is, and what it knows of its job."""

    slot: int
    slots: int
    key: str
    address: str
    port: int
    pod: str = "pod"
    node: str = "node"


class LightAgent:
    """Its ranks start and stop at once, unless a subclass lets them take their time."""

    def __init__(self, place: Place, draw: random.Random, on_welcome: Callable[[], None] = lambda: None) -> None:
        self.place = place
        self.member = AgentMember(place.slots, 1)
        self.inc = secrets.token_hex(8)
        self.permitted = False
        """The barrier has said that a restart in place is permitted."""
        self.on_welcome = on_welcome
        self.link: Link | None = None
        """None: there is none, or it has not been welcomed."""
        self._draw = draw
        self._ended = False
        self._began_at: float | None = None
        """When the ranks of the epoch have met. None: they have not."""
        self._first = 0
        """The step before the first one of the epoch."""

    def begin(self) -> None:
        self.perform(self.member.begin())

    def fail(self, message: str = "RuntimeError: of the bench") -> None:
        """The rank ends with an error."""
        place = self.place
        failure = Failure(place.slot, 1, None, message, None, place.pod, place.node)
        self.perform(self.member.on_rank_end(time.monotonic(), _RankEnd(self.member.epoch, 0, failure)))

    def look(self) -> None:
        """The ranks have met, and make a step now and then."""
        now, began = time.monotonic(), self._began_at
        if self.member.state != "running" or began is None:
            return
        step = int((now - began) / STEP_SECONDS)
        step_at = began + step * STEP_SECONDS if step else None
        rank = RankProgress(began, began, self._first + step, self._first, absolute=True, step_at=step_at)
        self.perform(self.member.on_progress(now, self.member.epoch, [rank]))

    def beat(self) -> None:
        self.look()
        if self.link is not None:
            self.link.write(Beat())

    async def run(self) -> None:
        """Dial for as long as the agent lives, as `BarrierLink.run` does."""
        wait_seconds = SHORTEST_WAIT_SECONDS
        while not self._ended:
            welcomed = False
            with suppress(OSError, TimeoutError):
                link = await self._dialled()
                welcomed = await link.ended
            wait_seconds = SHORTEST_WAIT_SECONDS if welcomed else min(LONGEST_WAIT_SECONDS, wait_seconds * 1.7)
            await asyncio.sleep(wait_seconds * self._draw.uniform(0.5, 1.5))

    async def _dialled(self) -> "Link":
        loop, place = asyncio.get_running_loop(), self.place
        dialling = loop.create_connection(lambda: Link(self), place.address, place.port)
        _, link = await asyncio.wait_for(dialling, HANDSHAKE_SECONDS)
        return link

    # ---- what the machine asks for -----------------------------------------------------------------------------------

    def perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StartRanks):
                self.start_ranks(effect.epoch)
            elif isinstance(effect, StopRanks):
                self.stop_ranks()
            elif isinstance(effect, BeginZygote):
                self.permitted = True
            elif isinstance(effect, Tell) and self.link is not None:
                self.link.write(effect.message)
            elif isinstance(effect, End):
                self.end(effect.code)

    def start_ranks(self, epoch: int) -> None:
        self._began_at = time.monotonic()
        self.perform(self.member.on_started(self._began_at, epoch))
        self.look()

    def stop_ranks(self) -> None:
        self._began_at = None
        self.perform(self.member.on_stopped(time.monotonic(), nothing_left=True))

    def end(self, code: int) -> None:
        """The agent ends with this code, and its links with it."""
        self._ended = True
        if self.link is not None:
            self.link.close()


class Link(asyncio.Protocol):
    """One link, from dialling to its end."""

    def __init__(self, agent: LightAgent) -> None:
        self._agent = agent
        self._lines = Lines()
        self._transport: asyncio.Transport
        self._nonce = secrets.token_hex(16)
        self._heard: Callable[[Message], None] = self._on_challenge
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[bool] = loop.create_future()
        """Whether the barrier had welcomed this agent."""
        self._too_late = loop.call_later(HANDSHAKE_SECONDS, self.abort)

    def write(self, message: FromMember | Hello) -> None:
        self._transport.write(encode(message))

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        """Close after what was written."""
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "TCP has streams"
        self._transport = transport
        self.write(Hello(self._agent.place.slot, self._agent.inc, self._nonce))

    def data_received(self, data: bytes) -> None:
        try:
            for line in self._lines.feed(data):
                self._heard(decode(line))
        except WireError:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._too_late.cancel()
        if not self.ended.done():
            self.ended.set_result(self._heard == self._on_message)
        if self._agent.link is self:
            self._agent.link = None

    def _on_challenge(self, message: Message) -> None:
        place = self._agent.place
        if not isinstance(message, Challenge):
            raise WireError("no challenge")
        if not same(message.mac, barrier_mac(place.key, self._nonce, place.slot)):
            raise WireError("another key")
        mac = member_mac(place.key, message.nonce, place.slot, self._agent.inc)
        self._transport.write(encode(self._agent.member.proof(mac)))
        self._heard = self._on_welcome

    def _on_welcome(self, message: Message) -> None:
        if not isinstance(message, Welcome):
            raise WireError("no welcome")
        self._too_late.cancel()
        self._heard = self._on_message
        self._agent.link = self
        self._agent.perform(self._agent.member.on_welcome(time.monotonic(), message))
        self._agent.on_welcome()

    def _on_message(self, message: Message) -> None:
        if not isinstance(message, Beat):
            self._agent.perform(self._agent.member.on_message(time.monotonic(), message))  # type: ignore[arg-type]
