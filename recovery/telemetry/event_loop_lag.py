"""Measures how late the event loop is: everything that the controller promises in milliseconds stands on it."""

from collections.abc import Callable

from recovery.ports import Clock

_INTERVAL_SECONDS = 0.5


async def measure_lag(clock: Clock, lagged: Callable[[float], None]) -> None:
    """Until cancelled: call `lagged` with the seconds by which each sleep overran."""
    while True:
        began = clock.monotonic_seconds()
        await clock.sleep(_INTERVAL_SECONDS)
        lagged(max(0.0, clock.monotonic_seconds() - began - _INTERVAL_SECONDS))
