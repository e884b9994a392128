"""Makes documents of the text that users give to `recovery lint`, and of the objects that admission gets. A document
has a body, and the line of each field.

Nothing is raised: text that cannot be read becomes a document with an empty body and a finding that says why.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from recovery.launch.fields import RENDER
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.places import Path, Place, written
from recovery.launch.yaml_text import Parsed, TextError, parsed

CHARACTERS_MAX = 20_000_000
"""In one file. It is enough for `kubectl get trainjobs -A -o yaml` in the largest cluster."""

NOT_YAML = Code("not-yaml", Severity.ERROR, "the text cannot be read as YAML or JSON")
TOO_LARGE = Code("too-large", Severity.ERROR, "the text is larger than lint reads")
DUPLICATE_KEY = Code("duplicate-key", Severity.ERROR, "a field appears twice in the same object")
NOT_AN_OBJECT = Code("not-an-object", Severity.ERROR, "a document is not a Kubernetes object")
TEMPLATE = Code("template", Severity.ERROR, "the file is a template that has not been rendered yet")
CODES = (NOT_YAML, TEMPLATE, TOO_LARGE, DUPLICATE_KEY, NOT_AN_OBJECT)


class Document(msgspec.Struct, frozen=True):
    """One object as it was given."""

    number: int
    """`Place.document` of every finding in it."""
    body: Mapping[str, Any]
    """It has `apiVersion` and `kind`. Empty: the document cannot be read, and `problems` says why."""
    file: str = ""
    """The file as the user named it. Empty: the document came from no file."""
    lines: Mapping[Path, int] = {}
    """The line of each field of the whole text document, counted from 1. Empty: the document came from no file."""
    root: Path = ()
    """The path of the body in that text document. For an item of a List it is `("items", 0)`."""
    problems: tuple[LintFinding, ...] = ()
    """What is wrong with the text."""

    @property
    def kind(self) -> str:
        return str(self.body.get("kind", ""))

    @property
    def api_version(self) -> str:
        return str(self.body.get("apiVersion", ""))

    def line_of(self, path: Path) -> int:
        """The line of that field. A field that is missing, or that came from an alias, has the line of its nearest
        parent that has one. 0: the document came from no file."""
        steps = (*self.root, *path)
        while steps and steps not in self.lines:
            steps = steps[:-1]
        return self.lines.get(steps, 0)


def documents(text: str, *, file: str = "", first: int = 0) -> tuple[Document, ...]:
    """The documents in that text, one for each object. `first`: the number of the first one, for when several files are
    judged together."""
    return tuple(_documents(text, file, first))


def document_of(body: Mapping[str, Any], *, number: int = 0) -> Document:
    """The document of an object that came from no file."""
    return Document(number, body)


def _documents(text: str, file: str, first: int) -> Iterator[Document]:
    number = first
    if len(text) > CHARACTERS_MAX:
        yield _unread(number, file, 1, TOO_LARGE, f"the text is longer than {CHARACTERS_MAX:,} characters", "split it")
        return
    try:
        for each in parsed(text):
            for document in _split(each, file, number):
                yield document
                number += 1
    except TextError as error:
        if _is_template(text, error.line):
            message = "this is a template that has not been rendered yet"
            yield _unread(number, file, error.line, TEMPLATE, message, RENDER)
        else:
            yield _unread(
                number, file, error.line, TOO_LARGE if error.too_large else NOT_YAML, error.message, error.fix
            )


def _is_template(text: str, line: int) -> bool:
    """Whether that line contains the braces of Helm or Jinja."""
    lines = text.splitlines()
    return line <= len(lines) and ("{{" in lines[line - 1] or "{%" in lines[line - 1])


def _split(each: Parsed, file: str, number: int) -> Iterator[Document]:
    """The objects of one text document: none if it is empty, the items if it is a List."""
    body = each.value
    if body is None:
        return
    if not isinstance(body, dict) or body.get("kind") != "List":
        yield _document(body, each, file, number, ())
        return
    items = body.get("items")
    if items is not None and not isinstance(items, list):
        problem = LintFinding(
            NOT_AN_OBJECT, Place(number, ("items",)), "items of a List is not a list", "write a list there"
        )
        yield Document(number, {}, file, each.lines, problems=(problem,))
        return
    for index, item in enumerate(items or ()):
        yield _document(item, each, file, number + index, ("items", index))


def _document(body: Any, each: Parsed, file: str, number: int, root: Path) -> Document:
    place = Place(number)
    found = [_repeated(place, path[len(root) :], line) for path, line in each.repeated if path[: len(root)] == root]
    missing = _missing(body)
    if missing:
        fix = "write `apiVersion` and `kind` of the object, or remove the document"
        found.append(LintFinding(NOT_AN_OBJECT, place, missing, fix))
    return Document(number, {} if missing else body, file, each.lines, root, tuple(found))


def _missing(body: Any) -> str:
    """Why the document is not an object. Empty: it is one."""
    if not isinstance(body, dict):
        return f"the document is {'a list' if isinstance(body, list) else 'a single value'}, not an object"
    for name in ("apiVersion", "kind"):
        value = body.get(name)
        if not isinstance(value, str) or not value:
            return f"the document has no {name}, so its kind is unknown"
    return ""


def _repeated(place: Place, path: Path, first_line: int) -> LintFinding:
    for step in path:
        place = place / step
    return LintFinding(
        DUPLICATE_KEY,
        place,
        f"{written(path)} stands twice, first in line {first_line}: kubectl takes the last one and says nothing",
        "remove one of them",
    )


def _unread(number: int, file: str, line: int, code: Code, message: str, fix: str) -> Document:
    return Document(number, {}, file, {(): line}, problems=(LintFinding(code, Place(number), message, fix),))
