"""Prints findings for people to read."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recovery.cli.formatting import is_coloured, printable, terminal_columns
from recovery.cli.manifests import Located
from recovery.launch.findings import Severity

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_INDENT = " " * 4
_FIX = f"{_INDENT}fix: "
_COLUMNS_MIN = 40
"""The least width of lines. A narrower terminal wraps them itself."""
_PLACES_MAX = 4
"""This many places of a folded finding are listed after the first, or all if they are one more."""


class _Piece(NamedTuple):
    """Text in one style."""

    text: str
    style: str = ""
    """The style in rich. Empty: plain."""


def print_text(found: Sequence[Located]) -> None:
    """Print `file:line: severity: code: message`, and the fix below it. Equal findings are printed once, with their
    places. On a terminal, lines are wrapped to its width. Elsewhere they stay whole, for grep."""
    columns = terminal_columns()
    width = max(columns, _COLUMNS_MIN) if columns is not None else None
    for places in _folded(found):
        for line in _lines(places, width):
            _print(line)


def _folded(found: Sequence[Located]) -> list[list[Located]]:
    """Groups of equal findings, in the order of their first ones."""
    equal: dict[tuple[str, str, str], list[Located]] = {}
    for each in found:
        finding = each.finding
        equal.setdefault((finding.code.name, finding.message, finding.fix), []).append(each)
    return list(equal.values())


def _lines(places: Sequence[Located], width: int | None) -> Iterator[list[_Piece]]:
    """`width` None: lines are not wrapped."""
    first, *others = places
    code = first.finding.code
    head = [_Piece(f"{first.where}: "), _Piece(str(code.severity), _STYLES[code.severity])]
    yield from _wrapped([*head, _Piece(f": {code.name}: {first.finding.message}")], _INDENT, width)
    if first.finding.fix:
        yield from _wrapped([_Piece(f"{_FIX}{first.finding.fix}")], " " * len(_FIX), width)
    if others:
        yield from _wrapped([_Piece(f"{_INDENT}{_elsewhere(others)}")], _INDENT, width)


def _elsewhere(others: Sequence[Located]) -> str:
    """`and in 2 more places: b.yaml:7, c.yaml:7`."""
    shown = others if len(others) <= _PLACES_MAX + 1 else others[:_PLACES_MAX]
    listed = ", ".join(each.where for each in shown)
    if len(shown) < len(others):
        listed += f" and {len(others) - len(shown):,} others"
    return f"and in {len(others):,} more place{'s' if len(others) > 1 else ''}: {listed}"


def _wrapped(pieces: Sequence[_Piece], indent: str, width: int | None) -> Iterator[list[_Piece]]:
    """Lines of at most that width, unless a word is longer. All lines but the first get the indentation."""
    line: list[_Piece] = []
    used = 0
    for piece in pieces:
        for word in re.findall(r"\s*\S+|\s+$", printable(piece.text)):
            if width is not None and used and used + len(word) > width and word[0] == " ":
                yield line
                line, used = [_Piece(indent)], len(indent)
                word = word.lstrip()  # noqa: PLW2901 - the space became the line break
            line.append(_Piece(word, piece.style))
            used += len(word)
    yield line


def _print(line: Sequence[_Piece]) -> None:
    if not is_coloured():
        print("".join(piece.text for piece in line).rstrip())
        return
    # Loaded here, because output into a pipe does not need it.
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    text = Text.assemble(*((piece.text, piece.style) for piece in line))
    text.rstrip()
    Console(highlight=False).print(text, soft_wrap=True)
