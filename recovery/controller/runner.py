"""Runs the controller: informers, the queue and its looks, until it is told to stop.

The reconcile boundary is here: the one place that catches broadly, because one group's trouble must never become the
others'.
"""

import asyncio

import structlog

from recovery.controller.observer import ControllerObserver
from recovery.controller.queue import GroupQueue
from recovery.controller.reconciler import InvariantError, LedgerUnreadableError, Reconciler, RestlessGroupError
from recovery.core.facts import GroupKey
from recovery.ports import ApiClient, ApiError, Clock, Entropy, GroupStore, RefusedError, TryLaterError

_log = structlog.get_logger("recovery.controller")

_LOOKS_AT_ONCE = 16
_RESYNC_SECONDS = 600.0
_SYNC_POLL_SECONDS = 0.05
_FINISH_SECONDS = 20.0
"""How long a stop waits for looks in progress: less than a pod's usual grace of 30 s."""


class Controller:
    """One controller process over one store."""

    def __init__(
        self, *, api: ApiClient, store: GroupStore, clock: Clock, entropy: Entropy, observer: ControllerObserver
    ) -> None:
        self._store = store
        self._clock = clock
        self._observer = observer
        self._queue = GroupQueue(clock, entropy)
        self._reconciler = Reconciler(api=api, store=store, clock=clock, observer=observer)
        self._slots = asyncio.Semaphore(_LOOKS_AT_ONCE)

    @property
    def queue_depth(self) -> int:
        return self._queue.depth

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set, then let the looks in progress finish. The store's informers run elsewhere."""
        while not self._store.synced():
            if stop.is_set():
                return
            await self._clock.sleep(_SYNC_POLL_SECONDS)
        self._store.subscribe(self._queue.add)
        _log.info("all caches are synced; watching")
        looks: set[asyncio.Task[None]] = set()
        resync = asyncio.create_task(self._resync())
        stopper = asyncio.create_task(self._close_when(stop))
        try:
            while (taken := await self._queue.take()) is not None:
                key, waited_seconds = taken
                self._observer.queue_waited(waited_seconds, self._queue.depth)
                await self._wait_for_slot(stopper)
                if stop.is_set():
                    break
                task = asyncio.create_task(self._look(key))
                looks.add(task)
                task.add_done_callback(looks.discard)
            if looks:
                await asyncio.wait(looks, timeout=_FINISH_SECONDS)
        finally:
            for task in (resync, stopper, *looks):
                task.cancel()
            await asyncio.gather(resync, stopper, *looks, return_exceptions=True)

    async def _wait_for_slot(self, stopper: "asyncio.Task[None]") -> None:
        """Until one more look may begin, or the end: looks that hang in every slot must not hold up a stop."""
        slot = asyncio.create_task(self._slots.acquire())
        try:
            await asyncio.wait({slot, stopper}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            slot.cancel()

    async def _close_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._queue.close()

    async def _resync(self) -> None:
        """Level-triggered: every group is looked at once in a while, changed or not; it costs no request."""
        while True:
            for key in tuple(self._store.keys()):
                self._queue.add(key)
            await self._clock.sleep(_RESYNC_SECONDS)

    async def _look(self, key: GroupKey) -> None:
        started = self._clock.monotonic_seconds()
        error: str | None = None
        try:
            look_again_at = await self._reconciler.look(key)
        except Exception as failure:  # noqa: BLE001 - the reconcile boundary
            error = type(failure).__name__
            self._say(key, failure, self._queue.retry(key))
        else:
            self._queue.succeeded(key)
            if look_again_at is not None:
                self._queue.add_after(key, (look_again_at - self._clock.now()).total_seconds())
        finally:
            self._queue.done(key)
            self._slots.release()
            self._observer.look_finished(key, self._clock.monotonic_seconds() - started, error)

    def _say(self, key: GroupKey, failure: Exception, retry_in_seconds: float) -> None:
        """One line for what is expected to happen, a traceback only for what is a bug."""
        line = {"job": str(key), "error": str(failure), "retry_in_seconds": round(retry_in_seconds, 1)}
        match failure:
            case TryLaterError():
                _log.info("the API server asks to wait", **line)
            case RestlessGroupError():
                _log.warning("no decision could be carried out yet", **line)
            case RefusedError():
                _log.error("the API server refuses this for good", **line)
            case ApiError():
                _log.warning("the outcome of a request is not known", **line)
            case LedgerUnreadableError():
                _log.error("holding", **line)
            case InvariantError():
                _log.error("a decision was stopped", **line)
            case _:
                _log.error("a look failed: this is a bug", **line, exc_info=failure)
