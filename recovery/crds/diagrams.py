"""Diagrams of the state machine in docs/images, drawn from the tables that drive it.

A chart has a column for each phase and a row for each line of a table. A row has its text, and below it a lane with a
dot in each column that the line names. Every coordinate follows from the column and the row, so nothing can overlap.
"""

from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from html import escape
from itertools import groupby, pairwise

import msgspec

from recovery.core.decision.guards import ASKED, GUARDS, Guard, Move
from recovery.core.decision.situation import Asked
from recovery.core.decision.table import AFTER, BEFORE
from recovery.core.incident.transitions import (
    ALLOWED_NEXT,
    ATTEMPTS,
    ENDINGS,
    TRANSITIONS,
    UNDER_WAY,
    Transition,
)
from recovery.core.model.ledger import Phase
from recovery.core.policy.spec import Mode
from recovery.crds.docstrings import of_fields

PITCH, MARGIN, GAP = 94, 20, 26
"""Pixels: from column to column, around the chart, and between groups of columns."""
HEAD_TOP, HEAD_HEIGHT = 94, 28
WORDS_HEIGHT, LANE_HEIGHT = 22, 24
BOX_WIDTH = 84

_STYLE = """\
    text { font: 12px "Helvetica Neue", Arial, sans-serif; fill: #1f2328 }
    .title { font-size: 17px; font-weight: bold }
    .group { fill: #59636e }
    .name { font-size: 11px; text-anchor: middle }
    .bold { font-weight: bold }
    .paper { fill: #ffffff; stroke: #d1d9e0 }
    .box { fill: #eef3f8; stroke: #59636e }
    .rule { stroke: #d1d9e0 }
    .way { stroke: #0969da; fill: none; stroke-width: 2 }
    .dot, .tip { fill: #0969da }
    .by-restart { stroke: #bc4c00; stroke-dasharray: 6 3 }
    .by-restart-mark { fill: #bc4c00 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .group { fill: #9198a1 }
      .paper { fill: #0d1117; stroke: #3d444d }
      .box { fill: #212830; stroke: #9198a1 }
      .rule { stroke: #3d444d }
      .way { stroke: #4493f8 }
      .dot, .tip { fill: #4493f8 }
      .by-restart { stroke: #f0883e }
      .by-restart-mark { fill: #f0883e }
    }
"""


class NodeGroup(msgspec.Struct, frozen=True):
    """Adjacent columns under one heading."""

    heading: str
    columns: tuple[str, ...]


class Row(msgspec.Struct, frozen=True):
    """One line of a table."""

    name: str
    words: str
    dots: frozenset[str]
    """Columns, as `heading/column`."""
    target: str = ""
    """The column to which arrows lead from the dots. Empty: the row has no arrows."""
    by_restart: bool = False


class Chart(msgspec.Struct, frozen=True):
    source: str
    """Path of the module with the table."""
    title: str
    description: str
    lines: tuple[str, ...]
    """Lines of text below the title."""
    groups: tuple[NodeGroup, ...]
    rows: tuple[Row, ...]
    usual: tuple[tuple[str, str], ...] = ()
    """Pairs of adjacent columns with an arrow between them in the header."""


def diagrams() -> dict[str, str]:
    """The diagrams by their paths in the repository."""
    return {
        "docs/images/phases.svg": _svg(_phases()),
        "docs/images/attempts.svg": _svg(_attempts()),
        "docs/images/outcomes.svg": _svg(_outcomes()),
        "docs/images/steps.svg": _svg(_steps()),
        "docs/images/guards.svg": _svg(_guards()),
    }


# --- the tables as charts --------------------------------------------------------------------------------------------

_TRANSITIONS = "recovery/core/incident/transitions.py"
_PHASES = "phase"
_ORDER = (Phase.HEALTHY, Phase.DETECTED, Phase.DECIDED, Phase.STOPPING, *UNDER_WAY[1:], Phase.HELD)


def _in(heading: str, names: Iterable[str]) -> frozenset[str]:
    return frozenset(f"{heading}/{name}" for name in names)


def _phases() -> Chart:
    rows = [
        _transitions_row(list(same))
        for _, same in groupby(TRANSITIONS, key=lambda each: (each.target, each.when, each.by_restart))
    ]
    follows = "; ".join(
        f"{phase} is followed by {', '.join(each for each in _ORDER if each in ALLOWED_NEXT[phase])}"
        for phase in _ORDER
    )
    return Chart(
        source=_TRANSITIONS,
        title="Phases of an incident",
        description=f"Healthy means that no incident is open. {follows}.",
        lines=(
            "The boxes are in the usual order. Below, the phase at each dot may give way to the phase at the tip.",
            "Dashed: only together with another restart attempt, of the controller or of the platform.",
        ),
        groups=(NodeGroup(_PHASES, _ORDER),),
        rows=tuple(rows),
        usual=tuple(
            (f"{_PHASES}/{one}", f"{_PHASES}/{other}")
            for one, other in pairwise(_ORDER)
            if other in ALLOWED_NEXT[one] and other is not Phase.HELD
        ),
    )


