"""Reads what a user wrote, field by field: a value of the right type, or a finding.

Nothing is raised, so that all errors in a document are reported at once. A field with a wrong value reads as if it were
missing.
"""

import difflib
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.places import Place, written
from recovery.launch.quantity import QuantityError, parse

WRONG_TYPE = Code("wrong-type", Severity.ERROR, "a field holds a value of another type")
BAD_QUANTITY = Code("bad-quantity", Severity.ERROR, "a resource quantity cannot be read, or is negative")
UNKNOWN_FIELD = Code("unknown-field", Severity.ERROR, "the API has no such field")
CODES = (WRONG_TYPE, BAD_QUANTITY, UNKNOWN_FIELD)

_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a whole number",
}
_QUOTE_MAX = 60
"""Characters of a value that a message quotes."""


class Field:
    """A field of a document, present or missing, and the fields below it."""

    def __init__(self, value: Any, place: Place, found: list[LintFinding]) -> None:
        self.value = value
        """None: the field is missing, or null."""
        self.place = place
        self._found = found

    def __getitem__(self, name: str) -> "Field":
        """The field of that name below this one. A missing field has the place of this one, its nearest parent."""
        below = self.mapping().get(name)
        return Field(below, self.place / name if below is not None else self.place, self._found)

    @property
    def there(self) -> bool:
        return self.value is not None

    def mapping(self) -> dict[str, Any]:
        """The value as an object. Empty: it is missing, or not an object."""
        return self.value if self._is(dict) else {}

    def items(self) -> Iterator["Field"]:
        """The items of a list."""
        for number, item in enumerate(self.value if self._is(list) else ()):
            yield Field(item, self.place / number, self._found)

    def fields(self) -> Iterator[tuple[str, "Field"]]:
        """The fields of an object, by name."""
        for name, value in self.mapping().items():
            yield str(name), Field(value, self.place / str(name), self._found)

    def text(self, default: str = "") -> str:
        return self.value if self._is(str) else default

    def is_text(self) -> bool:
        """Whether the field is present and is text. A value of another type is reported."""
        return self._is(str)

    def texts(self) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(item.text() for item in self.items())

    def flag(self) -> bool | None:
        return self.value if self._is(bool) else None

    def whole(self) -> int | None:
        """A whole number. A number in quotes is reported, because the API server refuses it."""
        return self.value if self._is(int) else None

    def quantity(self) -> Decimal | None:
        if self.value is None:
            return None
        try:
            value = parse(self.value)
        except QuantityError as error:
            fix = "write a whole number, or one with a suffix: 8, 1500m, 64Gi"
            if isinstance(self.value, str) and is_placeholder(self.value):
                fix = fill_in(self.value)
            self.finding(BAD_QUANTITY, f"{_short(repr(self.value))} {error}", fix)
            return None
        if value < 0:
            self.finding(BAD_QUANTITY, f"{self.value!r} is negative", "write 0 or more")
            return None
        return value

    def unknown(self, known: tuple[str, ...]) -> None:
        """Reports that the API has no such field. `known`: the fields that it has there."""
        near = difflib.get_close_matches(str(self.place.path[-1]), known, n=1)
        known_here = f"remove it; known here are {', '.join(sorted(known))}"
        fix = f"did you mean {near[0]}? Else remove it" if near else known_here
        self.finding(UNKNOWN_FIELD, f"there is no field {written(self.place.path)}", fix)

    def finding(self, code: Code, message: str, fix: str) -> None:
        """Reports that something is wrong with this field."""
        self._found.append(LintFinding(code, self.place, message, fix))

    def _is(self, kind: type) -> bool:
        if self.value is None:
            return False
        if isinstance(self.value, kind) and not (kind is int and isinstance(self.value, bool)):
            return True
        name = written(self.place.path) or "the document"
        self.finding(
            WRONG_TYPE, f"{name} is {_described(self.value)} where {_KINDS[kind]} is wanted", _as_kind(self.value, kind)
        )
        return False


def _described(value: Any) -> str:
    """A value of the wrong kind: `the string "16"`, `a list`."""
    if isinstance(value, dict | list):
        return _KINDS[type(value)]
    if isinstance(value, bool):
        return f"the boolean {json.dumps(value)}"
    return f"the {'string' if isinstance(value, str) else 'number'} {_short(json.dumps(value))}"


RENDER = "render it first: helm template . | recovery lint -"
"""What to do with a Helm template."""


def is_placeholder(text: str) -> bool:
    """Whether Helm, envsubst or a shell is to replace the text: `{{ .Values.nodes }}`, `${NODES}`, `$NODES`."""
    return "{{" in text or text.startswith("$")


def fill_in(text: str) -> str:
    """What to do with that placeholder."""
    return RENDER if "{{" in text else "fill the placeholder in first, with helm template or envsubst"


def _as_kind(value: Any, kind: type) -> str:
    """How to write a value of that type. Most often only the quotes are wrong."""
    if isinstance(value, str) and is_placeholder(value):
        return fill_in(value)
    if kind is str and not isinstance(value, dict | list):
        return f'write "{_short(json.dumps(value))}", in quotes'
    if (kind is int and isinstance(value, str) and value.isdecimal()) or (kind is bool and value in ("true", "false")):
        return f"write {_short(value)}, without quotes"
    return f"write {_KINDS[kind]}"


def _short(text: str) -> str:
    return text if len(text) <= _QUOTE_MAX else f"{text[:_QUOTE_MAX]}…"
