"""The commands that the documentation shows, with what says how each block of them is tested.

A comment stands in the line before a block of commands:

- `<!-- run: local -->`: it needs nothing but this repository and its virtual environment. `make docs` runs it.
- `<!-- run: cluster -->`: it needs a cluster with the CRDs, the controller and a job. `make test-cluster` runs it.
- `<!-- not run: WHY -->`: no test of these two runs it; WHY may name the test that does.

`<!-- output -->` before a later block says that the last local block prints this. `...` stands for anything, and
lines may be broken elsewhere.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted({REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")})
LOCAL, CLUSTER, NOT_RUN = "run: local", "run: cluster", "not run: "

_FENCE = re.compile(r"^( *)(```+|~~~+)([^`\n]*)$")
_MARK = re.compile(r"^ *<!-- (run: local|run: cluster|not run: .+) -->$")
_LIKE_A_MARK = re.compile(r"^ *<!--\s*(?:run|not run|output)\b.*$", re.MULTILINE | re.IGNORECASE)
_OUTPUT = re.compile(r"^ *<!-- output -->$")
_LANGUAGES = frozenset({"", "bash", "console", "sh", "shell"})
_PROGRAM = re.compile(
    r"^ *(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/\w+|recovery|kubectl|make|pip|pipx|python3?|git|curl|helm|promtool|"
    r"kustomize|buildah|podman|docker|ctr|torchrun|export|cat|cd|chromium|NS=|JOB=)(?: |$)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block that holds commands."""

    page: str
    """Its path in the repository."""
    line: int
    """Of the first command."""
    mark: str
    """How it is tested. Empty: nothing says so."""
    script: str
    output: str = ""
    """What the page says that it prints. Empty: nothing is compared."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class _Fenced:
    before: str
    """The line before it."""
    line: int
    """Of its content."""
    language: str
    content: str

    def holds_commands(self) -> bool:
        """A mark says so for every block. Without one, what it looks like: YAML and pure output are left out."""
        if _MARK.match(self.before):
            return True
        if self.language not in _LANGUAGES or not _PROGRAM.search(self.content):
            return False
        # Of a console, output may begin like a command.
        return self.language != "console" or re.search(r"^\$ ", self.content, re.MULTILINE) is not None


def _fenced(text: str) -> Iterator[_Fenced]:
    lines = iter(enumerate(text.splitlines(), start=1))
    before = ""
    for number, line in lines:
        if fence := _FENCE.match(line):
            indent, ticks, language = fence.groups()
            content = []
            for _, inside in lines:
                if inside.strip() == ticks:
                    break
                content.append(inside.removeprefix(indent) + "\n")
            yield _Fenced(before, number + 1, language.strip(), "".join(content))
        before = line


def within_text(text: str) -> list[str]:
    """What stands in backticks, outside of blocks."""
    prose, inside = [], ""
    for line in text.splitlines():
        if fence := _FENCE.match(line):
            inside = "" if inside == fence[2] else inside or fence[2]
        elif not inside:
            prose.append(line)
    return re.findall(r"`([^`]+)`", "\n".join(prose))


def blocks_of(text: str, page: str) -> list[Block]:
    """Those with commands."""
    blocks: list[Block] = []
    for each in _fenced(text):
        if _OUTPUT.match(each.before):
            if not blocks or blocks[-1].mark != LOCAL or blocks[-1].output:
                raise ValueError(f"{page}:{each.line}: `output` follows no block that is `run: local`")
            blocks[-1] = replace(blocks[-1], output=each.content)
        elif each.holds_commands():
            mark = _MARK.match(each.before)
            blocks.append(Block(page, each.line, mark[1] if mark else "", each.content))
    return blocks


def documented() -> list[Block]:
    """Of all pages."""
    return [
        block
        for path in PAGES
        for block in blocks_of(path.read_text(encoding="utf-8"), path.relative_to(REPOSITORY).as_posix())
    ]


def linked_checkout(folder: Path) -> Path:
    """A new folder in it that has the whole repository by links, so that a new file lands beside them and not in it."""
    checkout = folder / "checkout"
    checkout.mkdir()
    for path in REPOSITORY.iterdir():
        if path.name not in {".git", ".venv"}:
            (checkout / path.name).symlink_to(path)
    (checkout / ".venv").symlink_to(sys.prefix)
    return checkout


def marks_without_a_block(text: str) -> list[str]:
    """Comments that look like a mark and mark nothing: misspelt, or with a line between them and their block."""
    used = [each.before for each in _fenced(text) if _MARK.match(each.before) or _OUTPUT.match(each.before)]
    unused = []
    for comment in _LIKE_A_MARK.findall(text):
        if comment in used:
            used.remove(comment)
        else:
            unused.append(comment.strip())
    return unused


def prints(expected: str, printed: str) -> bool:
    """Whether that output is the one of a page, which breaks lines where it likes and leaves parts out by `...`."""
    rest = " ".join(printed.split())
    for part in re.split(r"\.\.\.|…", expected):
        words = " ".join(part.split())
        _, found, rest = rest.partition(words) if words else ("", "nothing to find", rest)
        if not found:
            return False
    return True
