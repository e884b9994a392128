"""The whole demo: scene, view, comparison, closing report and verdict put together."""

import asyncio
import os
import random
import signal
import sys

from rich.console import Console

from recovery.controller.clock import SystemClock
from recovery.ports import Clock
from recovery.program import EXIT_BROKEN_PIPE
from recovery.sim.demo.alternatives import Downtimes, downtimes_meanwhile
from recovery.sim.demo.closing_report import bill, bill_words, comparison, comparison_words
from recovery.sim.demo.scene import Scene
from recovery.sim.demo.verdict import DemoVerdict, judge
from recovery.sim.demo.view import FRAMES_PER_SECOND, View, view_on
from recovery.telemetry.logs import configure_logs

EXIT_TERMINATED = 143
_LINE_WIDTH = 100
"""At most, also on a wider terminal: longer lines are hard to read."""


class _Audience(Console):
    """Stdout. When its reader has gone away, the play is over, quietly."""

    def __init__(self, play: asyncio.Task[object]) -> None:
        super().__init__(highlight=False)
        self.width = min(self.width, _LINE_WIDTH) if self.is_terminal else _LINE_WIDTH
        self.gone = False
        self._play = play

    def on_broken_pipe(self) -> None:
        """As rich does it, but for its SystemExit, which asyncio would report from whatever task was writing."""
        self.gone = self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self._play.cancel()


def run() -> int:
    """Play it in real time, on stdout. Returns the exit code: 0 as it should be, 1 not, 141 without a reader, 143 after
    SIGTERM. Raises KeyboardInterrupt."""
    try:
        played = asyncio.run(_show())
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    if played is None:
        return EXIT_BROKEN_PIPE
    return 1 if conclude(*played).problems else 0


async def _show() -> tuple[Scene, View, Downtimes | None] | None:
    """None: its reader has gone away."""
    me = asyncio.current_task()
    assert me is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    configure_logs("error")
    console, clock = _Audience(me), SystemClock()
    scene, view = Scene(clock, random.Random(1)), view_on(console, clock)
    try:
        async with downtimes_meanwhile() as found:
            await perform(scene, view, clock)
            return scene, view, None if scene.course.stuck else await found()
    except asyncio.CancelledError:
        if console.gone:
            return None
        raise


async def perform(scene: Scene, view: View, clock: Clock) -> None:
    """Play the scene in the view."""
    with view:
        async with scene.running(), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_watch(scene, view, clock))
            await scene.play(view)
            watching.cancel()
            view.show(scene.moment())


def conclude(scene: Scene, view: View, found: Downtimes | None) -> DemoVerdict:
    """Report the result. `found`: what the failures cost by others; None: the play has not come to its end."""
    trace, course = scene.cluster.trace, scene.course
    if scene.reported:
        view.print(bill(scene.reported, trace, course))
        view.note(bill_words(scene.reported))
    if found is not None:
        view.note(
            "The same failures in fresh copies of this cluster, by who restarts the job: by the trace, in virtual time,"
            " so that this machine's own work does not count."
        )
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
