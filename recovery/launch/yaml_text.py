"""Reads YAML text into plain values, with the line of every field.

It reads the events of PyYAML's parser and builds the values itself, in one pass, without recursion, and with bounds. It
builds the values that Kubernetes would see (`scalars`), and keeps what PyYAML's own loaders drop: where a key was
written twice. Merge keys (`<<`) override the keys before them, as in kubectl's parser.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from recovery.launch.places import Path
from recovery.launch.scalars import Scalar, ScalarError, key, resolved

NODES_MAX = 500_000
"""Values in one document after its aliases are expanded: a hundred times the largest JobSet."""
DEPTH_MAX = 100
"""Twice the depth of the CRD of TrainJobs. Lines are kept by the path of their field, so this bounds memory too."""

_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PAIRS = re.compile(r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE)
_MERGE = "<<"
_MERGE_TAG = "tag:yaml.org,2002:merge"


class TextError(Exception):
    """The text is not YAML, or exceeds a bound. It says what is wrong, and how to fix it."""

    def __init__(self, line: int, message: str, fix: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.fix = fix
        self.too_large = too_large


class Parsed(msgspec.Struct, frozen=True):
    """One document."""

    value: Any
    lines: dict[Path, int]
    """The line of every field's key, or of every item, counted from 1. Fields below an alias have none."""
    repeated: tuple[tuple[Path, int], ...] = ()
    """Keys that were written a second time, and the line of the first."""


class _Anchored(msgspec.Struct):
    """The value of an anchor. `nodes` 0: it is not closed yet, so an alias to it would contain itself."""

    value: Any = None
    nodes: int = 0


class _Open(msgspec.Struct):
    """A mapping or a list that is not closed yet."""

    value: dict[str, Any] | list[Any]
    path: Path
    anchored: _Anchored | None
    key: str | None = None
    """In a mapping: the key whose value comes next. None: a key comes next."""
    merging: bool = False
    """The key is `<<`, without quotes."""
    first_lines: dict[str, int] = {}
    """The first line of each key that is written in this mapping itself."""
    nodes: int = 1


def parsed(text: str) -> Iterator[Parsed]:
    """The documents of that text, one by one, with empty ones. Raises TextError at the first that cannot be read."""
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = text.count("\n", 0, unprintable.start()) + 1
        found = ord(unprintable.group())
        raise TextError(line, f"the character U+{found:04X} may not stand in YAML", "remove it, or save it as UTF-8")
    if text.lstrip().startswith("{"):
        text = _from_json(text)
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            done = builder.take(event)
            if done is not None:
                yield done
    except yaml.MarkedYAMLError as error:
        raise _worded(error, text) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise TextError(builder.line, f"this is not YAML: {str(error).splitlines()[0]}", "correct it here") from None


def _from_json(text: str) -> str:
    """Makes YAML of JSON text. Tabs become spaces, because JSON strings have none. YAML has no surrogate pairs."""
    return _PAIRS.sub(lambda found: found[1] + _character(found[2], found[3]), text.replace("\t", " "))


def _character(high: str, low: str) -> str:
    return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)


