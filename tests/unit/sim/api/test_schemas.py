"""Structural schemas: what a write becomes before it is stored, and how an invalid write is refused."""

from typing import Any

import pytest

from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.schemas import Schema, SchemaError
from recovery.sim.api.status_error import FieldCause


def schema_of(**properties: Any) -> Schema:
    """An object whose spec has these properties."""
    spec = {"type": "object", "properties": properties}
    return Schema({"type": "object", "properties": {"metadata": {"type": "object"}, "spec": spec}})


def completed(schema: Schema, spec: Any, before: Body | None = None) -> Any:
    body: Body = {"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": spec}
    schema.complete(body, before)
    assert body["metadata"] == {"name": "a", "labels": {"b": "c"}}
    return body.get("spec")


def causes(schema: Schema, spec: Any, before: Any = None) -> tuple[FieldCause, ...]:
    """The causes to refuse a spec that replaces `before`. None: the object is new."""
    return schema.causes({"spec": spec}, None if before is None else {"spec": before})


def cause(schema: Schema, spec: Any, before: Any = None) -> FieldCause:
    [only] = causes(schema, spec, before)
    return only


# What a write becomes before it is stored.


def test_unknown_fields_are_pruned_at_every_depth() -> None:
    schema = schema_of(
        a={"type": "string"},
        items={"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
        map={"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {"type": "string"}}}},
    )
    spec = {"a": "1", "x": 1, "items": [{"b": "2", "y": 2}], "map": {"any": {"c": "3", "z": 3}}}
    assert completed(schema, spec) == {"a": "1", "items": [{"b": "2"}], "map": {"any": {"c": "3"}}}


def test_an_object_that_preserves_unknown_fields_is_pruned_only_in_those_it_knows() -> None:
    known = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = schema_of(
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": known}}
    )
    assert completed(schema, {"free": {"known": {"a": "1", "x": 1}, "other": {"y": 2}}}) == {
        "free": {"known": {"a": "1"}, "other": {"y": 2}}
    }


def test_defaults_are_filled_in_also_within_objects_that_are_defaults_themselves() -> None:
    schema = schema_of(
        budget={
            "type": "object",
            "default": {},
            "properties": {"limit": {"type": "integer", "default": 10}, "window": {"type": "string"}},
        },
        list={"type": "array", "items": {"type": "object", "properties": {"on": {"type": "boolean", "default": True}}}},
        optional={"type": "object", "properties": {"never": {"type": "string", "default": "there"}}},
    )
    assert completed(schema, {"list": [{}]}) == {"budget": {"limit": 10}, "list": [{"on": True}]}
    assert completed(schema, {"budget": {"window": "1h"}}) == {"budget": {"limit": 10, "window": "1h"}}


def test_null_means_absent_unless_the_field_may_be_null() -> None:
    schema = schema_of(
        grace={"type": "integer", "nullable": True},
        plain={"type": "integer"},
        mode={"type": "string", "default": "Observe"},
    )
    assert completed(schema, {"grace": None, "plain": None, "mode": None}) == {"grace": None, "mode": "Observe"}


def test_null_means_absent_at_the_top_of_an_object_that_is_new() -> None:
    body: Body = {"metadata": {}, "spec": None}
    schema_of(plain={"type": "integer"}).complete(body, None)
    assert body == {"metadata": {}}


def test_what_is_shared_with_others_is_never_changed() -> None:
    schema = schema_of(budget={"type": "object", "properties": {"limit": {"type": "integer", "default": 10}}})
    template: Body = {"budget": {"x": 1}}
    assert completed(schema, template) == {"budget": {"limit": 10}}
    assert template == {"budget": {"x": 1}}


def test_what_is_already_complete_stays_the_same_object() -> None:
    schema = schema_of(list={"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}})
    body: Body = {"metadata": {}, "spec": {"list": [{"a": "1"}]}}
    inner = body["spec"]
    schema.complete(body, None)
    assert body["spec"] is inner


def test_what_an_update_shares_with_the_stored_object_is_neither_completed_nor_checked_again() -> None:
    old: Body = {"metadata": {}, "spec": {"mode": "of an older schema"}}
    schema = schema_of(mode={"type": "string", "enum": ["Observe"]}, more={"type": "string", "default": "x"})
    body: Body = {"metadata": {"labels": {}}, "spec": old["spec"]}
    schema.complete(body, old)
    assert body["spec"] == {"mode": "of an older schema"}
    assert schema.causes(body, old) == ()


# Which writes are refused, and in which words.

NUMBER = {"type": "number", "minimum": 1, "maximum": 2.5}
LIST = {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}}
MAP = {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}}

WRONG: dict[str, tuple[Body, Any, str, str]] = {
    "enum": (
        {"type": "string", "enum": ["Observe", "Enforce"]},
        "X",
        'Unsupported value: "X": supported values: "Observe", "Enforce"',
        "FieldValueNotSupported",
    ),
    "enum of numbers": (
        {"type": "integer", "enum": [1, 2]},
        3,
        'Unsupported value: 3: supported values: "1", "2"',
        "FieldValueNotSupported",
    ),
    "text for a number": (
        {"type": "integer"},
        "ten",
        'Invalid value: "string": spec.f in body must be of type integer: "string"',
        "FieldValueTypeInvalid",
    ),
    "switch for a number": (
        {"type": "integer"},
        True,
        'Invalid value: "boolean": spec.f in body must be of type integer: "boolean"',
        "FieldValueTypeInvalid",
    ),
    "fraction for a whole number": (
        {"type": "integer"},
        1.5,
        'Invalid value: "number": spec.f in body must be of type integer: "number"',
        "FieldValueTypeInvalid",
    ),
    "list for an object": (
        MAP,
        [],
        'Invalid value: "array": spec.f in body must be of type object: "array"',
        "FieldValueTypeInvalid",
    ),
    "object for a list": (
        LIST,
        {},
        'Invalid value: "object": spec.f in body must be of type array: "object"',
        "FieldValueTypeInvalid",
    ),
    "switch for a number or text": (
        {"x-kubernetes-int-or-string": True},
        False,
        'Invalid value: "boolean": spec.f in body must be of type integer,string: "boolean"',
        "FieldValueTypeInvalid",
    ),
    "too small": (
        NUMBER,
        0.5,
        "Invalid value: 0.5: spec.f in body should be greater than or equal to 1",
        "FieldValueInvalid",
    ),
    "too large": (
        NUMBER,
        3,
        "Invalid value: 3: spec.f in body should be less than or equal to 2.5",
        "FieldValueInvalid",
    ),
    "too long": (
        {"type": "string", "maxLength": 3},
        "four",
        "Too long: may not be more than 3 bytes",
        "FieldValueTooLong",
    ),
    "too short": (
        {"type": "string", "minLength": 2},
        "1",
        'Invalid value: "1": spec.f in body should be at least 2 chars long',
        "FieldValueInvalid",
    ),
    "pattern": (
        {"type": "string", "pattern": "^a+$"},
        "aa\n",
        "Invalid value: \"aa\\n\": spec.f in body should match '^a+$'",
        "FieldValueInvalid",
    ),
    "no time": (
        {"type": "string", "format": "date-time"},
        "2026-02-30T00:00:00Z",
        'Invalid value: "2026-02-30T00:00:00Z": spec.f in body must be of type date-time: "2026-02-30T00:00:00Z"',
        "FieldValueTypeInvalid",
    ),
    "too few items": (
        LIST,
        [],
        "Invalid value: 0: spec.f in body should have at least 1 items",
        "FieldValueInvalid",
    ),
    "too many items": (LIST, ["a", "b", "c"], "Too many: 3: must have at most 2 items", "FieldValueTooMany"),
    "too few properties": (
        MAP,
        {},
        "Invalid value: 0: spec.f in body should have at least 1 properties",
        "FieldValueInvalid",
    ),
    "too many properties": (
        MAP,
        {"a": 1, "b": 2, "c": 3},
        "Too many: 3: must have at most 2 items",
        "FieldValueTooMany",
    ),
}


@pytest.mark.parametrize(("schema", "value", "message", "reason"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_refused_in_the_servers_words(schema: Body, value: Any, message: str, reason: str) -> None:
    found = causes(schema_of(f=schema), {"f": value})
    assert found[0] == FieldCause("spec.f", message, reason)
    later = {"FieldValueTypeInvalid", "FieldValueNotSupported", "FieldValueTooLong", "FieldValueTooMany"}
    assert len(found) == (2 if reason in later else 1)


RIGHT: dict[str, tuple[Body, Any]] = {
    "whole number as a number": (NUMBER, 2),
    "1.0 as a whole number": ({"type": "integer", "format": "int32"}, 1.0),
    "time": ({"type": "string", "format": "date-time"}, "2026-11-02T08:00:00.123456Z"),
    "time with an offset": ({"type": "string", "format": "date-time"}, "2026-11-02T08:00:00+01:00"),
    "number of either": ({"x-kubernetes-int-or-string": True, "maximum": 5}, 5),
    "text of either": ({"x-kubernetes-int-or-string": True, "maximum": 5}, "50%"),
    "null where it may be": ({"type": "integer", "nullable": True, "minimum": 1}, None),
    "a list twice the same": ({"type": "array", "items": {"type": "string"}}, ["a", "a"]),
    "letters, not bytes": ({"type": "string", "maxLength": 3}, "äöü"),
}


@pytest.mark.parametrize(("schema", "value"), RIGHT.values(), ids=RIGHT.keys())
def test_a_right_value_is_accepted(schema: Body, value: Any) -> None:
    assert causes(schema_of(f=schema), {"f": value}) == ()


def test_a_number_beyond_its_format_names_no_field() -> None:
    assert cause(schema_of(f={"type": "integer", "format": "int32"}), {"f": 2**31}) == FieldCause(
        "<nil>", 'Invalid value: "": Checked value must be of type integer with format int32 in spec.f'
    )


def test_a_missing_field_is_named_where_it_should_be() -> None:
    schema = Schema({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object"}}})
    found = schema.causes({"metadata": {}}, None)
    assert found[0] == FieldCause("spec", "Required value", "FieldValueRequired")
    items = {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {}}}
    assert causes(schema_of(f=items), {"f": [{}]})[0].field == "spec.f[0].name"


def test_an_item_of_a_list_and_a_value_of_a_map_are_named() -> None:
    assert cause(schema_of(f={"type": "array", "items": NUMBER}), {"f": [1, 0]}).field == "spec.f[1]"
    assert cause(schema_of(f={"type": "object", "additionalProperties": NUMBER}), {"f": {"k": 0}}).field == "spec.f.k"


def test_a_set_holds_each_value_once() -> None:
    schema = schema_of(f={"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}})
    assert cause(schema, {"f": ["a", "b", "a", "a"]}) == FieldCause(
        "spec.f[2]", 'Duplicate value: "a"', "FieldValueDuplicate"
    )


def test_a_list_that_is_a_map_holds_each_key_once() -> None:
    conditions = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}},
    }
    twice = [{"type": "A", "status": "True"}, {"type": "B"}, {"type": "A", "status": "False"}]
    assert cause(schema_of(f=conditions), {"f": twice}) == FieldCause(
        "spec.f[2]", 'Duplicate value: {"type":"A"}', "FieldValueDuplicate"
    )


def test_what_a_write_of_the_status_gets_wrong_is_worded_from_the_status_on() -> None:
    # A real server's answer: tests/unit/kube/fixtures/answers.json, json-invalid-result.
    status = {"type": "object", "properties": {"epoch": {"type": "integer"}}}
    schema = Schema({"type": "object", "properties": {"status": status}})
    found = schema.causes({"status": {"epoch": "1"}}, {"status": {"epoch": 1}})
    assert found[0] == FieldCause(
        "status.epoch",
        'Invalid value: "string": epoch in body must be of type integer: "string"',
        "FieldValueTypeInvalid",
    )


# Rules.


def ruled(rule: str, schema: Body | None = None, **more: str) -> Schema:
    """A spec whose field `f` has the rule. Without a schema, `f` is an object of anything."""
    schema = schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    said = {"rule": rule, "message": "so it is", **more}
    return schema_of(f={**schema, "x-kubernetes-validations": [said]})


DURATION = "^([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$"
IN_ORDER = (
    f"!has(self.a) || !has(self.b) || ![self.a, self.b].all(text, text.matches('{DURATION}')) "
    "|| duration(self.a) <= duration(self.b)"
)
STRING: Body = {"type": "string"}
WITHIN = f"!self.matches('{DURATION}') || duration(self) <= duration('30s')"

HOLD_AND_BREAK: dict[str, tuple[str, Body | None, Any, Any]] = {
    "has not": ("!has(self.rules)", None, {"other": 1}, {"rules": []}),
    "is not": ("self != 'Shrink'", STRING, "Ignore", "Shrink"),
    "sorted": ("self.isSorted()", {"type": "array", "items": {"type": "integer"}}, [1, 2, 2], [2, 1]),
    "each once": (
        "self.all(rule, self.exists_one(other, other.name == rule.name))",
        {"type": "array", "items": {"type": "object", "properties": {"name": STRING}}},
        [{"name": "a"}, {"name": "b"}],
        [{"name": "a"}, {"name": "b"}, {"name": "a"}],
    ),
    "not in a list": (
        "self.operator != 'In' || !(0 in self.values)",
        None,
        {"operator": "NotIn", "values": [0]},
        {"operator": "In", "values": [0, 1]},
    ),
    "an expression": ("''.matches(self) ? true : true", STRING, "^(a|b)+$", "(?=a)"),
    "a duration within": (WITHIN, STRING, "30s", "30s1ms"),
    "no duration within": (WITHIN, STRING, "1 day", "1h"),
    "matches": ("self.matches('^[0-9]+s$')", STRING, "10s", "10s\n"),
    "does not match": ("!self.matches('^[0hms]*$')", STRING, "1s", "0s"),
    "keys": (
        "self.all(key, key.matches('^[a-z]+$'))",
        {"type": "object", "additionalProperties": STRING},
        {"a": "B"},
        {"a": "b", "A": "b"},
    ),
    "two numbers": ("self.least <= self.most", None, {"least": 1, "most": 1}, {"least": 2, "most": 1}),
    "two durations": (IN_ORDER, None, {"a": "1m30s", "b": "90s"}, {"a": "1m30s", "b": "89999ms"}),
    "a duration that is none": (IN_ORDER, None, {"a": "1 day", "b": "1s"}, {"a": "1h", "b": "1s"}),
}


@pytest.mark.parametrize(("rule", "schema", "right", "wrong"), HOLD_AND_BREAK.values(), ids=HOLD_AND_BREAK.keys())
def test_a_rule_that_does_not_hold_is_told_in_its_own_words(
    rule: str, schema: Body | None, right: Any, wrong: Any
) -> None:
    assert causes(ruled(rule, schema), {"f": right}) == ()
    found = cause(ruled(rule, schema), {"f": wrong})
    assert found.field == "spec.f"
    assert found.message.startswith("Invalid value")
    assert found.message.endswith(": so it is")


def test_the_name_of_an_object_is_ruled_from_the_top() -> None:
    said = {"rule": "self.metadata.name == 'default'", "message": "there is one"}
    schema = Schema({"type": "object", "properties": {}, "x-kubernetes-validations": [said]})
    assert schema.causes({"metadata": {"name": "default"}}, None) == ()
    assert schema.causes({"metadata": {"name": "b"}}, None) == (FieldCause("<nil>", "Invalid value: there is one"),)


def test_a_rule_about_change_is_asked_only_where_there_is_something_before() -> None:
    schema = ruled("self == oldSelf")
    assert causes(schema, {"f": {"a": 1}}) == ()
    assert causes(schema, {"f": {"a": 1}}, {"f": {"a": 1}}) == ()
    assert cause(schema, {"f": {"a": 2}}, {"f": {"a": 1}}) == FieldCause("spec.f", "Invalid value: so it is")


def test_a_rule_names_its_culprit_and_its_reason() -> None:
    schema = ruled("!has(self.rules)", fieldPath=".rules", reason="FieldValueForbidden")
    assert cause(schema, {"f": {"rules": []}}) == FieldCause(
        "spec.f.rules", "Forbidden: so it is", "FieldValueForbidden"
    )


def test_a_text_that_breaks_a_rule_is_shown() -> None:
    assert cause(ruled("self.matches('^[0-9]+s$')", STRING), {"f": "7d"}).message == 'Invalid value: "7d": so it is'


def test_rules_below_a_list_are_asked_of_every_item() -> None:
    item = {"type": "string", "x-kubernetes-validations": [{"rule": "self.matches('^a')", "message": "no"}]}
    found = causes(schema_of(f={"type": "array", "items": item}), {"f": ["a", "b", "c"]})
    assert [each.field for each in found] == ["spec.f[1]", "spec.f[2]"]


def test_no_rule_is_asked_of_an_object_that_is_wrong_otherwise() -> None:
    schema = schema_of(
        f={"type": "string", "enum": ["a"]},
        g={"type": "string", "x-kubernetes-validations": [{"rule": "self.matches('^a')", "message": "no"}]},
    )
    assert [each.field for each in causes(schema, {"f": "b", "g": "b"})] == ["spec.f", "<nil>"]


# Schemas that are not supported.


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "multipleOf": 3}, "spec.f: multipleOf is not known here"),
        ({"type": "string", "format": "email"}, "spec.f: no format that is known here: email"),
        ({"type": "null"}, "spec.f: no type that is known here: null"),
        ({"type": "object", "additionalProperties": True}, "spec.f: additionalProperties must be a schema here"),
    ],
)
def test_a_keyword_that_means_nothing_here_is_refused_when_the_schema_is_compiled(schema: Body, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        schema_of(f=schema)


def test_a_rule_that_cannot_be_evaluated_is_refused() -> None:
    said = {"rule": "size(self) < 3", "message": "too many"}
    openapi = {"type": "object", "x-kubernetes-validations": [said]}
    with pytest.raises(SchemaError, match=r"no shape of a rule that is evaluated here: size\(self\) < 3"):
        Schema(openapi)


def test_a_rule_about_change_is_refused_where_items_are_not_compared() -> None:
    item = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "no"}]}
    with pytest.raises(SchemaError, match="not compared with what they were"):
        schema_of(f={"type": "array", "items": item})
