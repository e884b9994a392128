"""Data that people wrote, read strictly: everything that is wrong with it, each with its path and how to fix it."""

import difflib
import enum
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class BadInputError(ValueError):
    """Input that is refused. `problems`: a line for each thing that is wrong, the path of the field first."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read(body: object, kind: type[T], path: str = "") -> T:
    """`body`, as YAML gives it, as a `kind`. Raises BadInputError; `path` stands before those of the fields."""
    problems = tuple(_problems(body, kind, path))
    if problems:
        raise BadInputError(*problems)
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise BadInputError(
            f"{_joined(path, where.removesuffix('`').removeprefix('.')) or 'the file'}: {what}"
        ) from None


def none_of(found: object, known: Iterable[str]) -> str:
    """What there is instead, and what was probably meant: the end of a sentence about a word that is not known."""
    words = list(known)
    near = difflib.get_close_matches(str(found), words, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(words)}"


def _problems(body: object, kind: Any, path: str) -> Iterator[str]:
    """What msgspec would not say of it, or of the first only. Wrong types are left to msgspec."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        yield from _of_union(body, arguments, path)
    elif origin is tuple and isinstance(body, list):
        for number, item in enumerate(body):
            yield from _problems(item, arguments[0], f"{path}[{number}]")
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(body, Mapping):
        yield from _of_struct(body, kind, path)
    elif isinstance(kind, type) and issubclass(kind, enum.StrEnum) and isinstance(body, str):
        words = [str(word) for word in kind]
        if body not in words:
            yield f"{path}: {body!r} is not known; {none_of(body, words)}"


def _of_union(body: object, kinds: Iterable[Any], path: str) -> Iterator[str]:
    """Structs told apart by a tag, or one type or None."""
    others = [kind for kind in kinds if kind is not types.NoneType]
    if body is None or not isinstance(body, Mapping) or not all(_tag(kind) for kind in others):
        if len(others) == 1:
            yield from _problems(body, others[0], path)
        return
    by_tag = {_tag(kind): kind for kind in others}
    name = others[0].__struct_config__.tag_field
    found = body.get(name)
    if found not in by_tag:
        said = "is missing" if found is None else f"{found!r} is not known"
        yield f"{_joined(path, name)}: {said}; {none_of(found, sorted(by_tag))}"
        return
    yield from _of_struct(body, by_tag[found], path)


def _of_struct(body: Mapping[Any, Any], kind: type[msgspec.Struct], path: str) -> Iterator[str]:
    fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
    for name in body:
        if name not in fields and name != kind.__struct_config__.tag_field:
            yield f"{_joined(path, str(name))}: is no field; {none_of(name, fields)}"
    for name, each in fields.items():
        if name in body:
            yield from _problems(body[name], each.type, _joined(path, name))
        elif each.required:
            yield f"{_joined(path, name)}: is missing"


def _tag(kind: Any) -> str:
    """Empty: not a struct, or one without a tag."""
    config = getattr(kind, "__struct_config__", None)
    return str(config.tag) if config is not None and config.tag else ""


def _joined(path: str, rest: str) -> str:
    return f"{path}.{rest}" if path and rest and not rest.startswith("[") else path + rest
