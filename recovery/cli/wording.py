"""Times and tables as people read them."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

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


def aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table as plain lines, columns two or more spaces apart, so that awk can read it."""
    table = [tuple(header), *(tuple(cell or "-" for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str]) -> None:
    """To stdout; on a terminal, cells whose text is in `styles` are shown in that rich style."""
    lines = aligned(header, rows)
    if sys.stdout is None or not sys.stdout.isatty():
        print("\n".join(lines))
        return
    # Loaded here: what writes into a pipe does not need it.
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    # Not a rich table: that one squeezes columns into a narrow terminal until no name can be read.
    console = Console(highlight=False)
    console.print(Text(lines[0], style="bold"), soft_wrap=True)
    for line in lines[1:]:
        text = Text(line)
        for word, style in styles.items():
            text.highlight_words([f" {word} "], style)
        console.print(text, soft_wrap=True)
