"""Reads the files, folders and stdin that users name as manifests. Their documents are judged together."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from io import TextIOWrapper
from typing import BinaryIO, NoReturn

from recovery.cli.exit_codes import EXIT_FAILURE, EXIT_USAGE, print_error
from recovery.cli.manifests import Manifests, Problem, RuntimeSource
from recovery.launch.documents import CHARACTERS_MAX, NOT_AN_OBJECT, TEMPLATE, Document, documents
from recovery.launch.fields import RENDER
from recovery.launch.kinds import kind_of, nearest

STDIN = "-"
STDIN_NAME = "<stdin>"
SUFFIXES = (".yaml", ".yml", ".json")
"""Suffixes of the files that are read from a folder. A file that is named itself may have any name."""


def _say_nothing(_problems: Sequence[Problem], _code: int) -> None:
    """The lines on stderr are enough."""


def with_manifests(
    names: Sequence[str],
    cluster: RuntimeSource | None,
    work: Callable[[Manifests], int],
    *,
    without_work: Callable[[Sequence[Problem], int], None] = _say_nothing,
    skip_others: bool = False,
) -> NoReturn:
    """Do the work on these files, folders and stdin (`-`), and exit with the code that it returns. Exit with 2 if one
    of them cannot be read, after the work on the others, or if there is nothing to work on. `cluster` None: none is
    read. `without_work` is called instead, with the problems and the exit code, if there is nothing to work on or the
    cluster does not answer. `skip_others`: files in which nothing is judged are skipped, even those that are named, and
    it is no failure if all are."""

    def read_and_work() -> int:
        manifests = _read(names, skip_others)
        for problem in manifests.problems:
            print_error(problem.message)
        if manifests.templates:
            print_error(_unrendered(manifests.templates))
        if not manifests.documents and not (skip_others and not manifests.problems):
            problems = manifests.problems or (_nothing_in(names),)
            if not manifests.problems:
                print_error(problems[0].message)
            without_work(problems, EXIT_USAGE)
            return EXIT_USAGE
        if cluster is not None:
            # Loaded here, because the client of a cluster takes longer to load than most files take to be judged.
            from recovery.cli.cluster_runtimes import with_runtimes  # noqa: PLC0415
            from recovery.cli.connection import execute  # noqa: PLC0415

            def failed(line: str) -> None:
                without_work((*manifests.problems, Problem(line)), EXIT_FAILURE)

            execute(with_runtimes(manifests, cluster, whole_work, failed))
        return whole_work(manifests)

    def whole_work(manifests: Manifests) -> int:
        code = work(manifests)
        return EXIT_USAGE if manifests.problems else code

    sys.exit(read_and_work())


def _nothing_in(names: Sequence[str]) -> Problem:
    return Problem(f"there is nothing to judge in {', '.join(names)}: no object of a kind that is known here")


def _read(names: Sequence[str], skip_others: bool) -> Manifests:
    """All objects. A file that is named twice is read once."""
    problems: list[Problem] = []
    found: list[Document] = []
    templates: list[str] = []
    files = passed_over = 0
    for name, listed in _files(names, problems):
        text = _text(name, problems)
        if text is None:
            continue
        files += 1
        file = STDIN_NAME if name == STDIN else name
        given = documents(text, file=file, first=found[-1].number + 1 if found else 0)
        choosing = listed or skip_others
        kept = [each for each in given if not choosing or _is_meant(each)]
        passed_over += bool(choosing and not kept)
        if listed and not kept and any(problem.code == TEMPLATE for each in given for problem in each.problems):
            templates.append(name)
        found.extend(kept)
    return Manifests(tuple(found), files, passed_over, tuple(problems), tuple(templates))


def _unrendered(names: Sequence[str]) -> str:
    which = f"{names[0]} is a template" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more are templates"
    return f"{which}, and nothing of it is judged; {RENDER}"


def _files(names: Sequence[str], problems: list[Problem]) -> Iterator[tuple[str, bool]]:
    """Each file once. True: the file was not named, but found in a folder."""
    named = {_identity(name) for name in names}
    seen: set[str] = set()
    for name in names:
        for path in _folder(name, problems) if name != STDIN and os.path.isdir(name) else (name,):
            identity = _identity(path)
            if identity not in seen:
                seen.add(identity)
                yield path, identity not in named


def _identity(name: str) -> str:
    """The path without links, so that two names of one file have one identity."""
    return name if name == STDIN else os.path.realpath(name)


def _folder(name: str, problems: list[Problem]) -> list[str]:
    found = sorted(_below(name, problems))
    if not found:
        problems.append(Problem(f"{name} is a folder without files *{', *'.join(SUFFIXES)}", name))
    return found


def _below(folder: str, problems: list[Problem]) -> Iterator[str]:
    """The files of that folder and its subfolders. Hidden ones are skipped, and links to folders are not followed."""

    def unreadable(error: OSError) -> None:
        problems.append(_cannot_be_read(str(error.filename), error))

    for path, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = [each for each in folders if not each.startswith(".")]
        for file in files:
            if not file.startswith(".") and file.lower().endswith(SUFFIXES):
                yield os.path.normpath(os.path.join(path, file))


def _text(name: str, problems: list[Problem]) -> str | None:
    """The text. None: it cannot be read. A text that is too long is read only one character over the limit."""
    try:
        if name != STDIN:
            with open(name, "rb") as file:
                return _decoded(file)
        if sys.stdin is not None:
            return _decoded(sys.stdin.buffer)
        problems.append(Problem("stdin is closed: pipe a manifest into it", STDIN_NAME))
    except OSError as error:
        problems.append(_cannot_be_read(name, error))
    except UnicodeDecodeError:
        shown = STDIN_NAME if name == STDIN else name
        why = "is not UTF-8 text: save it as UTF-8, or leave it out if it is no manifest"
        problems.append(Problem(f"{shown} {why}", shown))
    return None


def _decoded(file: BinaryIO) -> str:
    reader = TextIOWrapper(file, encoding="utf-8-sig")
    try:
        return reader.read(CHARACTERS_MAX + 1)
    finally:
        reader.detach()


def _cannot_be_read(name: str, error: OSError) -> Problem:
    return Problem(f"{name} cannot be read: {error.strerror or error}", name)


def _is_meant(document: Document) -> bool:
    """Whether the document is to be judged. A folder also holds Secrets, templates and values of charts, and workflows,
    which are not. An incomplete object, or one of nearly a kind that is judged, is."""
    if document.body:
        kind = (document.kind, document.api_version)
        return kind_of(*kind) is not None or nearest(*kind) is not None
    if any(each.code == TEMPLATE for each in document.problems):
        return False
    if not any(each.code == NOT_AN_OBJECT for each in document.problems):
        return True
    return _has(document, "kind") or (_has(document, "apiVersion") and _has(document, "spec"))


def _has(document: Document, field: str) -> bool:
    return (*document.root, field) in document.lines
