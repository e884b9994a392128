"""Times, tables and data as people and their tools read them."""

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
    """A point in time, to the tenth of a second where it has one."""
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{at.microsecond // 100000}Z" if at.microsecond else f"{text}Z"


def time_of_day(at: datetime, now: datetime) -> str:
    """A moment near by: the time alone if it is of the same day, else with its date."""
    return at.strftime("%H:%M:%SZ") if at.date() == now.date() else at.strftime("%Y-%m-%dT%H:%M:%SZ")


def printable(text: str) -> str:
    """What pods, policies and annotations say about themselves must not move the cursor of the user who reads it."""
    return "".join(character if character.isprintable() else " " for character in text)


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table as plain lines, columns two or more spaces apart, so that awk can read it."""
    table = [tuple(header), *(tuple(cell or "-" for cell in row) for row in rows)]
    widths = widths_of(table)
    return [_line(row, widths) for row in table]


def widths_of(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of each column the longest cell."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


class Cell(NamedTuple):
    """One cell of a table. `style`: as rich calls it; empty: plain."""

    text: str
    style: str = ""
    short: str = ""
    """What stands in its place on a terminal that the table does not fit. Empty: there is nothing shorter."""


class Narrowing(NamedTuple):
    """How a column becomes narrower where the table does not fit the terminal. Its cells then take several lines."""

    share: int
    """The columns that may become narrower end up in proportion to these."""
    least: int
    """It becomes no narrower."""


_GAP = "  "
_ELLIPSIS = "..."
_COLUMNS_MIN = 80
"""A terminal that is narrower shows a table of this width: no column would be left to read."""
_WITHIN_A_WORD = re.compile(r"(?<=[/.-])(?=.)|(?<=[a-z])(?=[A-Z][a-z])")
"""Where a word may break that is longer than a line: in names of objects, and in codes."""


class TerminalTable:
    """A table on stdout that can grow: rows that come later keep the columns of those before, as far as they fit.

    `narrowings`: of each column, so that the table fits the terminal; None: this one stays as wide as its longest cell.
    None in place of them: the table is as wide as it is. A pipe always gets whole lines.
    """

    def __init__(self, header: Sequence[str], narrowings: Sequence[Narrowing | None] | None = None) -> None:
        self._header = [Cell(title, "bold") for title in header]
        self._widths: list[int] = []
        self._narrowings = narrowings if sys.stdout is not None and sys.stdout.isatty() else None
        self._coloured = is_coloured()

    def print(self, rows: Iterable[Sequence[Cell]]) -> None:
        """The first call prints the header as well."""
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
        """Of each column the longest cell, of the rows before as well."""
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
        # Loaded here: what writes into a pipe does not need it.
        from rich.console import Console  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        # Not a rich table: that one squeezes columns into a narrow terminal until no name can be read.
        text = Text(line)
        begin = 0
        for cell, width in zip(cells, self._widths, strict=True):
            text.stylize(cell.style, begin, begin + len(cell.text))
            begin += width + len(_GAP)
        Console(highlight=False).print(text, soft_wrap=True)


def fitted(widths: Sequence[int], narrowings: Sequence[Narrowing | None], columns: int) -> list[int]:
    """The widths for a table of that many columns: the widest for its share becomes narrower first.

    A table that does not fit with the least widths either stays wider.
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
    """The lines of a cell. Words stay whole where they fit; a part without a place to break is cut in the middle."""
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
    """Cut in the middle: names differ at both ends."""
    kept = width - len(_ELLIPSIS)
    return text[: kept // 2] + _ELLIPSIS + text[len(text) - (kept - kept // 2) :]


def is_coloured() -> bool:
    """On a terminal only, and not where NO_COLOR (no-color.org) or the terminal says that it is not wanted."""
    return _is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_columns() -> int | None:
    """How wide the terminal is. None: stdout is no terminal, or one that does not say."""
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


def print_data(found: object, *, as_yaml: bool) -> None:
    """As YAML, else as JSON."""
    if as_yaml:
        import yaml  # noqa: PLC0415 - only where it is asked for

        print(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), end="", flush=True)
    else:
        print(json.dumps(found, indent=2), flush=True)
