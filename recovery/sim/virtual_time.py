"""Hours in milliseconds: an event loop that, instead of waiting, jumps to the next timer."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec

BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)

Parameters = ParamSpec("Parameters")


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """Its own selector: no files, no threads, no real waiting."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0
        self._selector = self

    def time(self) -> float:
        return self._seconds

    def select(self, timeout_seconds: float | None) -> list[Any]:
        assert timeout_seconds is not None, "deadlock: nothing is left to run and nothing is waited for"
        self._seconds += timeout_seconds
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """Nobody wakes this loop from another thread."""


class VirtualClock:
    """`ports.Clock` on the running `VirtualTimeLoop`."""

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.monotonic_seconds())

    def monotonic_seconds(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def virtual_time(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Run an async test on a loop of its own, in virtual time."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        loop = VirtualTimeLoop()
        try:
            loop.run_until_complete(test(*args, **kwargs))
        finally:
            loop.close()

    return run
