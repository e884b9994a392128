"""Keeps the caches out of Python's garbage collections.

The caches hold most objects of this process. Their reference counts free them, but a full collection still visits them
all: with 50,000 pods it blocks the event loop for 100 ms, and eight scrapers cause one every second. When hundreds of
groups are recreated at once, the caches become new objects, and it would visit those.
"""

import gc
from collections.abc import Callable

from recovery.ports import Clock

_SYNC_POLL_SECONDS = 0.5
_LONG_SECONDS = 0.01
"""A full collection that took longer has visited many objects that live on."""
_FULL = 2
"""The number of the oldest generation, which a full collection visits as well."""
REVIEW_SECONDS = 3600.0
"""Between two reviews of what is frozen. Objects created after a freeze are visited until the next one."""


async def spare_the_caches(synced: Callable[[], bool], clock: Clock) -> None:
    """Freeze the caches from time to time, until cancelled. `synced`: whether all caches are filled."""
    while not synced():
        await clock.sleep(_SYNC_POLL_SECONDS)
    watching = _LongCollections(clock)
    gc.callbacks.append(watching)
    try:
        while True:
            # Frozen objects may have become garbage since, such as tasks that were running then.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            # The collector waits with a full collection until a quarter as many objects are new as survived the last
            # one. All of those are frozen now, so the next one would come late and visit as many.
            gc.collect()
            await clock.sleep(REVIEW_SECONDS)
    finally:
        gc.callbacks.remove(watching)


class _LongCollections:
    """Freezes what has survived a long collection: then it is no garbage, and the next collection is short."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._began = self._clock.monotonic_seconds()
        elif self._clock.monotonic_seconds() - self._began > _LONG_SECONDS:
            gc.freeze()
