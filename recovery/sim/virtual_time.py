"""Virtual time: an event loop that jumps to the next timer instead of waiting, so hours take milliseconds.

The loop is deterministic: callbacks run in the order in which they were scheduled, and tasks hash by their serial
number, so a set of tasks has the same order in every process. (By default the hash comes from the memory address.)
"""

import asyncio
import functools
import heapq
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import closing, contextmanager
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)

Parameters = ParamSpec("Parameters")
T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
Work = Generator[Any, None, T] | Coroutine[Any, Any, T]


class DeadlockError(Exception):
    """No callback and no timer is left, but the work is not done: nothing will ever wake the waiting tasks."""


class _SerialTask(asyncio.Task[T]):
    """A task that hashes by its serial number."""

    def __init__(self, serial: int, work: Work[T], **named: Any) -> None:
        self.serial = serial  # before super(), which adds the task to asyncio's set of tasks and needs the hash
        super().__init__(work, **named)

    def __hash__(self) -> int:
        return self.serial


class _SerialTimer(asyncio.TimerHandle):
    """A timer that fires after earlier set timers of the same instant.

    Without that, their order would depend on the shape of the loop's heap, and so on unrelated timers. Then removing a
    fault from a plan would change what happens long before that fault.
    """

    _scheduled: bool

    def __init__(self, serial: int, *timer: Any) -> None:
        super().__init__(*timer)
        self.order = (self.when(), serial)

    def __lt__(self, other: object) -> bool:
        assert isinstance(other, _SerialTimer)
        return self.order < other.order


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """The loop is its own selector: no files, no threads, no real waiting.

    An exception that was never awaited ends the run, and `run_in_virtual_time` raises it: in a trial it is a finding.
    """

    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, *, pace: Callable[[float], None] | None = None) -> None:
        super().__init__()
        self._pace = pace
        """Called before time passes, with the time that comes next. It may take long, and nothing that runs here
        notices. None: nothing is called."""
        self._seconds = 0.0
        self._selector = self
        self._tasks_made = 0
        self._timers_set = 0
        self.unhandled: BaseException | None = None
        """The first exception that was never awaited. None: there was none."""
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_unhandled)

    def time(self) -> float:
        return self._seconds

    def spend(self, seconds: float) -> None:
        """The callback that runs now has kept the processor busy for so long."""
        self._seconds += seconds

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
        if timeout_seconds and self._pace is not None:
            self._pace(self._seconds + timeout_seconds)
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
    """Run the coroutine on its own loop in virtual time."""
    loop = VirtualTimeLoop()
    with raising_unhandled(loop), closing(loop):
        return loop.run_until_complete(work)


@contextmanager
def raising_unhandled(loop: VirtualTimeLoop) -> Iterator[None]:
    """The loop is run and closed within the context."""
    try:
        yield
    except RuntimeError:  # the loop was stopped
        if loop.unhandled is not None:
            raise loop.unhandled from None
        raise
    if loop.unhandled is not None:  # found when the work had finished and its tasks were released
        raise loop.unhandled


def virtual_time(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Run an async test on its own loop in virtual time."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        run_in_virtual_time(test(*args, **kwargs))

    return run