def _transitions_row(same: list[Transition]) -> Row:
    first = same[0]
    return Row(
        name=f"to {first.target}",
        words=first.when,
        dots=_in(_PHASES, (each.source for each in same)),
        target=f"{_PHASES}/{first.target}",
        by_restart=first.by_restart,
    )


def _attempts() -> Chart:
    modes, begins, becomes = "mode of the incident", "phase when the attempt is added", "becomes"
    lives = tuple(ATTEMPTS.values())
    later = tuple(sorted(frozenset[str]().union(*(life.becomes for life in lives))))
    rows = tuple(
        Row(
            name=life.action,
            words=life.when,
            dots=_in(modes, life.modes) | _in(begins, life.begins_in) | _in(becomes, life.becomes),
        )
        for life in lives
    )
    listed = "; ".join(
        f"{life.action} in mode {' or '.join(mode for mode in Mode if mode in life.modes)}, phase "
        f"{', '.join(phase for phase in _ORDER if phase in life.begins_in)}"
        + (f", may become {', '.join(sorted(life.becomes))}" if life.becomes else "")
        for life in lives
    )
    return Chart(
        source=_TRANSITIONS,
        title="Attempts of an incident",
        description=f"Attempts begin so: {listed}. Any attempt may follow any other.",
        lines=(
            "Any attempt may follow any other, but None follows None only once the group was restarted.",
            "Healthy: the write that adds the attempt ends the incident too.",
        ),
        groups=(
            NodeGroup(modes, tuple(Mode)),
            NodeGroup(begins, tuple(phase for phase in _ORDER if any(phase in life.begins_in for life in lives))),
            NodeGroup(becomes, later),
        ),
        rows=rows,
    )


def _outcomes() -> Chart:
    modes, last = "mode of the incident", "last phase of the incident"
    rows = tuple(
        Row(name=str(each), words=each.when, dots=_in(modes, each.modes) | _in(last, each.phases)) for each in ENDINGS
    )
    listed = "; ".join(
        f"{each} in mode {' or '.join(mode for mode in Mode if mode in each.modes)}, from "
        f"{', '.join(phase for phase in _ORDER if phase in each.phases)}"
        for each in ENDINGS
    )
    return Chart(
        source=_TRANSITIONS,
        title="Outcomes of an incident",
        description=f"Incidents end so: {listed}.",
        lines=("Each row is an outcome with its reason, as status.incident.closing has them.",),
        groups=(
            NodeGroup(modes, tuple(Mode)),
            NodeGroup(last, tuple(p for p in _ORDER if any(p in e.phases for e in ENDINGS))),
        ),
        rows=rows,
    )


def _steps() -> Chart:
    before, after = "step, before any restart", "step, after a restart"
    tables = ((before, BEFORE), (after, AFTER))
    asked = [ask for _, table in tables for ask in _in_order(table.values())]
    rows = tuple(
        Row(
            name=ask.__name__.replace("_", " "),
            words=_first_sentence(ask.__doc__ or ""),
            dots=frozenset(f"{heading}/{step}" for heading, table in tables for step in table if ask in table[step]),
        )
        for ask in asked
    )
    listed = "; ".join(
        f"{step} ({heading}): {', '.join(ask.__name__.replace('_', ' ') for ask in asks)}"
        for heading, table in tables
        for step, asks in table.items()
    )
    return Chart(
        source="recovery/core/decision/table.py",
        title="What a reconcile of an open incident asks, by its step",
        description=f"The questions in their order. {listed}.",
        lines=("From top to bottom. The first answer that is a Plan ends the reconcile, and the last one always is.",),
        groups=tuple(NodeGroup(heading, tuple(table)) for heading, table in tables),
        rows=rows,
    )


def _in_order(asked: Iterable[tuple[Asked, ...]]) -> Iterator[Asked]:
    """Each question once, after all that are asked before it."""
    order = TopologicalSorter[Asked]()
    for questions in asked:
        for one, other in pairwise(questions):
            order.add(other, one)
    return iter(order.static_order())


def _guards() -> Chart:
    move, words = "move that leads to a restart", of_fields(Guard)
    rows = tuple(
        Row(
            name=guard,
            words=_first_sentence(words[guard.name]),
            dots=frozenset(f"{move}/{each}" for each in Move if guard in ASKED[each]),
        )
        for guard in GUARDS
    )
    listed = "; ".join(f"{each}: {', '.join(ASKED[each])}" for each in Move)
    return Chart(
        source="recovery/core/decision/guards.py",
        title="What can stop a restart",
        description=f"The guards that each move asks, in their order. {listed}.",
        lines=("From top to bottom. The first guard that answers decides what happens instead of the restart.",),
        groups=(NodeGroup(move, tuple(Move)),),
        rows=rows,
    )


