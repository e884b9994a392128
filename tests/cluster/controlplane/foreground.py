"""Keeps a cluster in the foreground until Ctrl-C, SIGTERM or SIGHUP."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

_WATCH_SECONDS = 1.0


@dataclass(frozen=True)
class Foreground:
    """What is printed once the cluster is ready, and what raises an error when a part of it has ended.

    `instructions` is given the seconds that the start took.
    """

    instructions: Callable[[float], str]
    check: Callable[[], None]


async def serve(cluster: AbstractAsyncContextManager[Foreground]) -> int:
    """Ends with 0 once it ran and was told to end, with 128 + signal when it was told so while starting."""
    running = False
    told: list[signal.Signals] = []
    task = asyncio.current_task()
    assert task is not None

    def end(by: signal.Signals) -> None:
        if not told:
            told.append(by)
            task.cancel()

    for by in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(by, end, by)
    began = time.monotonic()
    try:
        async with cluster as foreground:
            running = True
            print(foreground.instructions(time.monotonic() - began), flush=True)
            while True:
                await asyncio.sleep(_WATCH_SECONDS)
                foreground.check()
    except asyncio.CancelledError:
        return 0 if running else 128 + told[0]
