"""Quantities, parsed as by `resource.Quantity` of k8s.io/apimachinery."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.launch.quantity import QuantityError, parse, rounded_up, shown


@pytest.mark.parametrize(
    ("written", "value", "whole"),
    [
        (8, "8", 8),
        ("8", "8", 8),
        (0, "0", 0),
        (0.5, "0.5", 1),
        ("1500m", "1.5", 2),
        ("1", "1", 1),
        ("999m", "0.999", 1),
        ("64Gi", str(64 * 2**30), 64 * 2**30),
        ("1e3", "1000", 1000),
        ("1E3", "1000", 1000),
        ("1E", str(10**18), 10**18),
        ("2k", "2000", 2000),
        (".5", "0.5", 1),
        ("5.", "5", 5),
        ("100u", "0.0001", 1),
        ("-1", "-1", -1),
        ("-1500m", "-1.5", -1),
        ("+3", "3", 3),
    ],
)
def test_what_a_quantity_means(written: object, value: str, whole: int) -> None:
    assert (parse(written), rounded_up(parse(written))) == (Decimal(value), whole)


@pytest.mark.parametrize(
    "written",
    ["", " 8", "8 ", "8 Gi", "900GB", "64gi", "1K", "1.5.2", "1e", "e3", "0x10", "--1", "nan", "inf", "eight", "1,5"],
)
def test_what_is_none(written: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse(written)


@pytest.mark.parametrize("written", [None, True, [8], {"amount": 8}])
def test_a_value_of_another_kind_is_none(written: object) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse(written)


@pytest.mark.parametrize("written", ["9223372036854775808", "1e19", "1e999", "8Ei", "1" * 500])
def test_more_than_any_pod_can_ask_for(written: str) -> None:
    with pytest.raises(QuantityError, match="larger than any quantity"):
        parse(written)


@given(
    st.one_of(
        st.text(), st.integers(), st.floats(), st.from_regex(r"[+-]?[0-9.]{1,30}([eE][+-]?[0-9]{1,3}|[a-zA-Z]{1,2})?")
    )
)
def test_any_quantity_is_a_number_or_a_finding(written: object) -> None:
    try:
        value = parse(written)
    except QuantityError:
        return
    assert value.is_finite()
    assert rounded_up(value) >= value


@pytest.mark.parametrize("written", ["0", "8", "1500m", "900Gi", "64Mi", "2Ti", "100", "-1500m", "1025"])
def test_a_quantity_is_shown_as_a_person_writes_it(written: str) -> None:
    assert shown(parse(written)) == written
