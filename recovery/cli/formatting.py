"""Formats times, tables and data for people and for tools."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def age(since: datetime, now: datetime) -> str:
    """How long ago, in the unit or two that matter: 45s, 12m, 3h20m, 2d5h."""
    seconds = max(0, int((now - since).total_seconds()))
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 2 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h{seconds % _HOUR // _MINUTE}m"
    return f"{seconds // _DAY}d{seconds % _DAY // _HOUR}h"


def duration(length: timedelta) -> str:
    """A measured length: 0.25s, 42.1s, 3m05s, 1h02m."""
    seconds = length.total_seconds()
    if seconds < 10:
        return f"{seconds:.2f}s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 2 * _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}s"
    return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"


def moment(at: datetime) -> str:
    """A point in time, to the tenth of a second if it is not a whole second."""
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{at.microsecond // 100000}Z" if at.microsecond else f"{text}Z"


def time_of_day(at: datetime, now: datetime) -> str:
    """A moment close to `now`: the time alone on the same day, else with the date."""
    return at.strftime("%H:%M:%SZ") if at.date() == now.date() else at.strftime("%Y-%m-%dT%H:%M:%SZ")


def printable(text: str) -> str:
    """The text without control characters: pods, policies and annotations must not move the user's cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table as plain lines, with columns at least two spaces apart, so that awk can read it."""
    table = [tuple(header), *(tuple(cell or "-" for cell in row) for row in rows)]
    widths = widths_of(table)
    return [_line(row, widths) for row in table]


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    """For each column, the length of the longest cell."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


class Cell(NamedTuple):
    """One cell of a table. `style`: as in rich. Empty: plain."""

    text: str
    style: str = ""
    short: str = ""
    """Shown on a terminal that the table does not fit. Empty: there is nothing shorter."""


class Narrowing(NamedTuple):
    """How a column becomes narrower if the table does not fit the terminal. Its cells then take several lines."""

    share: int
    """The columns are narrowed towards widths in proportion to their shares."""
    least: int
    """The least width."""


_GAP = "  "
_ELLIPSIS = "..."
_COLUMNS_MIN = 80
"""The width of a table on any narrower terminal, where its columns would be unreadable."""
_WITHIN_A_WORD = re.compile(r"(?<=[/.-])(?=.)|(?<=[a-z])(?=[A-Z][a-z])")
"""Where a word that is longer than a line may break: in names of objects, and in codes."""


class TerminalTable:
    """A table on stdout that can grow: later rows keep the columns of earlier ones, as far as they fit.

    `narrowings`: one for each column, so that the table fits the terminal. None in place of one: that column stays as
    wide as its longest cell. None in place of all: the table is not narrowed. A pipe always gets whole lines.
    """

    def __init__(self, header: Sequence[str], narrowings: Sequence[Narrowing | None] | None = None) -> None:
        self._header = [Cell(title, "bold") for title in header]
        self._widths: list[int] = []
        self._narrowings = narrowings if sys.stdout is not None and sys.stdout.isatty() else None
        self._coloured = is_coloured()

    def print(self, rows: Iterable[Sequence[Cell]]) -> None:
        """Print the rows. The first call also prints the header."""
        found = [[Cell(printable(cell.text) or "-", cell.style, printable(cell.short)) for cell in row] for row in rows]
        widths = self._grown(found)
        if self._narrowings is not None:
            columns = max(_COLUMNS_MIN, shutil.get_terminal_size().columns)
            if _total(widths) > columns:
                found = [[Cell(cell.short or cell.text, cell.style) for cell in row] for row in found]
                widths = fitted(self._grown(found), self._narrowings, columns)
        shown = found if self._widths else [self._header, *found]
        self._widths = widths
        for row in shown:
            self._print_row(row)

    def _grown(self, rows: Sequence[Sequence[Cell]]) -> list[int]:
        """For each column, the length of the longest cell in these and all earlier rows."""
        widths = widths_of([[cell.text for cell in row] for row in (self._header, *rows)])
        return [max(pair) for pair in zip(widths, self._widths or widths, strict=True)]

    def _print_row(self, row: Sequence[Cell]) -> None:
        columns = [wrapped(cell.text, width) for cell, width in zip(row, self._widths, strict=True)]
        for texts in zip_longest(*columns, fillvalue=""):
            self._print_line([Cell(text, cell.style) for text, cell in zip(texts, row, strict=True)])

    def _print_line(self, cells: Sequence[Cell]) -> None:
        line = _line([cell.text for cell in cells], self._widths)
        if not self._coloured:
            print(line, flush=True)
            return
        # Loaded here, because output into a pipe does not need it.
        from rich.console import Console  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        # Not a rich table, because that narrows columns until no name can be read.
        text = Text(line)
        begin = 0
        for cell, width in zip(cells, self._widths, strict=True):
            text.stylize(cell.style, begin, begin + len(cell.text))
            begin += width + len(_GAP)
        Console(highlight=False).print(text, soft_wrap=True)


def fitted(widths: Sequence[int], narrowings: Sequence[Narrowing | None], columns: int) -> list[int]:
    """The widths for a terminal of that many columns. The column that is widest for its share is narrowed first.

    A table that does not fit even at the least widths stays wider.
    """
    found = list(widths)
    while _total(found) > columns:
        ratios = {
            index: found[index] / each.share
            for index, each in enumerate(narrowings)
            if each is not None and found[index] > each.least
        }
        if not ratios:
            break
        found[max(ratios, key=lambda index: ratios[index])] -= 1
    return found


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a cell. Words stay whole if they fit. A part that cannot break is cut in the middle."""
    if len(text) <= width:
        return [text]
    lines: list[str] = []
    for word in text.split():
        parts = [word] if len(word) <= width else _WITHIN_A_WORD.split(word)
        for index, part in enumerate(parts):
            gap = " " if index == 0 else ""
            if lines and len(lines[-1]) + len(gap) + len(part) <= width:
                lines[-1] += gap + part
            else:
                lines.append(part if len(part) <= width else shortened(part, width))
    return lines


def shortened(text: str, width: int) -> str:
    """The text, cut in the middle, because names differ at both ends."""
    kept = width - len(_ELLIPSIS)
    return text[: kept // 2] + _ELLIPSIS + text[len(text) - (kept - kept // 2) :]


def is_coloured() -> bool:
    """Whether output is coloured: on a terminal only, and not if NO_COLOR (no-color.org) or TERM=dumb forbids it."""
    return _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_columns() -> int | None:
    """The width of the terminal. None: stdout is no terminal, or its width is not known."""
    return shutil.get_terminal_size((0, 0)).columns or None if _is_terminal() else None


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


class Output(StrEnum):
    """How a listing is printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class LintFormat(StrEnum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    GITLAB = "gitlab"
    SARIF = "sarif"


class LaunchFormat(StrEnum):
    """How the settings of a launch are printed."""

    TEXT = "text"
    JSON = "json"


class AccountOutput(StrEnum):
    """How an account of one job is printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class ChaosOutput(StrEnum):
    """How the result of a chaos experiment is printed."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    YAML = "yaml"


class DrillsOutput(StrEnum):
    """How drills are listed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def print_data(found: object, *, as_yaml: bool) -> None:
    """Print the data as YAML, else as JSON."""
    if as_yaml:
        import yaml  # noqa: PLC0415 - only where it is asked for

        print(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), end="", flush=True)
    else:
        print(json.dumps(found, indent=2), flush=True)
