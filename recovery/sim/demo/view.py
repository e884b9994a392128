"""What the audience sees: on a terminal, lines with a live picture below them; everywhere else, only lines."""

from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleRenderable, Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.model.ledger import Phase
from recovery.ports import Clock
from recovery.sim.demo.closing_report import phases_of
from recovery.sim.demo.rank_board import RankLetter
from recovery.sim.demo.scene import ReportedIncident, SceneMoment
from recovery.sim.demo.verdict import DemoVerdict

FRAMES_PER_SECOND = 8
RANKS_PER_LINE = 32
_STYLES = {
    RankLetter.TRAINING: "green",
    RankLetter.WAITING: "yellow",
    RankLetter.HUNG: "bold red",
    RankLetter.STARTING: "cyan",
    RankLetter.GONE: "dim",
}


class View:
    """Prints lines with the clock's time of day in UTC. The `Narrator` of the scene."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A view of lines has no live picture to remove."""

    def say(self, text: str) -> None:
        self._line(Text(text))

    def announce(self, text: str) -> None:
        self._line(Text(text, style="bold red"))

    def incident(self, reported: ReportedIncident) -> None:
        """If a closed incident has class Unknown, the controller's sentence adds nothing to the announcement."""
        if reported.closing is None or reported.incident.disruption_class != DisruptionClass.UNKNOWN:
            self._line(Text(reported.incident.message))
        if reported.closing is not None:
            self.note(phases_of(reported))

    # Lines without a time of day.

    def note(self, text: str) -> None:
        self._wrapped(Text(text))

    def prove(self, text: str) -> None:
        """Something went as it should."""
        self._wrapped(Text(text, style="green"))

    def complain(self, text: str) -> None:
        """Something did not go as it should."""
        self._wrapped(Text.assemble(("not as it should be: ", "bold red"), text))

    def conclude(self, verdict: DemoVerdict) -> None:
        """Prints the last line, PASS or FAIL."""
        checks = len(verdict.problems) + len(verdict.proofs)
        if verdict.problems:
            text = f": {len(verdict.problems)} of {checks} checks failed"
            self.print(Text.assemble(("FAIL", "bold red"), text))
        else:
            self.print(
                Text.assemble(("PASS", "bold green"), f": all {checks} checks passed, by the training's own trace")
            )

    def print(self, renderable: ConsoleRenderable) -> None:
        self._console.print(renderable)

    def show(self, moment: SceneMoment) -> None:
        """Called `FRAMES_PER_SECOND` times a second. A view of lines has no picture to update."""

    def _wrapped(self, text: Text) -> None:
        for line in text.wrap(self._console, self._console.width):
            line.rstrip()
            self.print(line)

    def _line(self, text: Text) -> None:
        """Prints it wrapped, with the time in its own column."""
        stamp = f"{self._clock.now():%H:%M:%S}  "
        for number, line in enumerate(text.wrap(self._console, self._console.width - len(stamp))):
            line.rstrip()
            self._console.print(Text.assemble((stamp if number == 0 else " " * len(stamp), "dim"), line))


class LiveView(View):
    """Prints the lines, and below them a live picture of the ranks, the phase, the sentence and the bill."""

    def __init__(self, console: Console, clock: Clock) -> None:
        super().__init__(console, clock)
        # No refresh thread, because everything here runs in one event loop.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, moment: SceneMoment) -> None:
        self._live.update(picture(moment), refresh=True)


def view_on(console: Console, clock: Clock) -> View:
    """The view for a console. A live picture needs a terminal that can move its cursor."""
    moves = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console, clock) if moves else View(console, clock)


def picture(moment: SceneMoment) -> ConsoleRenderable:
    """The picture of one moment. It needs at least 74 columns."""
    lines = [
        Text.assemble((f"rank {first:3}  ", "dim"), *_letters(moment.ranks[first : first + RANKS_PER_LINE]))
        for first in range(0, len(moment.ranks), RANKS_PER_LINE)
    ]
    return Group(
        Rule(style="dim"),
        *lines,
        Text.assemble("          ", _counts(moment.ranks)),
        _phase(moment),
        _restarts(moment),
        Text(moment.sentence, style="italic"),
    )


def _letters(ranks: Iterable[RankLetter]) -> list[tuple[str, str]]:
    return [(f"{state.value} ", _STYLES[state]) for state in ranks]


def _counts(ranks: Iterable[RankLetter]) -> Text:
    """The legend, with the number of ranks in each state."""
    counts = Counter(ranks)
    text = Text()
    for state, style in _STYLES.items():
        if counts[state]:
            text.append(f"{'  ' if text else ''}{state.value} ", style)
            text.append(f"{counts[state]} {state.name.lower()}")
    return text


def _phase(moment: SceneMoment) -> Text:
    style = "bold" if moment.phase is Phase.HEALTHY else "bold red"
    return Text.assemble(
        "phase ",
        (f"{moment.phase:<11}", style),
        f"  idle GPUs {moment.idle_gpus:>5,}  GPU-hours billed {moment.idle_gpu_seconds / 3600:>7.2f}",
    )


def _restarts(moment: SceneMoment) -> Text:
    return Text(f"restarts {moment.restarts}, budget left {moment.budget_left} of {moment.budget_limit}")
