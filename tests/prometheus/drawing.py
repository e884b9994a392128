"""Draws a dashboard from the answers to its own queries, in Grafana's grid, as one SVG to look at.

It does not imitate Grafana: it shows positions, titles, units, colours and data, so that a person sees what the
dashboard says.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Any

from recovery.dashboards.rules import INTERVAL_SECONDS
from tests.prometheus.board_queries import Panel, Target, Viewed, body_of
from tests.prometheus.laid import Queries, Series

CELL_WIDTH, CELL_HEIGHT, GAP = 60, 34, 6
_BACKGROUND, _PANEL, _EDGE, _TEXT, _FAINT = "#F4F5F5", "#FFFFFF", "#D8D9DA", "#24292E", "#6E7680"
_OTHERS = ("#0072B2", "#EE9900", "#BB0077", "#7777DD", "#56B4E9", "#995500", "#999999", "#99BB33")
Answer = Sequence[tuple[Target, Sequence[Series]]]


def draw(board: str, server: Queries, view: Viewed) -> str:
    """The dashboard as SVG."""
    bodies = body_of(board)["panels"]
    bottom = max(body["gridPos"]["y"] + body["gridPos"]["h"] for body in bodies)
    width, height = 24 * CELL_WIDTH + GAP, bottom * CELL_HEIGHT + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="Inter, DejaVu Sans, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="{_BACKGROUND}"/>',
    ]
    for body in bodies:
        at = body["gridPos"]
        x, y = at["x"] * CELL_WIDTH + GAP, at["y"] * CELL_HEIGHT + GAP
        wide, high = at["w"] * CELL_WIDTH - GAP, at["h"] * CELL_HEIGHT - GAP
        if body["type"] == "row":
            parts.append(_label(x, y + 20, body["title"], size=15, bold=True))
            continue
        panel = Panel(board, body["title"], body)
        answer = [(target, target.answered(server, view)) for target in panel.targets]
        parts.append(f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="3" fill="{_PANEL}" stroke="{_EDGE}"/>')
        parts.append(_label(x + 8, y + 17, _cut(body["title"], wide - 16, 12), bold=True))
        parts += _KINDS[body["type"]](panel, answer, (x + 8, y + 26, wide - 16, high - 34), view)
    return "\n".join([*parts, "</svg>\n"])


Box = tuple[float, float, float, float]


def _stat(panel: Panel, answer: Answer, box: Box, _view: Viewed) -> Iterable[str]:
    x, y, wide, high = box
    found = [series.last for _, all_series in answer for series in all_series]
    text = _shown(panel.body, found[0]) if found else panel.body["fieldConfig"]["defaults"].get("noValue", "No data")
    color = _threshold(panel.body, found[0]) if found else "#999999"
    yield f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="3" fill="{color}"/>'
    size = min(34, high * 0.5, wide / max(1, len(text)) * 1.5)
    dark = color in ("#EE9900", "#999999", "#EEDD00", "#99EEDD", "transparent")
    yield _label(x + wide / 2, y + high / 2 + size / 3, text, size=size, anchor="middle", bold=True,
                 color=_TEXT if dark else "#FFFFFF")  # fmt: skip


def _bars(panel: Panel, answer: Answer, box: Box, _view: Viewed) -> Iterable[str]:
    x, y, wide, high = box
    found = [(target.name(series), series.last) for target, all_series in answer for series in all_series]
    if not found:
        yield _nothing(panel, box)
        return
    row = min(26.0, high / len(found))
    left = min(wide * 0.6, 12 + 7 * max(len(name) for name, _ in found))
    top = max(value for _, value in found) or 1.0
    for index, (name, value) in enumerate(found):
        middle = y + index * row + row / 2
        length = max(0.0, value / top) * (wide - left - 80)
        yield _label(x + left - 6, middle + 4, _cut(name, left - 8, 11), size=11, anchor="end")
        yield (
            f'<rect x="{x + left}" y="{middle - row * 0.36}" width="{length:.1f}" height="{row * 0.72:.1f}"'
            f' fill="{_color(panel.body, name, None)}"/>'
        )
        yield _label(x + left + length + 6, middle + 4, _shown(panel.body, value), size=11)


def _lines(panel: Panel, answer: Answer, box: Box, view: Viewed) -> Iterable[str]:
    x, y, wide, high = box
    found = [(target.name(series), series) for target, all_series in answer for series in all_series]
    found = [(name, series) for name, series in found if any(value == value for _, value in series.points)]  # noqa: PLR0124 - not NaN
    if not found:
        yield _nothing(panel, box)
        return
    defaults = panel.body["fieldConfig"]["defaults"]
    stacked = defaults["custom"].get("stacking", {}).get("mode") == "normal"
    stepped = defaults["custom"].get("lineInterpolation") == "stepAfter"
    times = sorted({at for _, series in found for at, _ in series.points})
    values = {name: dict(series.points) for name, series in found}
    totals = [sum(each.get(at, 0.0) for each in values.values()) for at in times]
    highest = max(totals) if stacked else max(v for each in values.values() for v in each.values() if v == v)  # noqa: PLR0124
    top = defaults.get("max") or highest * 1.1 or 1.0
    left, bottom = 62.0, 40.0
    plot_wide, plot_high = wide - left, high - bottom

    def place(at: float, value: float) -> tuple[float, float]:
        share = (at - view.begin.timestamp()) / (view.end - view.begin).total_seconds()
        return x + left + share * plot_wide, y + plot_high * (1 - min(value / top, 1.0))

    for value in _ticks(top, whole=defaults.get("decimals") == 0):
        _, ty = place(times[0], value)
        yield f'<line x1="{x + left}" x2="{x + wide}" y1="{ty:.1f}" y2="{ty:.1f}" stroke="{_EDGE}"/>'
        yield _label(x + left - 6, ty + 4, _shown(panel.body, value), size=10, anchor="end", color=_FAINT)
    yield from _time_axis(x + left, y + plot_high + 14, plot_wide, view)
    base = dict.fromkeys(times, 0.0)
    shown = []
    for number, (name, each) in enumerate(values.items()):
        color = _color(panel.body, name, _OTHERS[number % len(_OTHERS)])
        if stacked:
            if not any(each.values()):
                continue
            upper = {at: base[at] + each.get(at, 0.0) for at in times}
            path = [place(at, upper[at]) for at in times] + [place(at, base[at]) for at in reversed(times)]
            yield f'<polygon points="{_points(path)}" fill="{color}" fill-opacity="0.8"/>'
            base = upper
        else:
            for run in _runs(each, times):
                path = [place(*point) for point in (_steps(run) if stepped else run)]
                yield f'<polyline points="{_points(path)}" fill="none" stroke="{color}" stroke-width="2"/>'
        shown.append((name, color))
    yield from _legend(shown, x + left, y + high - 4, plot_wide)


def _ticks(top: float, *, whole: bool) -> list[float]:
    """At most six round values from 0 to the top. `whole`: only integers."""
    power = 10.0 ** math.floor(math.log10(top / 5))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if top / (power * each) <= 5)
    if whole:
        step = max(1.0, math.ceil(step))
    return [number * step for number in range(int(top / step + 1e-9) + 1)]


def _states(panel: Panel, answer: Answer, box: Box, view: Viewed) -> Iterable[str]:
    x, y, wide, high = box
    found = [(target.name(series), series) for target, all_series in answer for series in all_series]
    if not found:
        yield _nothing(panel, box)
        return
    words: Mapping[str, Any] = panel.body["fieldConfig"]["defaults"]["mappings"][0]["options"]
    left, bottom = 130.0, 40.0
    row = min(40.0, (high - bottom) / len(found))
    range_seconds = (view.end - view.begin).total_seconds()
    seen: dict[str, str] = {}
    for index, (name, series) in enumerate(sorted(found, key=lambda each: each[0])):
        yield _label(x + left - 8, y + index * row + row / 2 + 4, _cut(name, left - 10, 11), size=11, anchor="end")
        for (at, value), (until, _) in zip(
            series.points, [*series.points[1:], (series.points[-1][0] + 30, 0)], strict=True
        ):
            word = words[f"{value:g}"]
            if word["color"] == "transparent":
                continue
            seen[word["text"]] = word["color"]
            begin = (at - view.begin.timestamp()) / range_seconds * (wide - left)
            length = min(until - at, 30.0) / range_seconds * (wide - left)
            yield (
                f'<rect x="{x + left + begin:.1f}" y="{y + index * row + row * 0.1:.1f}" width="{length + 0.5:.1f}"'
                f' height="{row * 0.8:.1f}" fill="{word["color"]}"/>'
            )
    yield from _time_axis(x + left, y + high - 24, wide - left, view)
    yield from _legend(list(seen.items()), x + left, y + high - 4, wide - left)


def _table(panel: Panel, answer: Answer, box: Box, _view: Viewed) -> Iterable[str]:
    x, y, wide, _high = box
    columns = [
        (each["matcher"]["options"], {value["id"]: value["value"] for value in each["properties"]})
        for each in panel.body["fieldConfig"]["overrides"]
    ]
    merged: list[dict[str, Any]] = []
    for target, all_series in answer:
        value_field = f"Value #{target.ref}" if len(answer) > 1 else "Value"
        for series in all_series:
            labels = {name: text for name, text in series.labels.items() if name != "__name__"}
            same = [each for each in merged if all(each.get(name) == text for name, text in labels.items())]
            rows = same or [dict(labels)]
            if not same:
                merged += rows
            for each in rows:
                each[value_field] = series.last
    if not merged:
        yield _nothing(panel, box)
        return
    fixed = [properties.get("custom.width", 0) for _, properties in columns]
    rest = (wide - sum(fixed)) / max(1, fixed.count(0))
    left = x
    for (field, properties), width in zip(columns, fixed, strict=True):
        step, at = width or rest, left
        left += step
        yield _label(at, y + 14, properties["displayName"], size=11, color=_FAINT, bold=True)
        for index, each in enumerate(merged):
            value = each.get(field, "")
            color = _TEXT if not properties.get("links") else "#0072B2"
            text = (
                value
                if isinstance(value, str)
                else _of(value, properties.get("unit", "none"), None, properties.get("mappings", []))
            )
            yield _label(at, y + 36 + 22 * index, _cut(text, step - 4, 12), color=color)


_KINDS: Mapping[str, Callable[[Panel, Answer, Box, Viewed], Iterable[str]]] = {
    "stat": _stat,
    "bargauge": _bars,
    "timeseries": _lines,
    "state-timeline": _states,
    "table": _table,
}


# Parts of panels.


def _label(
    x: float, y: float, text: str, *, size: float = 12, anchor: str = "start", bold: bool = False, color: str = _TEXT
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:.0f}" text-anchor="{anchor}"{weight} fill="{color}">'
        f"{escape(text)}</text>"
    )


def _nothing(panel: Panel, box: Box) -> str:
    x, y, wide, high = box
    text = panel.body["fieldConfig"]["defaults"].get("noValue", "No data")
    return _label(x + wide / 2, y + high / 2, text, anchor="middle", color=_FAINT)


def _time_axis(x: float, y: float, wide: float, view: Viewed) -> Iterable[str]:
    for tick in range(5):
        at = view.begin + (view.end - view.begin) * tick / 4
        anchor = ("start", "middle", "middle", "middle", "end")[tick]
        yield _label(x + wide * tick / 4, y, f"{_utc(at):%H:%M}", size=10, anchor=anchor, color=_FAINT)


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)


def _legend(entries: Sequence[tuple[str, str]], x: float, y: float, wide: float) -> Iterable[str]:
    at = x
    for name, color in entries:
        length = 24 + 6.6 * len(name)
        if at + length > x + wide + 40:
            break
        yield f'<rect x="{at:.1f}" y="{y - 9:.1f}" width="12" height="10" fill="{color}"/>'
        yield _label(at + 16, y, name, size=10)
        at += length


def _runs(values: Mapping[float, float], times: Sequence[float]) -> Iterable[list[tuple[float, float]]]:
    """The parts of a line between gaps."""
    run: list[tuple[float, float]] = []
    for at in times:
        value = values.get(at)
        if run and at - run[-1][0] > 2 * INTERVAL_SECONDS:  # no series has a value in between
            yield run
            run = []
        if value is not None and value == value:  # noqa: PLR0124 - not NaN
            run.append((at, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _steps(run: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Each value holds until the next one."""
    held = [(after, value) for (_, value), (after, _) in pairwise(run)]
    return [run[0], *(point for pair in zip(held, run[1:], strict=True) for point in pair)]