class _Builder:
    """Builds the documents of a text from its events."""

    def __init__(self) -> None:
        self.line = 1
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._lines: dict[Path, int] = {}
        self._repeated: list[tuple[Path, int]] = []
        self._root: Any = None

    def take(self, event: Any) -> Parsed | None:
        """Takes the next event. Returns a document if it ends with that event."""
        self.line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._anchors, self._lines, self._repeated, self._root = {}, {}, [], None
        elif isinstance(event, yaml.DocumentEndEvent):
            return Parsed(self._root, self._lines, tuple(self._repeated))
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(event, {} if isinstance(event, yaml.MappingStartEvent) else [])
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        return None

    def _open(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        if self._wants_key():
            raise self._error("a key is itself a list or a mapping", "write a name, or put the value in quotes")
        if len(self._stack) >= DEPTH_MAX:
            raise TextError(self.line, f"it is nested deeper than {DEPTH_MAX} levels", "flatten it", too_large=True)
        path = self._path()
        self._lines.setdefault(path, self.line)
        self._stack.append(_Open(value, path, self._anchor(event), first_lines={}))

    def _close(self) -> None:
        closed = self._stack.pop()
        if closed.anchored is not None:
            closed.anchored.value, closed.anchored.nodes = closed.value, closed.nodes
        self._put(closed.value, closed.nodes)

    def _alias(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise self._error(
                f"*{event.anchor} refers to no anchor above it", f"write &{event.anchor} where it is meant"
            )
        if not anchored.nodes:
            raise self._error(f"*{event.anchor} stands within its own anchor", "write the value out")
        if self._wants_key():
            self._key(anchored.value if isinstance(anchored.value, Scalar) else [], merging=False)
        else:
            self._put(anchored.value, anchored.nodes)

    def _scalar(self, event: Any) -> None:
        plain = event.implicit[0]
        if self._wants_key() and event.value == _MERGE and (plain or event.tag == _MERGE_TAG):
            self._key(_MERGE, merging=True)
            return
        try:
            value = resolved(event.value, event.tag, plain=plain)
        except ScalarError as error:
            raise self._error(f"{event.value!r} {error}", "put it in quotes, or write another value") from None
        anchored = self._anchor(event)
        if anchored is not None:
            anchored.value, anchored.nodes = value, 1
        if self._wants_key():
            self._key(value, merging=False)
        else:
            self._put(value, 1)

    def _anchor(self, event: Any) -> _Anchored | None:
        """The anchor of the value. None: it has none."""
        if not event.anchor:
            return None
        self._anchors[event.anchor] = _Anchored()
        return self._anchors[event.anchor]

    def _wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _key(self, value: Any, *, merging: bool) -> None:
        inner = self._stack[-1]
        if isinstance(value, list):
            raise self._error("a key is itself a list or a mapping", "write a name")
        try:
            inner.key, inner.merging = key(value), merging
        except ScalarError as error:
            raise self._error(f"a key {error}", "write a name before the colon") from None
        self._lines[(*inner.path, inner.key)] = self.line
        if merging:
            return
        if inner.key in inner.first_lines:
            self._repeated.append(((*inner.path, inner.key), inner.first_lines[inner.key]))
        inner.first_lines.setdefault(inner.key, self.line)

    def _path(self) -> Path:
        """The path of the value that comes next."""
        if not self._stack:
            return ()
        inner = self._stack[-1]
        return (*inner.path, len(inner.value) if isinstance(inner.value, list) else inner.key or "")

    def _put(self, value: Any, nodes: int) -> None:
        """Puts a complete value into the mapping or list that contains it."""
        path = self._path()
        self._lines.setdefault(path, self.line)
        if not self._stack:
            self._root = value
            return
        inner = self._stack[-1]
        inner.nodes += nodes
        if inner.nodes > NODES_MAX:
            raise TextError(self.line, f"it holds more than {NODES_MAX:,} values", "split it", too_large=True)
        if isinstance(inner.value, list):
            inner.value.append(value)
        elif inner.merging:
            self._merge(inner, value)
        elif inner.key is not None:
            inner.value[inner.key] = value
        inner.key = None

    def _merge(self, inner: _Open, value: Any) -> None:
        """`<<`: merges the fields of a mapping, or of a list of mappings. In a list the first mapping wins."""
        mappings = value if isinstance(value, list) else [value]
        for mapping in reversed(mappings):
            if not isinstance(mapping, dict) or not isinstance(inner.value, dict):
                raise self._error("<< wants a mapping, or a list of them", "write << with an alias to a mapping")
            inner.value.update(mapping)
            for name in mapping:
                self._lines[(*inner.path, name)] = self._lines[(*inner.path, _MERGE)]

    def _error(self, message: str, fix: str) -> TextError:
        return TextError(self.line, message, fix)


_QUOTES = "close it, or put quotes of the other kind around the value"
_INDENT = "indent it like its neighbours, with spaces"
_WORDS: tuple[tuple[re.Pattern[str], bool, str, str], ...] = (
    # The parser's message; whether to report the line where the problem began; our message; how to fix it.
    (
        re.compile("unexpected end of stream|document indicator"),
        True,
        "a quote that opens here is never closed",
        _QUOTES,
    ),
    (
        re.compile("mapping values are not allowed"),
        False,
        "a second colon stands in this line, or the line is indented too far",
        "put the value in quotes, or correct the indentation",
    ),
    (re.compile("could not find expected ':'"), True, "this line has no colon", "write `name: value`"),
    (
        re.compile(r"(did not find expected|expected) ('[,\]}]'|',' or)"),
        True,
        "a [ or { that opens here is never closed",
        "close it",
    ),
    (
        re.compile("expected <block end>|did not find expected (key|'-' indicator)|block collection"),
        False,
        "the indentation does not fit the lines above",
        _INDENT,
    ),
    (
        re.compile("expected (the )?'?<document start>"),
        False,
        "the line is indented less than the first one, so that it ends the document: kubectl drops it and what follows",
        _INDENT,
    ),
    (re.compile("block sequence entries are not allowed"), False, "a list item stands where none can", _INDENT),
    (
        re.compile("unknown escape character|escape"),
        False,
        "a backslash in double quotes",
        "use single quotes, or \\\\",
    ),
)
"""Messages of both parsers, libyaml's and PyYAML's own, whose wording is mostly alike."""


def _worded(error: yaml.MarkedYAMLError, text: str) -> TextError:
    """A parser's error in plain words, at the line where the user has to fix it."""
    problem, mark, began = error.problem or "", error.problem_mark, error.context_mark
    at = mark or began
    line = at.line + 1 if at is not None else 1
    if "document start" in problem and text.lstrip().startswith("{"):
        return TextError(line, "something follows the first JSON object", "write --- between two objects")
    if "cannot start any token" in problem or "found a tab" in problem:
        found = text.splitlines()[line - 1] if line <= len(text.splitlines()) else ""
        character = found[mark.column : mark.column + 1] if mark else ""
        if character == "\t" or "\t" in found[: len(found) - len(found.lstrip())]:
            return TextError(line, "a tab stands where YAML wants spaces", "indent with spaces")
        return TextError(line, f"{character!r} cannot begin a value", "put the value in quotes")
    for said, at_beginning, words, fix in _WORDS:
        if said.search(problem):
            return TextError(began.line + 1 if at_beginning and began else line, words, fix)
    return TextError(line, f"this is not YAML: {problem or error.context or 'it cannot be read'}", "correct it here")
