"""What one decision costs, by the number of ranks: of a group that trains, that lost a rank, and that lost all of them.

Function calls do not depend on the machine. CPU times do, so compare them within one table.
"""

import cProfile
import pstats
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from recovery.core.decision.decide import decide
from recovery.core.model.ledger import Ledger
from tests.unit.core.driver import policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

RANKS = (16, 128, 1024)
REPEATS = 5
CASES: dict[str, Callable[[World], World]] = {
    "trains": lambda world: world,
    "lost one rank": lambda world: world.pod_deleted(3, 0),
    "lost all ranks": lambda world: world.all_deleted(0),
}


@dataclass
class Row:
    """The measurements of one decision."""

    case: str
    ranks: int
    calls: int
    """Function calls, those of the interpreter's own functions included."""
    milliseconds: float
    """CPU time, the fastest of REPEATS."""
    of_first: float
    """CPU time of each rank, divided by that of the smallest group of the case."""


def measure() -> list[Row]:
    """All rows: some seconds, without Go."""
    rows: list[Row] = []
    for case, happens in CASES.items():
        first: float | None = None
        for ranks in RANKS:
            calls, milliseconds = _decision(happens(training(ranks)))
            first = first or milliseconds / ranks
            rows.append(Row(case, ranks, calls, milliseconds, milliseconds / ranks / first))
    return rows


def _decision(world: World) -> tuple[int, float]:
    snapshot, rules = world.snapshot(), policy()

    def once() -> None:
        # A snapshot keeps what was derived from it, so that each decision gets one of its own.
        decide(msgspec.structs.replace(snapshot), Ledger(), rules, at(1))

    once()
    seconds = []
    for _ in range(REPEATS):
        began_seconds = time.process_time()
        once()
        seconds.append(time.process_time() - began_seconds)
    with cProfile.Profile() as profile:
        once()
    return int(pstats.Stats(profile).total_calls), min(seconds) * 1000  # type: ignore[attr-defined]


def table(rows: list[Row]) -> str:
    """A Markdown table."""
    lines = ["| a group that | ranks | calls | ms of CPU | of each rank, ratio |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.case} | {row.ranks} | {row.calls:,} | {row.milliseconds:.1f} | {row.of_first:.2f} |" for row in rows
    ]
    return "\n".join(lines)
