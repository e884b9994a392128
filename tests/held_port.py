"""Ports for programs under test that must be given the number of their port."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """A TCP port of 127.0.0.1 that the kernel gives to no other program while the context is open.

    This socket has the port and does not listen, so connections are refused until the program under test listens. The
    program can, because both have SO_REUSEADDR. A port that is only looked up and freed may be another's by then.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])
