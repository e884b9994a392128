"""What people read has no words that CONTRIBUTING.md lists under "Words", and its lines fit.

What people read: the documentation, all strings of the program but docstrings, the help of its commands, and the
comments of manifests, policies and examples. Names in backticks or in code blocks are not prose.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
MODULES = sorted((ROOT / "recovery").rglob("*.py"))
OTHERS = sorted(
    path
    for folder in ("manifests", "policies", "examples", "dashboards")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".yaml", ".json"}
)
WIDTH_MAX = 120

_FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``[^`]+``|`[^`\n]*`")
_LIST = re.compile(r"^### Words\n.*?^(?=## )", re.MULTILINE | re.DOTALL)


@cache
def listed() -> re.Pattern[str]:
    """The words of the first table under "Words"."""
    section = _LIST.search((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert section is not None
    first_table = section.group().split("\n\n")[2]
    words = [word for row in first_table.splitlines()[2:] for word in re.findall(r"`([^`]+)`", row.split("|")[1])]
    return re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)


def prose(page: Path) -> str:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return _CODE.sub("", _LIST.sub("", text))


def strings(module: Path) -> Iterator[str]:
    """All strings that are not docstrings, and the docstrings that typer shows as help."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    docstrings = set()
    for node in ast.walk(tree):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                docstrings.add(id(statement.value))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_command(node):
            yield ast.get_docstring(node) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield _CODE.sub("", node.value)


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(re.search(r"\.(command|callback)\(", ast.unparse(each)) for each in function.decorator_list)


def test_the_list_is_read() -> None:
    found = listed().findall("Nobody told us that a tale told anew mends a deed; tellers befriend bodies.")
    assert found == ["Nobody", "told", "told", "anew", "mends", "deed"]
    assert len(PAGES) > 100
    assert len(MODULES) > 300
    assert len(OTHERS) > 80


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_none_of_the_words(page: Path) -> None:
    assert [line for line in prose(page).splitlines() if listed().search(line)] == []


def test_no_text_of_the_program_has_any_of_the_words() -> None:
    found = {
        str(module.relative_to(ROOT)): texts
        for module in MODULES
        if (texts := [text for text in strings(module) if listed().search(text)])
    }
    assert found == {}


def test_no_manifest_and_no_example_has_any_of_the_words() -> None:
    found = {}
    for path in OTHERS:
        name = str(path.relative_to(ROOT))
        text = _CODE.sub("", path.read_text(encoding="utf-8"))
        if lines := [line.strip() for line in text.splitlines() if listed().search(line)]:
            found[name] = lines
    assert found == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_lines_of_a_page_fit(page: Path) -> None:
    """Rows of tables, code, and lines that are one link cannot be wrapped."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    long = [line for line in text.splitlines() if len(line) > WIDTH_MAX and not line.lstrip().startswith("|")]
    assert [line for line in long if " " in line.strip()] == []
