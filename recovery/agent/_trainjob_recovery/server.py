"""The barrier's TCP server. It checks who dials, bounds what a connection can hold, and passes messages on.

A connection holds at most one unfinished line and 64 KiB that its peer has not read. There are at most 64 more
connections than slots, and never more than this process may open files; one more replaces the oldest that has not
proved the key yet.
"""

import asyncio
import secrets
import socket
from typing import Protocol

from .file_limit import links_allowed
from .messages import (
    Arrived,
    Beat,
    Challenge,
    Done,
    Failed,
    FromBarrier,
    FromMember,
    Hello,
    Joined,
    Leaving,
    Proof,
    Started,
    Steps,
    Stopped,
    Welcome,
)
from .wire import Lines, WireError, barrier_mac, decode, encode, member_mac, same

HELLO_SECONDS = 10.0
"""A connection that has not proved the key by then is closed."""
SPARE_CONNECTIONS = 64
BACKLOG = 4096
"""Connections that the kernel completes before they are taken in. A dial that finds no room waits for a second."""
UNREAD_LIMIT_BYTES = 65_536
_ACCEPTED_AT_ONCE = 4
"""asyncio takes in as many before it looks at any of them. Where no file can be opened, it logs a failure for each."""
_FROM_MEMBER = (Started, Arrived, Joined, Steps, Failed, Stopped, Done, Leaving, Beat)


class ServerEvents(Protocol):
    """What the server reports. Each link has a number."""

    def joined(self, link: int, hello: Hello, proof: Proof) -> None: ...

    def said(self, link: int, message: FromMember) -> None: ...

    def lost(self, link: int) -> None: ...


class Server:
    def __init__(self, slots: int, key: str, events: ServerEvents) -> None:
        self._slots = slots
        self._key = key
        self._events = events
        self._limit = links_allowed(slots + SPARE_CONNECTIONS)
        self._server: asyncio.Server | None = None
        self._connections: dict[int, _Connection] = {}
        """By number, oldest first."""
        self._strangers: dict[int, _Connection] = {}
        """Those of them that have not proved the key."""
        self._too_late: asyncio.TimerHandle | None = None
        """One for all strangers: a timer for each connection is much of its memory. None: there is no stranger."""
        self._numbers = 0
        self._said: FromBarrier | Welcome | None = None
        """What was sent last, and its line: most messages go to all members."""
        self._said_line = b""

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def held_bytes(self) -> int:
        """What all connections hold of lines that have not ended, and of lines that were not read."""
        return sum(each.held_bytes for each in self._connections.values())

    async def listen(self, port: int) -> int:
        """Listen on all addresses, IPv6 and IPv4, and return the port. Raises OSError."""
        if socket.has_dualstack_ipv6():
            listening = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
        else:
            listening = socket.create_server(("", port), backlog=BACKLOG)
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._connection, sock=listening, backlog=_ACCEPTED_AT_ONCE)
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
        bound: int = listening.getsockname()[1]
        return bound

    def send(self, link: int, message: FromBarrier | Welcome) -> None:
        if (connection := self._connections.get(link)) is None:
            return
        if message is not self._said:
            self._said, self._said_line = message, encode(message)
        connection.write(self._said_line)

    def beat(self) -> None:
        line = encode(Beat())
        for number, connection in list(self._connections.items()):
            if number not in self._strangers:
                connection.write(line)

    def close_link(self, link: int) -> None:
        if (connection := self._connections.get(link)) is not None:
            connection.close()

    async def close(self, linger_seconds: float) -> None:
        """Wait for the members to close their links, so that each has read what was said, and listen no more."""
        deadline = asyncio.get_running_loop().time() + linger_seconds
        while len(self._connections) > len(self._strangers):
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(0.02)
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections.values()):
            connection.close()

    def _connection(self) -> "_Connection":
        self._numbers += 1
        return _Connection(self, self._numbers)

    def opened(self, connection: "_Connection") -> None:
        if len(self._connections) >= self._limit and self._strangers:
            next(iter(self._strangers.values())).abort()
        if len(self._connections) >= self._limit:
            connection.abort()
            return
        self._connections[connection.number] = self._strangers[connection.number] = connection
        self._await_strangers()

    def _await_strangers(self) -> None:
        if self._too_late is None and self._strangers:
            oldest = next(iter(self._strangers.values()))
            loop = asyncio.get_running_loop()
            self._too_late = loop.call_at(oldest.opened_at + HELLO_SECONDS, self._close_late)

    def _close_late(self) -> None:
        self._too_late = None
        since = asyncio.get_running_loop().time() - HELLO_SECONDS
        for stranger in list(self._strangers.values()):
            if stranger.opened_at > since:
                break
            stranger.abort()
        self._await_strangers()

    def closed(self, connection: "_Connection") -> None:
        if self._connections.pop(connection.number, None) is None:
            return
        if self._strangers.pop(connection.number, None) is None:
            self._events.lost(connection.number)

    def answer(self, hello: Hello) -> Challenge:
        if not hello.slot < self._slots:
            raise WireError("a slot that is not of this job")
        return Challenge(secrets.token_hex(16), barrier_mac(self._key, hello.nonce, hello.slot))

    def admit(self, connection: "_Connection", hello: Hello, nonce: str, proof: Proof) -> None:
        if not same(proof.mac, member_mac(self._key, nonce, hello.slot, hello.inc)):
            raise WireError("another key")
        del self._strangers[connection.number]
        self._events.joined(connection.number, hello, proof)

    def said(self, link: int, message: FromMember) -> None:
        self._events.said(link, message)


