"""How a unit test waits for what happens outside of its own steps: in another task, thread or process."""

import asyncio
from collections.abc import Callable

import pytest

GUARD_SECONDS = 50.0
"""Not an assertion. It keeps a failure from hanging the suite, so it is long enough for a slow and busy machine. It is
shorter than the time that pytest allows a test, so that the failure shows what did not come."""


async def comes(holds: Callable[[], bool]) -> None:
    """Wait until this holds. Raises TimeoutError if it never does."""
    async with asyncio.timeout(GUARD_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


def time_passes(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the clock of the running event loop. Each timer that is set now and due by then fires in its next step.

    A limit that a test shortened instead would also end what a busy machine needs longer for.
    """
    loop = asyncio.get_running_loop()
    before = loop.time
    monkeypatch.setattr(loop, "time", lambda: before() + seconds)
