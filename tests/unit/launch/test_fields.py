"""Reading a field returns its value, or reports a finding and returns what a missing field would give."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from recovery.launch.fields import Field
from recovery.launch.findings import LintFinding
from recovery.launch.places import Place


def fields(**values: Any) -> tuple[Field, list[LintFinding]]:
    """A document with these fields, and the list that receives its findings."""
    found: list[LintFinding] = []
    return Field(values, Place(0), found), found


@pytest.mark.parametrize(
    ("value", "read", "result", "message", "fix"),
    [
        (8, Field.text, "", "it is the number 8 where a string is wanted", 'write "8", in quotes'),
        (True, Field.text, "", "it is the boolean true where a string is wanted", 'write "true", in quotes'),
        ("8", Field.whole, None, 'it is the string "8" where a whole number is wanted', "write 8, without quotes"),
        ("eight", Field.whole, None, 'it is the string "eight" where a whole number is wanted', "write a whole number"),
        (8.5, Field.whole, None, "it is the number 8.5 where a whole number is wanted", "write a whole number"),
        (True, Field.whole, None, "it is the boolean true where a whole number is wanted", "write a whole number"),
        (
            "true",
            Field.flag,
            None,
            'it is the string "true" where true or false is wanted',
            "write true, without quotes",
        ),
        (1, Field.flag, None, "it is the number 1 where true or false is wanted", "write true or false"),
        ([], Field.mapping, {}, "it is a list where an object is wanted", "write an object"),
        ({}, Field.texts, (), "it is an object where a list is wanted", "write a list"),
        ("x" * 90, Field.texts, (), f'it is the string "{"x" * 59}… where a list is wanted', "write a list"),
    ],
)
def test_a_value_of_another_kind_is_told_and_read_as_missing(
    value: object, read: Callable[[Field], Any], result: object, message: str, fix: str
) -> None:
    document, found = fields(it=value)

    assert read(document["it"]) == result
    assert [(each.code.name, each.place.path, each.message, each.fix) for each in found] == [
        ("wrong-type", ("it",), message, fix)
    ]


@pytest.mark.parametrize(
    ("read", "result"),
    [
        (Field.text, ""),
        (Field.whole, None),
        (Field.flag, None),
        (Field.mapping, {}),
        (Field.texts, ()),
        (Field.quantity, None),
    ],
)
@pytest.mark.parametrize("written", [{}, {"it": None}])
def test_what_is_missing_or_null_is_no_mistake(
    read: Callable[[Field], Any], result: object, written: dict[str, object]
) -> None:
    document, found = fields(**written)

    assert read(document["it"]) == result
    assert (document["it"].there, found) == (False, [])


def test_a_missing_field_is_at_its_nearest_parent_that_is_there() -> None:
    document, _ = fields(spec={"trainer": {}})

    assert document["spec"]["trainer"]["env"]["value"].place == Place(0, ("spec", "trainer"))


def test_items_and_fields_know_where_they_stand() -> None:
    document, _ = fields(env=[{"name": "A"}], limits={"cpu": "1500m"})

    assert [item["name"].place.path for item in document["env"].items()] == [("env", 0, "name")]
    assert [(name, field.place.path) for name, field in document["limits"].fields()] == [("cpu", ("limits", "cpu"))]


def test_a_quantity_is_a_number() -> None:
    document, found = fields(cpu="1500m", gpu=8)

    assert (document["cpu"].quantity(), document["gpu"].quantity()) == (Decimal("1.5"), Decimal(8))
    assert found == []


@pytest.mark.parametrize(
    ("value", "message"),
    [("900GB", "'900GB' is not a quantity"), (-1, "-1 is negative")],
)
def test_a_quantity_that_is_none(value: object, message: str) -> None:
    document, found = fields(memory=value)

    assert document["memory"].quantity() is None
    assert [(each.code.name, each.message) for each in found] == [("bad-quantity", message)]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("numProcsPerNode", "did you mean numProcPerNode? Else remove it"),
        ("colour", "remove it; known here are image, numProcPerNode"),
    ],
)
def test_an_unknown_field_is_told_with_what_was_meant(name: str, fix: str) -> None:
    document, found = fields(trainer={name: 1})

    document["trainer"][name].unknown(("image", "numProcPerNode"))

    assert [(each.code.name, each.message, each.fix) for each in found] == [
        ("unknown-field", f"there is no field trainer.{name}", fix)
    ]
