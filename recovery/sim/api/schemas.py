"""Structural schemas (`openAPIV3Schema` of a CRD): pruning, defaulting and validation.

Words, reasons and order of the causes are those of apiextensions-apiserver and kube-openapi of Kubernetes 1.36
(`validation.go`, `schema/{pruning,defaulting,listtype,cel}`). A keyword or rule that is not supported here is refused
when the schema is compiled, so none is silently ignored.

A write shares its unchanged parts with the stored object. The shared parts were completed and validated before, so
both are skipped for them: the write of a status costs only as much as the status. The real server also skips parts that
are merely equal (`CRDValidationRatcheting`). That would matter only if a stored object violated its own schema.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import msgspec

from recovery.sim.api import cel
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.status_error import FieldCause

_KEYWORDS = frozenset(
    {
        *("type", "format", "description", "nullable", "default", "enum", "required"),
        *("minimum", "maximum", "minLength", "maxLength", "pattern"),
        *("minItems", "maxItems", "minProperties", "maxProperties"),
        *("properties", "items", "additionalProperties", "x-kubernetes-validations"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"),
        *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"),
    }
)
_OBJECT_FIELDS = ("apiVersion", "kind", "metadata")
"""Fields of every object that the server itself handles, not the schema."""
_FORMATS_OF_NUMBERS = {"int32": 32, "int64": 64}
_BLOCKING = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
"""Reasons of causes after which the CEL rules are not evaluated, because the object is too broken for them."""
RULES_NOT_ASKED = FieldCause(
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
"""Reported in addition to other causes. It names no field."""
_TIME_OF_DAY = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")

_Limit = Callable[[Any, str], FieldCause | None]
"""Checks one value at a path against a limit."""


class SchemaError(Exception):
    """A schema that cannot be compiled. The message names the path."""


class Schema:
    """The schema of one version of a CRD."""

    def __init__(self, openapi: Mapping[str, Any]) -> None:
        """Compile the schema. Raises SchemaError."""
        own = {name: child for name, child in openapi.get("properties", {}).items() if name not in _OBJECT_FIELDS}
        self._root = _Object({**openapi, "properties": own}, "")

    def complete(self, body: Body, before: Body | None) -> None:
        """Prune unknown fields and nulls and fill in the defaults. Parts shared with `before` are already complete."""
        known = before or {}
        shared = {
            name: value
            for name, value in body.items()
            if name in _OBJECT_FIELDS or (name in known and value is known[name])
        }
        completed = self._root.completed({name: value for name, value in body.items() if name not in shared})
        body.clear()
        body.update({**shared, **completed})

    def causes(self, body: Body, before: Body | None) -> tuple[FieldCause, ...]:
        """What is wrong with a completed object. `before`: the object that it replaces, or None if it is new."""
        causes: list[FieldCause] = []
        self._root.check(body, before, "", causes)
        if before is not None:
            causes = [_of_status(cause) for cause in causes]
        if any(cause.reason in _BLOCKING for cause in causes):
            causes.append(RULES_NOT_ASKED)
        else:
            self._root.ask(body, before, "", causes)
        return tuple(causes)


class _Node(ABC):
    """The schema of one value."""

    def __init__(self, schema: Mapping[str, Any], path: str) -> None:
        if unknown := sorted(schema.keys() - _KEYWORDS):
            raise SchemaError(f"{path or 'the object'}: {', '.join(unknown)} is not known here")
        self.types: tuple[str, ...] = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else ()
        self.types = self.types or ((schema["type"],) if "type" in schema else ())
        self.nullable: bool = schema.get("nullable", False)
        self.rules = tuple(_rules(schema, path))
        self.asks = bool(self.rules)
        """There are CEL rules here or below."""
        self.has_default = "default" in schema
        self.default: Any = None

    def set_default(self, schema: Mapping[str, Any]) -> None:
        """Set the default. Call it when the node is complete: a default is completed like any other value."""
        if self.has_default:
            self.default = self.completed(schema["default"])

    def completed(self, value: Any) -> Any:
        """The pruned and defaulted value: the same object if nothing changes. The given value is never changed."""
        return value

    def check(self, value: Any, before: Any, path: str, causes: list[FieldCause]) -> None:
        """Check types, limits and the uniqueness of list items. `before` None: there is no previous value."""
        if value is before or (value is None and self.nullable):
            return
        found = _type_of(value)
        if not self.types or found in self.types or (found == "integer" and "number" in self.types):
            self.check_value(value, before, path, causes)
        else:
            wanted = ",".join(self.types)
            message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
            causes.append(FieldCause(path, message, "FieldValueTypeInvalid"))

    @abstractmethod
    def check_value(self, value: Any, before: Any, path: str, causes: list[FieldCause]) -> None:
        """Do the checks of `check` for a value of the right type."""

    def ask(self, value: Any, before: Any, path: str, causes: list[FieldCause]) -> None:
        """Evaluate the CEL rules for a value that passed the other checks."""
        if value is None or value is before:
            return
        asked = (rule for rule in self.rules if before is not None or not rule.of_changes)
        causes.extend(_broken(rule, value, path) for rule in asked if not rule.holds(value, before))


class _Scalar(_Node):
    def __init__(self, schema: Mapping[str, Any], path: str) -> None:
        super().__init__(schema, path)
        self._limits = tuple(_limits(schema, path))
        self.set_default(schema)

    def check_value(self, value: Any, before: Any, path: str, causes: list[FieldCause]) -> None:
        causes.extend(cause for limit in self._limits if (cause := limit(value, path)))


class _Array(_Node):
    def __init__(self, schema: Mapping[str, Any], path: str) -> None:
        super().__init__(schema, path)
        self._items = _compiled(schema["items"], f"{path}[]")
        self._least: int | None = schema.get("minItems")
        self._most: int | None = schema.get("maxItems")
        self._list_type: str = schema.get("x-kubernetes-list-type", "atomic")
        self._keys: tuple[str, ...] = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        if self._list_type != "map" and any(rule.of_changes for rule in self._items.rules):
            raise SchemaError(f"{path}[]: items are not compared with what they were, in a list that is no map")
        self.asks |= self._items.asks
        self.set_default(schema)

    def completed(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        items = [self._item(item) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items

    def check_value(self, value: Any, before: Any, path: str, causes: list[FieldCause]) -> None:
        for index, item in enumerate(value):
            self._items.check(item, None, f"{path}[{index}]", causes)
        if self._least is not None and len(value) < self._least:
            causes.append(_invalid(path, len(value), f"{path} in body should have at least {self._least} items"))
        if self._most is not None and len(value) > self._most:
            causes.append(_too_many(path, len(value), self._most))
        if self._list_type == "set" or (self._list_type == "map" and all(isinstance(item, dict) for item in value)):
            causes.extend(self._duplicates(value, path))

    def ask(self, value: Any, before: Any, path: str, causes: list[FieldCause]) -> None:
        if value is before:
            return
        super().ask(value, before, path, causes)
        if self._items.asks:
            known = self._by_key(before)
            for index, item in enumerate(value or ()):
                self._items.ask(item, known.get(self._key(item)), f"{path}[{index}]", causes)

    def _by_key(self, before: Any) -> dict[bytes, Any]:
        """The items before, where the list is a map. In other lists, no item is compared with what it was."""
        return {self._key(item): item for item in before or ()} if self._list_type == "map" else {}

    def _key(self, item: Any) -> bytes:
        keys = {key: item.get(key) for key in self._keys} if isinstance(item, dict) else item
        return msgspec.json.encode(keys, order="deterministic")

    def _item(self, item: Any) -> Any:
        return self._items.default if item is None and not self._items.nullable else self._items.completed(item)

    def _duplicates(self, value: list[Any], path: str) -> Iterator[FieldCause]:
        """One cause for each duplicate value, at its second occurrence."""
        seen: dict[bytes, int] = {}
        for index, item in enumerate(value):
            same = item if self._list_type == "set" else {key: item[key] for key in self._keys if key in item}
            encoded = msgspec.json.encode(same, order="deterministic")
            seen[encoded] = seen.get(encoded, 0) + 1
            if seen[encoded] == 2:
                yield FieldCause(f"{path}[{index}]", f"Duplicate value: {_shown(same)}", "FieldValueDuplicate")


class _Object(_Node):
    def __init__(self, schema: Mapping[str, Any], path: str) -> None:
        super().__init__(schema, path)
        self._properties = {
            name: _compiled(child, f"{path}.{name}".removeprefix("."))
            for name, child in schema.get("properties", {}).items()
        }
        further = schema.get("additionalProperties")
        if isinstance(further, bool):
            raise SchemaError(f"{path}: additionalProperties must be a schema here")
        self._further = None if further is None else _compiled(further, f"{path}.*")
        self._keeps_unknown: bool = schema.get("x-kubernetes-preserve-unknown-fields", False)
        self._required: tuple[str, ...] = tuple(schema.get("required", ()))
        self._least: int | None = schema.get("minProperties")
        self._most: int | None = schema.get("maxProperties")
        self._defaults = {name: child.default for name, child in self._properties.items() if child.has_default}
        self.asks |= any(child.asks for child in self._properties.values())
        self.asks |= self._further is not None and self._further.asks
        self.set_default(schema)

    def completed(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        completed: Body = {}
        same = True
        for name, child in value.items():
            node = self._properties.get(name, self._further)
            if node is None:
                if self._keeps_unknown:
                    completed[name] = child
            elif child is None and not node.nullable:
                if node.has_default:
                    completed[name] = node.default
            else:
                completed[name] = node.completed(child)
            same = same and completed.get(name) is child
        for name, default in self._defaults.items():
            if name not in completed:
                completed[name] = default
        return value if same and len(completed) == len(value) else completed

    def check_value(self, value: Any, before: Any, path: str, causes: list[FieldCause]) -> None:
        if self._least is not None and len(value) < self._least:
            causes.append(_invalid(path, len(value), f"{path} in body should have at least {self._least} properties"))
        if self._most is not None and len(value) > self._most:
            causes.append(_too_many(path, len(value), self._most))
        known = before if isinstance(before, dict) else {}
        for name, child in value.items():
            node = self._properties.get(name, self._further)
            if node is not None:
                node.check(child, known.get(name), f"{path}.{name}" if path else name, causes)
        missing = (f"{path}.{name}" if path else name for name in self._required if name not in value)
        causes.extend(FieldCause(field, "Required value", "FieldValueRequired") for field in missing)

    def ask(self, value: Any, before: Any, path: str, causes: list[FieldCause]) -> None:
        if value is before:
            return
        super().ask(value, before, path, causes)
        known = before if isinstance(before, dict) else {}
        for name, child in (value or {}).items():
            own = self._properties.get(name)
            node = own or self._further
            if node is not None and node.asks:
                inner = f"{path}[{name}]" if own is None else f"{path}.{name}" if path else name
                node.ask(child, known.get(name), inner, causes)


def _compiled(schema: Mapping[str, Any], path: str) -> _Node:
    match schema.get("type"):
        case "object":
            return _Object(schema, path)
        case "array":
            return _Array(schema, path)
        case "string" | "boolean" | "integer" | "number":
            return _Scalar(schema, path)
    if schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields"):
        return _Scalar(schema, path)
    raise SchemaError(f"{path}: no type that is known here: {schema.get('type')}")


def _rules(schema: Mapping[str, Any], path: str) -> Iterator[cel.CelRule]:
    for said in schema.get("x-kubernetes-validations", ()):
        try:
            rule = cel.compiled(said)
        except cel.UnknownRuleError as error:
            raise SchemaError(f"{path or 'the object'}: {error}") from error
        if rule.of_changes and ("[]." in path or "*" in path):
            raise SchemaError(f"{path}: parts of items are not compared with what they were: {said['rule']}")
        yield rule


def _limits(schema: Mapping[str, Any], path: str) -> Iterator[_Limit]:
    """The limits in the order of kube-openapi's validators: string, format, number, enum."""
    if {"maxLength", "minLength", "pattern"} & schema.keys():
        yield _limit_of_text(schema)
    if name := schema.get("format"):
        if name == "date-time":
            yield _date_time
        elif name in _FORMATS_OF_NUMBERS:
            yield _range(schema["type"], name)
        else:
            raise SchemaError(f"{path}: no format that is known here: {name}")
    if "minimum" in schema:
        yield _bound(lambda value, least: bool(value < least), schema["minimum"], "greater than or equal to")
    if "maximum" in schema:
        yield _bound(lambda value, most: bool(value > most), schema["maximum"], "less than or equal to")
    if "enum" in schema:
        yield _one_of(schema["enum"])