class _Connection(asyncio.Protocol):
    """Thousands of them are open at once: what only the greeting needs is dropped after it."""

    __slots__ = ("_admitted", "_greeting", "_lines", "_server", "_transport", "number", "opened_at")

    def __init__(self, server: Server, number: int) -> None:
        self.number = number
        self.opened_at = 0.0
        self._server = server
        self._lines = Lines()
        self._transport: asyncio.Transport | None = None
        """None: not connected yet, or closed."""
        self._greeting: tuple[Hello, str] | None = None
        """The hello and our nonce. None: there was no hello yet, or the peer is admitted."""
        self._admitted = False

    @property
    def held_bytes(self) -> int:
        unread = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return self._lines.held_bytes + unread

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "TCP has streams"
        self._transport = transport
        _forget_addresses(transport)
        self.opened_at = asyncio.get_running_loop().time()
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            for line in self._lines.feed(data):
                if self._transport is None:
                    return
                self._line(line)
        except WireError:
            self.abort()

    def _line(self, line: bytes) -> None:
        message = decode(line)
        if self._admitted:
            if not isinstance(message, _FROM_MEMBER):
                raise WireError("not for a member to say")
            self._server.said(self.number, message)
        elif self._greeting is None:
            if not isinstance(message, Hello):
                raise WireError("no hello")
            challenge = self._server.answer(message)
            self._greeting = message, challenge.nonce
            self.write(encode(challenge))
        else:
            if not isinstance(message, Proof):
                raise WireError("no proof")
            (hello, nonce), self._greeting = self._greeting, None
            self._server.admit(self, hello, nonce, message)
            self._admitted = True

    def write(self, line: bytes) -> None:
        if self._transport is None:
            return
        self._transport.write(line)
        if self._transport.get_write_buffer_size() > UNREAD_LIMIT_BYTES:
            self.abort()

    def close(self) -> None:
        """Close after what was written; a peer that does not read it is cut off with its next line."""
        if self._transport is not None:
            transport = self._transport
            self._leave()
            transport.close()
            asyncio.get_running_loop().call_later(HELLO_SECONDS, transport.abort)

    def abort(self) -> None:
        if self._transport is not None:
            transport = self._transport
            self._leave()
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()

    def _leave(self) -> None:
        self._transport = None
        self._server.closed(self)


def _forget_addresses(transport: asyncio.Transport) -> None:
    """asyncio keeps the addresses of both ends, a quarter of what a link takes. Nothing asks for them."""
    kept = getattr(transport, "_extra", None)
    if isinstance(kept, dict):
        kept.clear()
