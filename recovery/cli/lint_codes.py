"""Reads and completes codes on the command line. An unknown code is refused, with the nearest ones as suggestions.

The checks are imported only when a code is read, because they take longer to load than `--help` may take.
"""
# ruff: noqa: PLC0415

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from recovery.launch.findings import Code

_NEAR_MAX = 3
"""At most this many codes are suggested for one that does not exist."""


def parse_codes(context: typer.Context, given: list[str] | None) -> list[str]:
    """Of `--ignore`: each code once. Raises typer.BadParameter."""
    if context.resilient_parsing:  # the line is being completed
        return []
    names = [name.strip() for text in given or () for name in text.split(",")]
    return list(dict.fromkeys(_code(name).name for name in names))


def show_page(context: typer.Context, given: str | None) -> None:
    """Of `--explain`: print the page, and exit. None: it is not asked for. Raises typer.BadParameter."""
    if given is None or context.resilient_parsing:
        return
    from recovery.cli.lint_pages import print_page

    raise typer.Exit(print_page(_code(given)))


def code_names(incomplete: str) -> list[tuple[str, str]]:
    """What a shell may complete a word to, each with what it says."""
    from recovery.launch.lint import CODES

    return sorted((code.name, code.title) for code in CODES if code.name.startswith(incomplete))


def _code(name: str) -> "Code":
    from recovery.launch.lint import CODES

    known = {code.name: code for code in CODES}
    if name in known:
        return known[name]
    near = _near(name, sorted(known))
    advice = f"did you mean {' or '.join(near)}?" if near else "docs/lint/README.md lists all codes"
    raise typer.BadParameter(f"there is no code {name!r}; {advice}")


def _near(name: str, known: list[str]) -> list[str]:
    """The nearest code, else the codes that contain the name as a word."""
    from difflib import get_close_matches

    lower = name.lower()
    return get_close_matches(lower, known, n=1) or [each for each in known if lower in each.split("-")][:_NEAR_MAX]
