"""Reads the Containerfile and .containerignore as an image builder does, so that tests need no container runtime."""

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

from tests.unit.manifests.kustomize import REPOSITORY


class Instruction(NamedTuple):
    """One instruction of the Containerfile, with its continued lines joined."""

    stage: int
    """The number of the FROM that it belongs to; 1 is the first."""
    name: str
    arguments: str


def instructions(name: str) -> list[Instruction]:
    lines = (REPOSITORY / "Containerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    found, stage = [], 0
    for line in filter(None, text.splitlines()):
        keyword, _, arguments = line.partition(" ")
        stage += keyword == "FROM"
        found.append(Instruction(stage, keyword, " ".join(arguments.split())))
    return [each for each in found if each.name == name]


class Copy(NamedTuple):
    """A COPY from the repository."""

    stage: int
    sources: list[str]
    destination: str


def copies() -> list[Copy]:
    split = [(each.stage, each.arguments.split()) for each in instructions("COPY") if "--from" not in each.arguments]
    return [Copy(stage, arguments[:-1], arguments[-1]) for stage, arguments in split]


def commands(program: str) -> list[list[str]]:
    """The commands of all RUN instructions whose program has this file name, split as the shell does."""
    parts = [part for run in instructions("RUN") for part in run.arguments.split("&&")]
    return [words for words in map(shlex.split, parts) if Path(words[0]).name == program]


def let_through(path: str) -> bool:
    """Whether .containerignore lets the file into the build. The last pattern for it or a folder above it wins."""
    sent = True
    for line in (REPOSITORY / ".containerignore").read_text().splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        expression = _expression(pattern.removeprefix("!"))
        above = [*map(str, reversed(Path(path).parents[:-1])), path]
        if any(expression.fullmatch(each) for each in above):
            sent = pattern.startswith("!")
    return sent


def _expression(pattern: str) -> re.Pattern[str]:
    """`*` stays within a folder, `**/` spans any number of them. Other wildcards are not used here."""
    assert not set("?[]\\") & set(pattern), f".containerignore: this test cannot read {pattern}"
    steps = re.split(r"(\*\*/|\*)", pattern)
    return re.compile("".join({"**/": "(?:.*/)?", "*": "[^/]*"}.get(step) or re.escape(step) for step in steps))


def files_below(source: str) -> list[str]:
    """The files of the repository at or below this path."""
    start = REPOSITORY / source
    found = [start] if start.is_file() else [path for path in start.rglob("*") if path.is_file()]
    return [path.relative_to(REPOSITORY).as_posix() for path in found]


def copy_context(folder: Path) -> None:
    """Fill the folder as the COPY instructions of the first stage fill its working directory."""
    for copy in copies():
        for source in copy.sources if copy.stage == 1 else ():
            below = (REPOSITORY / source).is_dir()
            for file in filter(let_through, files_below(source)):
                # COPY puts the content of a folder, or the file itself, into the destination.
                inside = Path(file).relative_to(source) if below else Path(Path(file).name)
                target = folder / copy.destination / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(REPOSITORY / file, target)
