"""Hours in milliseconds: an event loop that, instead of waiting, jumps to the next timer.

It is deterministic: callbacks run in the order in which they were scheduled, and tasks hash by their serial number, so
that a set of tasks is gone through in the same order in every process. (By default a hash is a memory address.)
"""

import asyncio
import functools
import heapq
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)

Parameters = ParamSpec("Parameters")
T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
Work = Generator[Any, None, T] | Coroutine[Any, Any, T]


class DeadlockError(Exception):
    """Nothing is left to run and nothing is waited for: the task that should wake the others has forgotten it."""


class _SerialTask(asyncio.Task[T]):
    """A task that hashes by its serial number."""

    def __init__(self, serial: int, work: Work[T], **named: Any) -> None:
        self.serial = serial  # the loop's own set of tasks asks for the hash already in what follows
        super().__init__(work, **named)

    def __hash__(self) -> int:
        return self.serial


class _SerialTimer(asyncio.TimerHandle):
    """A timer that comes after those of the same moment that were set before it.

    Without that, their order would follow from the shape of the loop's heap, and so from timers that have nothing to do
    with them: a fault that is struck out of a plan would change what happens long before it.
    """

    _scheduled: bool

    def __init__(self, serial: int, *timer: Any) -> None:
        super().__init__(*timer)
        self.order = (self.when(), serial)

    def __lt__(self, other: object) -> bool:
        assert isinstance(other, _SerialTimer)
        return self.order < other.order


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """Its own selector: no files, no threads, no real waiting.

    An exception that no one awaited ends the run, and `run_in_virtual_time` raises it: in a trial it is a finding.
    """

    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0
        self._selector = self
        self._tasks_made = 0
        self._timers_set = 0
        self.unhandled: BaseException | None = None
        """The first exception that no one awaited. None: there was none."""
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_unhandled)

    def time(self) -> float:
        return self._seconds

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._timers_set += 1
        timer = _SerialTimer(self._timers_set, when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def select(self, timeout_seconds: float | None) -> list[Any]:
        if timeout_seconds is None:
            raise DeadlockError("nothing is left to run and nothing is waited for")
        self._seconds += timeout_seconds
        return []

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Work[T], **named: Any) -> asyncio.Task[T]:
        self._tasks_made += 1
        return _SerialTask(self._tasks_made, work, loop=loop, **named)

    def _note_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and self.unhandled is None:
            self.unhandled = error
            self.stop()

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """No other thread wakes this loop."""


class VirtualClock:
    """`ports.Clock` on the running `VirtualTimeLoop`."""

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.monotonic_seconds())

    def monotonic_seconds(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop of its own."""
    loop = VirtualTimeLoop()
    try:
        result = loop.run_until_complete(work)
    except RuntimeError:  # the loop was stopped
        if loop.unhandled is not None:
            raise loop.unhandled from None
        raise
    finally:
        loop.close()
    if loop.unhandled is not None:  # noticed when the work was over and let go of its tasks
        raise loop.unhandled
    return result


def virtual_time(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Run an async test on a loop of its own, in virtual time."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        run_in_virtual_time(test(*args, **kwargs))

    return run
