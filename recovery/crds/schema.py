"""A struct of `recovery.core` as an OpenAPI v3 schema, completed by an `Overlay`."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from recovery.crds import docstrings

Schema: TypeAlias = dict[str, Any]

RULES = "x-kubernetes-validations"

_ORDER = (
    *("type", "format", "description", "nullable", "default", "enum", "required"),
    *("minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "maxProperties"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", RULES, "properties", "items", "additionalProperties"),
)


class GeneratorError(Exception):
    """The data of this package does not fit the structs. The message names the path."""


class Overlay(msgspec.Struct, frozen=True):
    """What a schema has in addition to its struct, by path. `[]` stands for the items of a list, `.*` for the values of
    a map."""

    says: Mapping[str, Schema] = {}
    """Keywords that are added to those of the field, or replace them."""
    further_values: Mapping[str, tuple[str, ...]] = {}
    """Values of enums that a later controller may write. An older CRD must not refuse a newer ledger for them."""
    defaults: frozenset[str] | None = None
    """The fields whose default the API server fills in. None: all fields with a default."""


def of_struct(struct: type[msgspec.Struct], path: str, overlay: Overlay) -> Schema:
    """The schema of the encoded struct. Raises GeneratorError if no field has a path of the overlay."""
    builder = _Builder(overlay)
    schema = builder.completed(builder.struct(struct, path), path)
    builder.complain_of_the_rest()
    return schema


def ordered(schema: Schema) -> Schema:
    """The same schema with its keywords in reading order, at every level."""
    unknown = schema.keys() - set(_ORDER)
    if unknown:
        raise GeneratorError(f"{schema.get('description', '')!r}: no keywords of a schema: {sorted(unknown)}")
    found = {key: schema[key] for key in _ORDER if key in schema}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = ordered(found[key])
    if "properties" in found:
        found["properties"] = {name: ordered(child) for name, child in found["properties"].items()}
    return found


class _Builder:
    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._used: set[str] = set()

    def complain_of_the_rest(self) -> None:
        overlay = self._overlay
        wanted = {*overlay.says, *overlay.further_values, *(overlay.defaults or ())}
        if missing := sorted(wanted - self._used):
            raise GeneratorError(f"no struct has the field {', '.join(missing)}")

    def struct(self, struct: type[msgspec.Struct], path: str) -> Schema:
        said = docstrings.of_fields(struct)
        info = inspect.type_info(struct)
        assert isinstance(info, inspect.StructType)
        properties: dict[str, Schema] = {}
        for field in info.fields:
            properties[field.encode_name] = self._field(field, said.get(field.name, ""), f"{path}.{field.encode_name}")
        required = [field.encode_name for field in info.fields if field.required]
        schema: Schema = {"type": "object", "description": docstrings.of_type(struct), "properties": properties}
        if required:
            schema["required"] = required
        return schema

    def _field(self, field: inspect.Field, said: str, path: str) -> Schema:
        info, optional = _without_none(field.type)
        schema = self._type(info, path)
        if said:
            # None in Python is an absent field in the object.
            schema["description"] = said.replace("None: ", "Absent: ") if optional else said
        given = self._overlay.defaults
        default = _plain_default(field, schema)
        if default is not None and (given is None or path in given):
            schema["default"] = default
        return self.completed(schema, path)

    def _type(self, info: inspect.Type, path: str) -> Schema:
        match info:
            case inspect.StructType(cls=cls):
                return self.struct(cls, path)
            case inspect.DictType(value_type=value):
                inner = self.completed(self._type(value, f"{path}.*"), f"{path}.*")
                return {"type": "object", "additionalProperties": inner}
            case inspect.VarTupleType(item_type=item):
                items = self.completed(self._type(item, f"{path}[]"), f"{path}[]")
                schema = {"type": "array", "x-kubernetes-list-type": "atomic", "items": items}
                return schema | ({"description": items.pop("description")} if "description" in items else {})
            case inspect.EnumType(cls=cls):
                return self._words(cls, path)
            case inspect.DateTimeType():
                return {"type": "string", "format": "date-time"}
            case inspect.IntType():
                return {"type": "integer", "format": "int64"}
            case inspect.FloatType():
                return {"type": "number"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case inspect.StrType():
                return {"type": "string"}
        raise GeneratorError(f"{path}: no schema for {info}")

    def _words(self, enum: type[Enum], path: str) -> Schema:
        further = self._overlay.further_values.get(path, ())
        known = [member.value for member in enum]
        if built := sorted(set(known) & set(further)):
            raise GeneratorError(f"{path}: {', '.join(built)} is built: no longer one of the further values")
        if _open(enum):
            return {"type": "string"}
        return {"type": "string", "description": docstrings.of_type(enum), "enum": [*known, *further]}

    def completed(self, schema: Schema, path: str) -> Schema:
        """The schema with the keywords of the overlay. CEL rules are added to those that it has."""
        self._used.add(path)
        said = self._overlay.says.get(path, {})
        rules = [*schema.get(RULES, []), *said.get(RULES, [])]
        return schema | said | ({RULES: rules} if rules else {})


def _open(enum: type[Enum]) -> bool:
    """The enum accepts unknown values, which a newer controller may write. No CRD may refuse them."""
    return "_missing_" in vars(enum)


def _without_none(info: inspect.Type) -> tuple[inspect.Type, bool]:
    """The type X of `X | None`, and whether None is allowed."""
    if not isinstance(info, inspect.UnionType):
        return info, False
    [meant] = [member for member in info.types if not isinstance(member, inspect.NoneType)]
    return meant, True


def _plain_default(field: inspect.Field, schema: Schema) -> object:
    """The default as written in a manifest. An object whose fields have defaults is `{}`. None: there is no default."""
    if isinstance(field.default, msgspec.Struct):
        return {} if any("default" in child for child in schema["properties"].values()) else None
    if field.default is msgspec.NODEFAULT or field.default in (None, "", ()):
        return None
    if isinstance(field.default, float) and field.default.is_integer():
        return int(field.default)
    return field.default.value if isinstance(field.default, Enum) else field.default
