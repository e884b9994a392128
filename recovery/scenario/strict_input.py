"""Reads data that people wrote strictly: reports everything that is wrong, each with its path and how to fix it.

Reading does not stop at the first mistake. A wrong value is left out, or replaced by what was probably meant, so that
the rest can be checked too. Such a value is used for nothing else.
"""

import difflib
import enum
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

_WRONG = object()
"""Stands for a wrong value when the intended one cannot be guessed."""


class BadInputError(ValueError):
    """The input is refused. `problems`: one line for each mistake, which begins with the path of the field."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class StrictReading(Generic[T]):
    """What could be read of a body."""

    value: T | None
    """The value, made of what is right and what was probably meant. None: too much is wrong."""
    problems: tuple[str, ...]
    left_out: frozenset[str]
    """Paths of the list items that are not in `value`."""

    def __post_init__(self) -> None:
        assert self.value is not None or self.problems, "what has no value says why"


def read(body: object, kind: type[T], path: str = "") -> T:
    """`body`, as parsed from YAML, as a `kind`. `path` prefixes the paths of the fields. Raises BadInputError."""
    reading = read_what_is_right(body, kind, path)
    if reading.problems:
        raise BadInputError(*reading.problems)
    assert reading.value is not None
    return reading.value


def read_what_is_right(body: object, kind: type[T], path: str = "") -> StrictReading[T]:
    """The same, but it continues after a mistake."""
    reader = _Reader()
    right = reader.read(body, kind, path)
    value: T | None = None
    if right is not _WRONG:
        try:
            value = msgspec.convert(right, kind)
        except msgspec.ValidationError as error:
            reader.refuse(error, path)
    return StrictReading(value, tuple(reader.problems), frozenset(reader.left_out))


def none_of(found: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: what was probably meant, or all known words."""
    words = list(known)
    near = nearest(found, words)
    return f"did you mean {near!r}?" if near else f"known: {', '.join(words) or 'none'}"


def nearest(found: object, known: Iterable[str]) -> str | None:
    """The known word that was probably meant. None: none is similar."""
    by_letters = {word.casefold(): word for word in known}
    near = difflib.get_close_matches(str(found).casefold(), by_letters, n=1)
    return by_letters[near[0]] if near else None


class _Reader:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.left_out: set[str] = set()

    def read(self, body: object, kind: Any, path: str) -> object:
        """The body without what is wrong in it. _WRONG: nothing of it can be used."""
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return self._union(body, kind, arguments, path)
        if origin is tuple and isinstance(body, list):
            return self._items(body, arguments[0], path)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(body, Mapping):
            return self._struct(body, kind, path)
        if isinstance(kind, type) and issubclass(kind, enum.StrEnum) and isinstance(body, str):
            return self._word(body, [str(word) for word in kind], path)
        return self._leaf(body, kind, path)

    def refuse(self, error: msgspec.ValidationError, path: str) -> None:
        what, _, where = str(error).partition(" - at `$")
        self.problems.append(f"{_joined(path, where.removesuffix('`').removeprefix('.')) or 'the file'}: {what}")

    def _leaf(self, body: object, kind: Any, path: str) -> object:
        try:
            msgspec.convert(body, kind)
        except msgspec.ValidationError as error:
            self.refuse(error, path)
            return _WRONG
        return body

    def _items(self, body: list[Any], kind: Any, path: str) -> list[object]:
        right = []
        for number, item in enumerate(body):
            value = self.read(item, kind, f"{path}[{number}]")
            if value is _WRONG:
                self.left_out.add(f"{path}[{number}]")
            else:
                right.append(value)
        return right

    def _word(self, body: str, words: list[str], path: str) -> object:
        if body in words:
            return body
        self.problems.append(f"{path}: {body!r} is not known; {none_of(body, words)}")
        return nearest(body, words) or _WRONG

    def _union(self, body: object, kind: Any, kinds: Iterable[Any], path: str) -> object:
        """Structs distinguished by a tag, or one type or None."""
        others = [each for each in kinds if each is not types.NoneType]
        if body is None or not isinstance(body, Mapping) or not all(_tag(each) for each in others):
            return (
                self.read(body, others[0], path)
                if len(others) == 1 and body is not None
                else self._leaf(body, kind, path)
            )
        by_tag = {_tag(each): each for each in others}
        name = str(others[0].__struct_config__.tag_field)
        written = name if name in body else next((key for key in body if nearest(key, (name,))), None)
        if written is None:
            self.problems.append(f"{_joined(path, name)}: is missing; {none_of(None, sorted(by_tag))}")
            return _WRONG
        if written != name:
            self.problems.append(f"{_joined(path, str(written))}: is no field; did you mean {name!r}?")
        found = self._word(str(body[written]), sorted(by_tag), _joined(path, str(written)))
        if not isinstance(found, str):
            return _WRONG
        rest = {key: value for key, value in body.items() if key != written}
        return self._struct({**rest, name: found}, by_tag[found], path)

    def _struct(self, body: Mapping[Any, Any], kind: type[msgspec.Struct], path: str) -> object:
        fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
        tag_field = kind.__struct_config__.tag_field
        meant: dict[str, str] = {}
        """The name that each field probably has in the body."""
        for name in body:
            if name in fields:
                meant[name] = name
            elif name != tag_field:
                self.problems.append(f"{_joined(path, str(name))}: is no field; {none_of(name, fields)}")
                near = nearest(name, fields)
                if near is not None and near not in body:
                    meant.setdefault(near, name)
        right: dict[str, object] = {}
        if tag_field is not None and tag_field in body:
            right[tag_field] = body[tag_field]
        whole = True
        for name, each in fields.items():
            if name in meant:
                value = self.read(body[meant[name]], each.type, _joined(path, name))
                if value is not _WRONG:
                    right[name] = value
            elif each.required:
                self.problems.append(f"{_joined(path, name)}: is missing")
            whole = whole and (name in right or not each.required)
        return right if whole else _WRONG


def _tag(kind: Any) -> str:
    """The tag of a struct. Empty: `kind` is not a struct, or has no tag."""
    config = getattr(kind, "__struct_config__", None)
    return str(config.tag) if config is not None and config.tag else ""


def _joined(path: str, rest: str) -> str:
    return f"{path}.{rest}" if path and rest and not rest.startswith("[") else path + rest