def _first_sentence(text: str) -> str:
    sentence, _, _ = " ".join(text.split()).removesuffix(".").partition(". ")
    return sentence


# --- drawing ---------------------------------------------------------------------------------------------------------


def _columns(chart: Chart) -> dict[str, float]:
    """The middle of each column."""
    middles, left = {}, float(MARGIN)
    for group in chart.groups:
        for column in group.columns:
            middles[f"{group.heading}/{column}"] = left + PITCH / 2
            left += PITCH
        left += GAP
    return middles


def _svg(chart: Chart) -> str:
    columns = _columns(chart)
    width = max(columns.values()) + PITCH / 2 + MARGIN
    top = HEAD_TOP + HEAD_HEIGHT + 12
    height = top + len(chart.rows) * (WORDS_HEIGHT + LANE_HEIGHT) + MARGIN / 2
    lines = [
        f"<!-- Generated by `make manifests` (recovery/crds) from {chart.source}. -->",
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-labelledby="title description">',
        f'  <title id="title">{escape(chart.title)}</title>',
        f'  <desc id="description">{escape(chart.description)}</desc>',
        f"  <style>\n{_STYLE}  </style>",
        f'  <rect class="paper" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>',
        f'  <text class="title" x="{MARGIN}" y="28">{escape(chart.title)}</text>',
        *(
            f'  <text x="{MARGIN}" y="{47 + 16 * number}">{escape(line)}</text>'
            for number, line in enumerate(chart.lines)
        ),
        *_head(chart, columns),
    ]
    for number, row in enumerate(chart.rows):
        lines += _row(row, columns, top + number * (WORDS_HEIGHT + LANE_HEIGHT), width)
    return "\n".join((*lines, "</svg>", ""))


def _head(chart: Chart, columns: dict[str, float]) -> Iterator[str]:
    middle = HEAD_TOP + HEAD_HEIGHT / 2
    for group in chart.groups:
        first = columns[f"{group.heading}/{group.columns[0]}"] - BOX_WIDTH / 2
        if len(chart.groups) > 1:
            yield f'  <text class="group" x="{first:g}" y="{HEAD_TOP - 8}">{escape(group.heading)}</text>'
        for column in group.columns:
            at = columns[f"{group.heading}/{column}"]
            yield (
                f'  <rect class="box" x="{at - BOX_WIDTH / 2:g}" y="{HEAD_TOP}" width="{BOX_WIDTH}" '
                f'height="{HEAD_HEIGHT}" rx="5"/>'
            )
            yield f'  <text class="name" x="{at:g}" y="{middle + 4:g}">{escape(column)}</text>'
    for one, other in chart.usual:
        begin, end = columns[one] + BOX_WIDTH / 2, columns[other] - BOX_WIDTH / 2
        yield f'  <path class="way" d="M{begin:g} {middle:g}H{end - 4:g}"/>'
        yield _tip(end, middle, from_left=True, reach=6)


def _row(row: Row, columns: dict[str, float], top: float, width: float) -> Iterator[str]:
    lane = top + WORDS_HEIGHT + LANE_HEIGHT / 2 - 2
    bottom = top + WORDS_HEIGHT + LANE_HEIGHT
    yield f'  <path class="rule" d="M{MARGIN} {top:g}H{width - MARGIN:g}"/>'
    yield (
        f'  <text x="{MARGIN}" y="{top + 16:g}"><tspan class="bold">{escape(row.name)}</tspan>'
        f"{escape(': ' + row.words)}</text>"
    )
    for middle in columns.values():
        yield f'  <path class="rule" d="M{middle:g} {top + WORDS_HEIGHT:g}V{bottom - 4:g}"/>'
    kind = " by-restart" if row.by_restart else ""
    mark = " by-restart-mark" if row.by_restart else ""
    dots = sorted(columns[dot] for dot in row.dots)
    if row.target:
        end = columns[row.target]
        for far, from_left in ((dots[0], True), (dots[-1], False)):
            if (far < end) is from_left and far != end:
                yield f'  <path class="way{kind}" d="M{far:g} {lane:g}H{end - 8 if from_left else end + 8:g}"/>'
                yield _tip(end, lane, from_left=from_left, reach=9, kind=mark)
    for middle in dots:
        yield f'  <circle class="dot{mark}" cx="{middle:g}" cy="{lane:g}" r="4.5"/>'


def _tip(x: float, y: float, *, from_left: bool, reach: float, kind: str = "") -> str:
    """The head of an arrow that ends at that point."""
    back = x - reach if from_left else x + reach
    return f'  <path class="tip{kind}" d="M{x:g} {y:g}L{back:g} {y - 5:g}V{y + 5:g}Z"/>'
