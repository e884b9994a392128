"""Our agents by their number, and torchrun's c10d with 128 of them, in one run."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.child import ChildError
from tests.bench.rendezvous import c10d, ours

SIZES = (128, 1250, 2500, 5000, 10_000)
_LINEAR_FROM = 1250
"""Below it, the constant part of a rendezvous is most of it."""


@dataclass(frozen=True)
class Row:
    """Of one number of agents of one kind. Seconds and megabytes depend on the machine. None: not measured."""

    kind: str
    agents: int
    load: float
    """The load average of the last minute, when it ended."""
    form_seconds: float
    reform_seconds: float | None
    reconnect_seconds: float | None = None
    reform_cpu_seconds: float | None = None
    """Of the barrier's process; of all agents of c10d."""
    rest_mb: float | None = None
    peak_mb: float | None = None


async def measure(sizes: Sequence[int] = SIZES) -> list[Row]:
    """Some three minutes."""
    rows = []
    for size in dict.fromkeys(map(ours.agents_possible, sizes)):
        if size not in sizes:
            _tell(f"no more than {size} links: the hard limit of open files is too low for {max(sizes)}")
        figures = await ours.measure(size)
        rows.append(
            Row(
                kind="ours",
                agents=size,
                load=os.getloadavg()[0],
                form_seconds=figures.form_seconds,
                reform_seconds=figures.reform_seconds,
                reconnect_seconds=figures.reconnect_seconds,
                reform_cpu_seconds=figures.reform_barrier_cpu_seconds,
                rest_mb=figures.rest_mb,
                peak_mb=figures.peak_mb,
            )
        )
        _tell(table(rows).splitlines()[-1])
    return rows + await _of_c10d()


async def _of_c10d() -> list[Row]:
    """Empty: torch is not installed, or c10d has not formed at all."""
    python = c10d.python_with_torch()
    if python is None:
        return []
    try:
        figures = await c10d.measure(python)
    except ChildError as error:
        _tell(f"c10d has not formed: {error}")
        return []
    load = os.getloadavg()[0]
    form, reform, cpu = figures.form_seconds, figures.reform_seconds, figures.reform_cpu_seconds
    return [Row("c10d", c10d.AGENTS, load, form, reform, reform_cpu_seconds=cpu)]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table. The ratios count: seconds and megabytes depend on the machine."""
    stock = next((row for row in rows if row.kind == "c10d"), None)
    base = next((row for row in rows if row.kind == "ours" and row.agents >= _LINEAR_FROM), None)
    head = (
        "| agents | form s | re-form s | all reconnect s | CPU s of a re-form | MB at rest | MB at most "
        "| CPU per agent, of 1,250's | re-form, of c10d's | load |"
    )
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for row in rows:
        cells = [
            f"{row.agents:,}" + ("" if row.kind == "ours" else f", {row.kind}"),
            _figure(row.form_seconds),
            _figure(row.reform_seconds),
            _figure(row.reconnect_seconds),
            _figure(row.reform_cpu_seconds, 3),
            _figure(row.rest_mb, 1),
            _figure(row.peak_mb, 1),
            _figure(_per_agent(row, base)),
            _figure(_share(row, stock), 3),
            f"{row.load:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if stock is None and c10d.python_with_torch() is None:
        lines += ["", "c10d: torch is not installed; run `make examples`"]
    return "\n".join(lines)


def _per_agent(row: Row, base: Row | None) -> float | None:
    if base is None or row.kind != "ours" or row.agents < base.agents or not row.reform_cpu_seconds:
        return None
    assert base.reform_cpu_seconds, "ours always form again, and that takes a while"
    return row.reform_cpu_seconds / row.agents / (base.reform_cpu_seconds / base.agents)


def _share(row: Row, stock: Row | None) -> float | None:
    if stock is None or row.kind != "ours" or stock.reform_seconds is None or row.reform_seconds is None:
        return None
    return row.reform_seconds / stock.reform_seconds


def _figure(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
