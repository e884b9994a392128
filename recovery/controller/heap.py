"""Keeps the caches out of Python's garbage collections.

The caches hold most objects of this process. Their reference counts free them, but a full collection still visits them
all: with 50,000 pods it blocks the event loop for 100 ms, and eight scrapers cause one every second.
"""

import gc
from collections.abc import Callable

from recovery.ports import Clock

_SYNC_POLL_SECONDS = 0.5
REVIEW_SECONDS = 3600.0
"""Between two freezes. Objects created after a freeze are visited until the next one."""


async def spare_the_caches(synced: Callable[[], bool], clock: Clock) -> None:
    """Freeze the caches from time to time, until cancelled. `synced`: whether all caches are filled."""
    while not synced():
        await clock.sleep(_SYNC_POLL_SECONDS)
    while True:
        # Frozen objects may have become garbage since, such as tasks that were running then.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        await clock.sleep(REVIEW_SECONDS)
