"""The whole demo: scene, view, closing report and verdict put together."""

import asyncio
import os
import random
import signal
import sys

from rich.console import Console

from recovery.controller.clock import SystemClock
from recovery.ports import Clock
from recovery.sim.demo.closing_report import closing_words, incidents_table, phases_table
from recovery.sim.demo.scene import Scene
from recovery.sim.demo.verdict import DemoVerdict, judge
from recovery.sim.demo.view import FRAMES_PER_SECOND, View, view_on
from recovery.telemetry.logs import configure_logs

EXIT_TERMINATED = 143
_LINE_WIDTH = 100
"""Of tables where there is no terminal that has a width."""


class _Audience(Console):
    """Stdout. When its reader has gone away, the play is over, quietly."""

    def __init__(self, play: asyncio.Task[object]) -> None:
        super().__init__(highlight=False)
        if not self.is_terminal:
            self.width = _LINE_WIDTH
        self.gone = False
        self._play = play

    def on_broken_pipe(self) -> None:
        """As rich does it, but for its SystemExit, which asyncio would report from whatever task was writing."""
        self.gone = self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self._play.cancel()


def run() -> int:
    """Play it in real time, on stdout. Returns the exit code: 0 as it should be, 1 not, or nobody was there to see; 143
    after SIGTERM. Raises KeyboardInterrupt."""
    try:
        return asyncio.run(_show())
    except asyncio.CancelledError:
        return EXIT_TERMINATED


async def _show() -> int:
    me = asyncio.current_task()
    assert me is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    configure_logs("error")
    console, clock = _Audience(me), SystemClock()
    try:
        verdict = await perform(Scene(clock, random.Random(1)), view_on(console, clock), clock)
    except asyncio.CancelledError:
        if console.gone:
            return 1
        raise
    return 1 if verdict.problems else 0


async def perform(scene: Scene, view: View, clock: Clock) -> DemoVerdict:
    """Play the scene in the view and tell what came of it."""
    with view:
        async with scene.running(), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_watch(scene, view, clock))
            await scene.play(view)
            watching.cancel()
            view.show(scene.moment())
            held = scene.held()
    trace, course = scene.cluster.trace, scene.course
    verdict = judge(trace, course, held=held)
    if scene.told:
        view.print(incidents_table(scene.told, trace, course))
        view.print(phases_table(scene.told))
    for words in closing_words(scene.told, course.ranks):
        view.say(words)
    view.say("by the training's own trace:")
    for proof in verdict.proofs:
        view.prove(proof)
    for problem in verdict.problems:
        view.complain(problem)
    return verdict


async def _watch(scene: Scene, view: View, clock: Clock) -> None:
    while True:
        view.show(scene.moment())
        await clock.sleep(1 / FRAMES_PER_SECOND)
