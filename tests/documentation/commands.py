"""The commands that the documentation shows, with what says how each block of them is tested.

A comment stands before a block of commands: `<!-- run: local -->` needs nothing but this repository and its virtual
environment, `<!-- run: cluster -->` a cluster with the CRDs, the controller and a job, and `<!-- not run: WHY -->` is
run by no test of this folder; WHY may name the test that runs it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted({REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").rglob("*.md")})
LOCAL, CLUSTER, NOT_RUN = "run: local", "run: cluster", "not run: "

_BLOCK = re.compile(
    r"^(?P<before>[^\n]*)\n(?P<indent> *)```(?P<language>\w*)\n(?P<content>.*?)^ *```$", re.DOTALL | re.MULTILINE
)
_MARK = re.compile(r"^ *<!-- (run: local|run: cluster|not run: .+) -->$")
_LANGUAGES = frozenset({"", "bash", "console", "sh", "shell"})
_PROGRAM = re.compile(
    r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/\w+|recovery|kubectl|make|pip|pipx|python3?|git|curl|helm|promtool|"
    r"kustomize|buildah|podman|docker|ctr|export|cat|chromium|NS=|JOB=)(?: |$)",
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

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(text: str, page: str) -> Iterator[Block]:
    """Blocks without a command, such as YAML and pure output, are left out."""
    for found in _BLOCK.finditer(text):
        lines = found["content"].splitlines(keepends=True)
        script = "".join(each.removeprefix(found["indent"]) for each in lines)
        if found["language"] not in _LANGUAGES or not _PROGRAM.search(script):
            continue
        if found["language"] == "console" and not re.search(r"^\$ ", script, re.MULTILINE):
            continue  # output that begins like a command
        mark = _MARK.match(found["before"])
        line = text.count("\n", 0, found.start("content")) + 1
        yield Block(page, line, mark[1] if mark else "", script)


def documented() -> list[Block]:
    """Of all pages."""
    return [
        block
        for path in PAGES
        for block in blocks_of(path.read_text(encoding="utf-8"), path.relative_to(REPOSITORY).as_posix())
    ]
