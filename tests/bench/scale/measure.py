"""Runs the arms one after the other, and lays the figures of both versions side by side."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.scale.scenarios import Figure, Sizes

_HERE = Path(__file__).parents[3]


@dataclass(frozen=True)
class Options:
    """What is measured. The fleets: how many groups of how many pods."""

    fleet: str = "40x100,100x10"
    big_fleet: str = "2x1000"
    """Empty: no group of this kind is measured."""
    scenarios: Sequence[str] = ("start", "lost", "noop", "flips", "rack", "storm")
    trials: int = 5
    bursts: int = 2
    events: int = 10_000
    against: str = ""
    """A commit whose controller runs through the same. Empty: none."""


@dataclass(frozen=True)
class Row:
    """One figure of both versions. `old` None: only this version ran."""

    fleet: str
    scenario: str
    what: str
    old: float | None
    new: float
    digits: int

    @property
    def ratio(self) -> str:
        return f"{self.new / self.old:.2f}" if self.old else ""


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    """The sources of a commit, in a work tree of its own."""
    with tempfile.TemporaryDirectory(prefix="recovery-bench-old-") as folder:
        source = Path(folder) / "source"
        git = ["git", "-C", str(_HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(source), commit], check=True)
        try:
            yield source
        finally:
            subprocess.run([*git, "remove", "--force", str(source)], check=True)


def _figures(source: Path, fleet: str, options: Options, scenarios: Sequence[str]) -> list[Figure]:
    sizes = Sizes(trials=options.trials, bursts=options.bursts, events=options.events)
    command = [sys.executable, "-m", "tests.bench.scale.arm", str(source), fleet, json.dumps(asdict(sizes)), *scenarios]
    ended = subprocess.run(command, cwd=_HERE, stdout=subprocess.PIPE, check=True)
    return [Figure(**each) for each in json.loads(ended.stdout.splitlines()[-1])]


def _rows(old: Path | None, fleet: str, options: Options, scenarios: Sequence[str]) -> list[Row]:
    before: dict[tuple[str, str], float] = {}
    if old is not None:
        figures = _figures(old, fleet, options, scenarios)
        before = {(figure.scenario, figure.what): figure.value for figure in figures}
    return [
        Row(fleet, each.scenario, each.what, before.get((each.scenario, each.what)), each.value, each.digits)
        for each in _figures(_HERE, fleet, options, scenarios)
    ]


def measure(options: Options) -> list[Row]:
    """All rows: with the defaults some 2 minutes a version. Needs no Go."""
    if options.against:
        with _checked_out(options.against) as old:
            return _measured(old, options)
    return _measured(None, options)


def _measured(old: Path | None, options: Options) -> list[Row]:
    rows = _rows(old, options.fleet, options, options.scenarios)
    return [*rows, *_rows(old, options.big_fleet, options, ["big"])] if options.big_fleet else rows


def table(rows: Sequence[Row]) -> str:
    """A Markdown table. The ratios count: the figures themselves depend on the machine."""
    compared = any(row.old is not None for row in rows)
    head = "| fleet | scenario | what | before | now | ratio |" if compared else "| fleet | scenario | what | now |"
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for row in rows:
        cells = [row.fleet, row.scenario, row.what]
        if compared:
            cells.append("" if row.old is None else f"{row.old:.{row.digits}f}")
        cells.append(f"{row.new:.{row.digits}f}")
        cells += [row.ratio] if compared else []
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
