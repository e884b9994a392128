"""Reading what a user wrote, field by field: the value if it is of the right kind, a finding if it is not.

Nothing is raised, so that everything that is wrong in a document is told at once. Of a field that is wrong the reader
gives what it would give if the field were missing.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from recovery.launch.findings import Code, Finding, Severity
from recovery.launch.places import Place, written
from recovery.launch.quantity import QuantityError, parse

WRONG_TYPE = Code("wrong-type", Severity.ERROR, "a field holds a value of another kind")
BAD_QUANTITY = Code("bad-quantity", Severity.ERROR, "a resource quantity cannot be read, or is negative")
UNKNOWN_FIELD = Code("unknown-field", Severity.ERROR, "the API has no such field")
CODES = (WRONG_TYPE, BAD_QUANTITY, UNKNOWN_FIELD)

_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}


class Field:
    """A field of a document, there or not, and those below it."""

    def __init__(self, value: Any, place: Place, found: list[Finding]) -> None:
        self.value = value
        """None: it is missing, or null."""
        self.place = place
        self._found = found

    def __getitem__(self, name: str) -> "Field":
        """The field of that name below; one that is missing is at the place of this one, its nearest parent."""
        below = self.mapping().get(name)
        return Field(below, self.place / name if below is not None else self.place, self._found)

    @property
    def there(self) -> bool:
        return self.value is not None

    def mapping(self) -> dict[str, Any]:
        """Empty: missing, or no object."""
        return self.value if self._is(dict) else {}

    def items(self) -> Iterator["Field"]:
        """Of a list."""
        for number, item in enumerate(self.value if self._is(list) else ()):
            yield Field(item, self.place / number, self._found)

    def fields(self) -> Iterator[tuple[str, "Field"]]:
        """Of an object, by name."""
        for name, value in self.mapping().items():
            yield str(name), Field(value, self.place / str(name), self._found)

    def text(self, default: str = "") -> str:
        return self.value if self._is(str) else default

    def texts(self) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(item.text() for item in self.items())

    def flag(self) -> bool | None:
        return self.value if self._is(bool) else None

    def whole(self) -> int | None:
        """A whole number; YAML's `8`, not `"8"` nor `8.0`, as the API server has it."""
        return self.value if self._is(int) else None

    def quantity(self) -> Decimal | None:
        if self.value is None:
            return None
        try:
            value = parse(self.value)
        except QuantityError as error:
            self.finding(
                BAD_QUANTITY, f"{self.value!r} {error}", "write a whole number, or one with a suffix: 8, 1500m, 64Gi"
            )
            return None
        if value < 0:
            self.finding(BAD_QUANTITY, f"{self.value!r} is negative", "write 0 or more")
            return None
        return value

    def only(self, *names: str, mend: str = "") -> None:
        """Say of every field that is not among these that the API has none such. `mend`: what to do about it."""
        for name, field in self.fields():
            if name not in names:
                near = mend or f"remove it; known here are {', '.join(sorted(names))}"
                field.finding(UNKNOWN_FIELD, f"there is no field {written(field.place.path)}", near)

    def finding(self, code: Code, message: str, mend: str) -> None:
        """Something is wrong with this field."""
        self._found.append(Finding(code, self.place, message, mend))

    def _is(self, kind: type) -> bool:
        if self.value is None:
            return False
        if isinstance(self.value, kind) and not (kind is int and isinstance(self.value, bool)):
            return True
        is_now = next(
            (words for known, words in _KINDS.items() if type(self.value) is known), type(self.value).__name__
        )
        name = written(self.place.path) or "the document"
        self.finding(WRONG_TYPE, f"{name} is {is_now} where {_KINDS[kind]} is wanted", f"write {_KINDS[kind]}")
        return False
