"""The whole demo: scene, view, comparison, closing report and verdict put together."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from recovery.ports import Clock
from recovery.program import EXIT_BROKEN_PIPE
from recovery.sim.demo.alternatives import Downtimes, downtimes_meanwhile
from recovery.sim.demo.closing_report import bill, bill_words, comparison, comparison_words
from recovery.sim.demo.pace import Pace, run_at_pace
from recovery.sim.demo.scene import Scene
from recovery.sim.demo.verdict import DemoVerdict, judge
from recovery.sim.demo.view import FRAMES_PER_SECOND, View, view_on
from recovery.sim.virtual_time import VirtualClock
from recovery.telemetry.logs import configure_logs

EXIT_TERMINATED = 143
_LINE_WIDTH = 100
"""At most, even on a wider terminal, because longer lines are hard to read."""


class _Audience(Console):
    """The console on stdout. When its reader closes the pipe, the demo ends quietly."""

    def __init__(self, play: asyncio.Task[object]) -> None:
        super().__init__(highlight=False)
        self.width = min(self.width, _LINE_WIDTH) if self.is_terminal else _LINE_WIDTH
        self.gone = False
        self._play = play

    def on_broken_pipe(self) -> None:
        """Does what rich does, without its SystemExit: asyncio would report that from the task that was writing."""
        self.gone = self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self._play.cancel()


def run() -> int:
    """Plays the demo in virtual time, but not faster than real time, on stdout. Returns the exit code: 0 all went as it
    should, 1 not, 141 broken pipe, 143 SIGTERM. Raises KeyboardInterrupt."""
    try:
        played = run_at_pace(_show(), Pace())
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    if played is None:
        return EXIT_BROKEN_PIPE
    return 1 if conclude(*played).problems else 0


async def _show() -> tuple[Scene, View, Downtimes | None] | None:
    """None: the reader of stdout has closed the pipe."""
    me = asyncio.current_task()
    assert me is not None
    configure_logs("error")
    console, clock = _Audience(me), VirtualClock()
    scene, view = Scene(clock, random.Random(1)), view_on(console, clock)
    try:
        with _terminated_by(me.cancel), downtimes_meanwhile() as found:
            await perform(scene, view, clock)
            report_bill(scene, view)
            return scene, view, None if scene.course.stuck else await found()
    except asyncio.CancelledError:
        if console.gone:
            return None
        raise


@contextmanager
def _terminated_by(stop: Callable[[], object]) -> Iterator[None]:
    """Calls `stop` in the running loop when SIGTERM comes. A loop in virtual time has no signal handlers."""
    loop = asyncio.get_running_loop()
    before = signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(stop))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def perform(scene: Scene, view: View, clock: Clock) -> None:
    with view:
        async with scene.running(), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_watch(scene, view, clock))
            await scene.play(view)
            watching.cancel()
            view.show(scene.moment())


def report_bill(scene: Scene, view: View) -> None:
    """Reports what each incident cost. On a slow machine the comparison may come much later."""
    if scene.reported:
        view.print(bill(scene.reported, scene.cluster.trace, scene.course))
        view.note(bill_words(scene.reported))
    if not scene.course.stuck:
        view.note("The same failures in fresh copies of this cluster, by who restarts the job, by the trace:")


def conclude(scene: Scene, view: View, found: Downtimes | None) -> DemoVerdict:
    """Reports the result. `found`: the downtimes with each restarter. None: the play did not reach its end."""
    trace, course = scene.cluster.trace, scene.course
    if found is not None:
        view.print(comparison(found, course.ranks))
        view.note(comparison_words())
    verdict = judge(trace, course, held=scene.held())
    for proof in verdict.proofs:
        view.prove(proof)
    for problem in verdict.problems:
        view.complain(problem)
    view.conclude(verdict)
    return verdict


async def _watch(scene: Scene, view: View, clock: Clock) -> None:
    while True:
        view.show(scene.moment())
        await clock.sleep(1 / FRAMES_PER_SECOND)