def _limit_of_text(schema: Mapping[str, Any]) -> _Limit:
    """Checks maxLength, minLength and pattern, and reports only the first violation."""
    most, least = schema.get("maxLength"), schema.get("minLength", 0)
    pattern = schema.get("pattern", "")
    search = cel.expression(pattern).search

    def limit(value: Any, path: str) -> FieldCause | None:
        if not isinstance(value, str):
            return None
        if most is not None and len(value) > most:
            unit = "byte" if most == 1 else "bytes"
            return FieldCause(path, f"Too long: may not be more than {most} {unit}", "FieldValueTooLong")
        if len(value) < least:
            return _invalid(path, value, f"{path} in body should be at least {least} chars long")
        if not search(value):
            return _invalid(path, value, f"{path} in body should match '{pattern}'")
        return None

    return limit


def _date_time(value: Any, path: str) -> FieldCause | None:
    if _is_date_time(value):
        return None
    shown = _shown(value)
    message = f"Invalid value: {shown}: {path} in body must be of type date-time: {shown}"
    return FieldCause(path, message, "FieldValueTypeInvalid")


def _is_date_time(text: str) -> bool:
    day, _, time = text.lower().partition("t")
    found = _TIME_OF_DAY.fullmatch(time)
    if found is None or found[1] > "23" or found[2] > "59" or found[3] > "59" or len(day) != len("2026-11-02"):
        return False
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _range(kind: str, name: str) -> _Limit:
    bound = 2 ** (_FORMATS_OF_NUMBERS[name] - 1)

    def limit(value: Any, path: str) -> FieldCause | None:
        if isinstance(value, str) or -bound <= value < bound:
            return None
        # The API server names no field here.
        return FieldCause(
            "<nil>", f'Invalid value: "": Checked value must be of type {kind} with format {name} in {path}'
        )

    return limit


