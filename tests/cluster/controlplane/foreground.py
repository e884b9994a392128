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
    """A cluster that is ready. `instructions`: the text to print, given the seconds that the start took.

    `check` raises an error if a part of the cluster has ended.
    """

    instructions: Callable[[float], str]
    check: Callable[[], None]


async def serve(cluster: AbstractAsyncContextManager[Foreground]) -> int:
    """Returns 0 if a signal ends the running cluster, and 128 + signal if the signal comes while the cluster starts."""
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
