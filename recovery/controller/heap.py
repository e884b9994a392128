"""Keeps the caches out of Python's garbage collections.

The caches hold most objects of this process, and they are freed by their reference counts. A full collection visits
them all the same: with 50,000 pods it stops the event loop for 100 ms, and eight scrapers cause one every second.
"""

import gc
from collections.abc import Callable

from recovery.ports import Clock

_SYNC_POLL_SECONDS = 0.5
REVIEW_SECONDS = 3600.0
"""Objects that came since then are visited until the next review."""


async def spare_the_caches(synced: Callable[[], bool], clock: Clock) -> None:
    """Until cancelled. `synced`: all caches are filled."""
    while not synced():
        await clock.sleep(_SYNC_POLL_SECONDS)
    while True:
        # What was spared may have become garbage since, as a task that was running then has.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        await clock.sleep(REVIEW_SECONDS)