def _points(path: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in path)


def _cut(text: str, wide: float, size: float) -> str:
    most = max(4, int(wide / (size * 0.58)))
    return text if len(text) <= most else text[: most - 1] + "…"


# How Grafana formats values.


def _color(body: Mapping[str, Any], name: str, otherwise: str | None) -> str:
    for each in body["fieldConfig"]["overrides"]:
        if each["matcher"]["options"] == name:
            for value in each["properties"]:
                if value["id"] == "color":
                    return str(value["value"]["fixedColor"])
    return otherwise or str(body["fieldConfig"]["defaults"].get("color", {}).get("fixedColor", "#999999"))


def _threshold(body: Mapping[str, Any], value: float) -> str:
    defaults = body["fieldConfig"]["defaults"]
    for mapping in defaults.get("mappings", []):
        if f"{value:g}" in mapping["options"] and mapping["options"][f"{value:g}"]["color"] != "transparent":
            return str(mapping["options"][f"{value:g}"]["color"])
    steps = [step for step in defaults["thresholds"]["steps"] if step["value"] is None or value >= step["value"]]
    return str(steps[-1]["color"])


def _shown(body: Mapping[str, Any], value: float) -> str:
    defaults = body["fieldConfig"]["defaults"]
    return _of(value, defaults.get("unit", "none"), defaults.get("decimals"), defaults.get("mappings", []))


def _of(value: float, unit: str, decimals: int | None, mappings: Sequence[Mapping[str, Any]]) -> str:
    for mapping in mappings:
        if f"{value:g}" in mapping["options"]:
            return str(mapping["options"][f"{value:g}"]["text"])
    if unit.startswith("suffix:"):
        return f"{_number(value, decimals)}{unit.removeprefix('suffix:')}"
    match unit:
        case "percentunit":
            return f"{_number(value * 100, decimals)}%"
        case "s":
            return _duration(value, decimals)
        case "bytes":
            return f"{value / 2**20:.0f} MiB"
        case "reqps" | "cps":
            return f"{value:.3g}/s"
        case _:
            return _number(value, decimals)


def _number(value: float, decimals: int | None) -> str:
    return f"{value:,.{decimals}f}" if decimals is not None else f"{value:,.3g}"


def _duration(seconds: float, decimals: int | None) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    for size, name in ((86400, "days"), (3600, "hours"), (60, "mins")):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.{decimals if decimals is not None else 1}f} s"
