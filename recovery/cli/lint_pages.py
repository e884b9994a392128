"""The pages of docs/lint, for a terminal and for tools that show findings without the repository."""

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from recovery.cli.formatting import is_coloured, terminal_columns
from recovery.launch.findings import Code

_PACKAGED = "lint-pages"
"""The folder of this package in an installed wheel, which has no repository around it."""
_FOLDER = "docs/lint"
_REPOSITORY = Path(__file__).resolve().parents[2]

_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_BASE = re.compile(r"^# base: \w+\n", re.MULTILINE)
"""The manifest that completes an example, for the tests that run it."""
_EMPHASIS = re.compile(r"(?<![`*])\*{1,2}(\w[^*`]*)\*{1,2}")
_EXAMPLE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LABELS = ("Bad:", "Good:")
"""The lines above the examples."""
_COLUMNS_DEFAULT = 80
"""The width if the output is no terminal."""
_COLUMNS_MAX = 100
"""Longer lines are hard to read."""


@cache
def page(code: Code) -> str:
    """The page as Markdown. Links to other pages become names, because they lead nowhere outside the repository."""
    text = (_pages() / f"{code.name}.md").read_text(encoding="utf-8")
    return _LINK.sub(_link_as_name, _BASE.sub("", text))


def prose(code: Code) -> tuple[str, ...]:
    """The paragraphs of the page as plain text, without title, severity and examples."""
    _, _, *paragraphs = _EXAMPLE.sub("", page(code)).split("\n\n")
    texts = [_plain(each) for each in paragraphs if each.strip() and each.strip() not in _LABELS]
    return tuple(texts) or (code.title,)


def print_page(code: Code) -> int:
    """Print the page, rendered for the terminal or another reader. Returns the exit code."""
    # Loaded here, because findings are printed without it.
    from rich.console import Console  # noqa: PLC0415

    from recovery.cli.terminal_markdown import THEME, TerminalMarkdown  # noqa: PLC0415

    columns = min(terminal_columns() or _COLUMNS_DEFAULT, _COLUMNS_MAX)
    console = Console(width=columns, color_system="auto" if is_coloured() else None, theme=THEME)
    with console.capture() as captured:
        console.print(TerminalMarkdown(page(code)), crop=False)
    for line in captured.get().splitlines():
        print(line.rstrip())
    return 0


def _pages() -> Traversable:
    packaged = files("recovery.cli") / _PACKAGED
    return packaged if packaged.is_dir() else _REPOSITORY / _FOLDER


def _link_as_name(link: re.Match[str]) -> str:
    text, target = link.groups()
    if "://" in target:
        return link[0]
    path = target.partition("#")[0]
    if not path.startswith("../"):
        name = path.removesuffix(".md")
        return f"`{name}`" if text == name else f"{text} (`{name}`)"
    name = f"docs/{path.removeprefix('../')}"
    return f"`{name}`" if text == PurePosixPath(path).name else f"{text} (`{name}`)"


def _plain(paragraph: str) -> str:
    text = _EMPHASIS.sub(r"\1", _LINK.sub(r"\1 (\2)", paragraph)).replace("`", "").strip()
    lines = re.split(r"\n(?=\d+\. |- )", text)  # items of a list stay apart
    return "\n".join(" ".join(line.split()) for line in lines)
