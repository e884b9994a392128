"""Writes of a state, repeated until the server has accepted them.

A kubelet owns the status that it writes. After any failure (a conflict, a lost answer, an overloaded server) it derives
the status again and writes it again. So one loop serves all writes. The number in flight is limited, because the API
server may share two cores with us. A node that is cut off holds no slot while it waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from recovery.ports import Clock, ReadAgainError, TryLaterError

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0

Answer = TypeVar("Answer")


class Writes:
    """The writes of all kubelets, at most `in_flight` at once."""

    def __init__(self, clock: Clock, in_flight: int) -> None:
        self._clock = clock
        self._slots = asyncio.Semaphore(in_flight)

    async def until_applied(self, connected: asyncio.Event, write: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call `write` until it succeeds, only while `connected` is set. `write` derives its content on each call.

        Raises `RefusedError`, because such a write will never succeed: the model is wrong or lacks a permission.
        """
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            await connected.wait()
            async with self._slots:
                if not connected.is_set():
                    continue
                try:
                    return await write()
                except TryLaterError as error:
                    asked_seconds = error.retry_after_seconds or 0.0
                except ReadAgainError:
                    asked_seconds = 0.0
            await self._clock.sleep(max(pause_seconds, asked_seconds))
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
