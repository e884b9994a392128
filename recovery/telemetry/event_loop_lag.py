"""Measures how late the event loop is: everything that the controller promises in milliseconds depends on it."""

from collections.abc import Callable

from recovery.ports import Clock

_INTERVAL_SECONDS = 0.5


async def measure_lag(clock: Clock, lagged: Callable[[float], None]) -> None:
    """Call `lagged` with the seconds by which each sleep overran, until cancelled."""
    while True:
        began = clock.monotonic_seconds()
        await clock.sleep(_INTERVAL_SECONDS)
        lagged(max(0.0, clock.monotonic_seconds() - began - _INTERVAL_SECONDS))