def _bound(beyond: Callable[[Any, Any], bool], bound: Any, words: str) -> _Limit:
    def limit(value: Any, path: str) -> FieldCause | None:
        if isinstance(value, str) or not beyond(value, bound):
            return None
        return _invalid(path, value, f"{path} in body should be {words} {_shown(bound)}")

    return limit


def _one_of(values: Iterable[Any]) -> _Limit:
    known = tuple(values)
    supported = ", ".join(_shown(value if isinstance(value, str) else _shown(value)) for value in known)

    def limit(value: Any, path: str) -> FieldCause | None:
        if value in known:
            return None
        message = f"Unsupported value: {_shown(value)}: supported values: {supported}"
        return FieldCause(path, message, "FieldValueNotSupported")

    return limit


def _of_status(cause: FieldCause) -> FieldCause:
    """The cause as an update of /status reports it: its message gives the path without the leading `status`."""
    if not cause.field.startswith("status."):
        return cause
    message = cause.message.replace(f" {cause.field} in body", f" {cause.field.removeprefix('status.')} in body")
    return replace(cause, message=message)


def _broken(rule: cel.CelRule, value: Any, path: str) -> FieldCause:
    field = ".".join(part for part in (path, rule.culprit) if part) or "<nil>"
    match rule.reason:
        case "FieldValueForbidden":
            return FieldCause(field, f"Forbidden: {rule.message}", rule.reason)
        case "FieldValueRequired":
            return FieldCause(field, f"Required value: {rule.message}", rule.reason)
    shown = "" if isinstance(value, dict | list) else f": {_shown(value)}"
    words = "Duplicate value" if rule.reason == "FieldValueDuplicate" else "Invalid value"
    # The cause of a duplicate names the value without the rule's message.
    return FieldCause(field, f"{words}{shown}" + (f": {rule.message}" if words == "Invalid value" else ""), rule.reason)


def _invalid(path: str, value: Any, why: str) -> FieldCause:
    return FieldCause(path, f"Invalid value: {_shown(value)}: {why}")


def _too_many(path: str, count: int, most: int) -> FieldCause:
    unit = "item" if most == 1 else "items"
    return FieldCause(path, f"Too many: {count}: must have at most {most} {unit}", "FieldValueTooMany")


def _shown(value: Any) -> str:
    """The value as Go prints it in a message: strings quoted, whole numbers without a fraction, the rest as JSON."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return msgspec.json.encode(value, order="sorted").decode()


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case list():
            return "array"
    return "object"
