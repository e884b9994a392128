"""The docstrings of structs, enums and constants, read from the source, because Python does not keep all of them."""

import ast
import inspect
from collections.abc import Iterable, Iterator
from enum import EnumType
from types import ModuleType

import msgspec


def of_fields(struct: type[msgspec.Struct] | EnumType) -> dict[str, str]:
    """The docstring below each attribute, by the Python name of the attribute. Attributes without one are omitted."""
    [definition] = ast.parse(inspect.getsource(struct)).body
    assert isinstance(definition, ast.ClassDef)
    return {name: text for name, text in _documented(definition.body) if text}


def of_type(described: type[msgspec.Struct] | EnumType) -> str:
    """The docstring of the class."""
    return _one_line(described.__doc__ or "")


def of_constants(module: ModuleType, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Value and docstring of each constant of the module whose name has one of the suffixes, in source order."""
    for name, text in _documented(ast.parse(inspect.getsource(module)).body):
        if name.endswith(suffixes):
            yield str(getattr(module, name)), text


def _documented(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Every name that is assigned to, with the string directly below it. Empty: there is no such string."""
    statements = list(body)
    for statement, following in zip(statements, [*statements[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign):
            target: ast.expr = statement.target
        elif isinstance(statement, ast.Assign):
            [target] = statement.targets
        else:
            continue
        if not isinstance(target, ast.Name):
            continue
        match following:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield target.id, _one_line(text)
            case _:
                yield target.id, ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
