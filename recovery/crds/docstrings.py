"""What the source says about its structs, enums and constants: the docstrings; Python itself keeps not all of them."""

import ast
import inspect
from collections.abc import Iterable, Iterator
from enum import EnumType
from types import ModuleType

import msgspec


def of_fields(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring beneath each attribute, by the attribute's Python name; attributes without one are missing."""
    [definition] = ast.parse(inspect.getsource(struct)).body
    assert isinstance(definition, ast.ClassDef)
    return {name: text for name, text in _documented(definition.body) if text}


def of_type(described: type[msgspec.Struct] | EnumType) -> str:
    """The docstring of the class."""
    return _one_line(described.__doc__ or "")


def of_constants(module: ModuleType, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Value and docstring of each constant of the module whose name ends so, in the order of the source."""
    for name, text in _documented(ast.parse(inspect.getsource(module)).body):
        if name.endswith(suffixes):
            yield str(getattr(module, name)), text


def _documented(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Every name that is assigned to, with the string that stands right beneath it, or with an empty one."""
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
