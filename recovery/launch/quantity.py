"""Kubernetes quantities: `1500m`, `"8"`, `64Gi`, `1e3` (k8s.io/apimachinery `resource.Quantity`)."""

import re
from decimal import ROUND_CEILING, Decimal

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,3})|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?")
_LARGEST = Decimal(2**63 - 1)
"""The API server caps larger values. No pod can request that much."""


class QuantityError(ValueError):
    """Not a quantity. The message says what is wrong, and follows the value in a sentence."""


def parse(written: object) -> Decimal:
    """The number that the quantity stands for. Raises QuantityError.

    YAML gives `8` and `0.5` as numbers, which the API server accepts too. A negative number is a quantity. The caller
    decides whether its field may have one.
    """
    if isinstance(written, bool) or not isinstance(written, (str, int, float)):
        raise QuantityError("is not a quantity")
    matched = _FORM.fullmatch(str(written))
    if matched is None:
        raise QuantityError("is not a quantity")
    digits, exponent, suffix = matched.groups()
    value = Decimal(digits).scaleb(int(exponent)) if exponent else Decimal(digits) * _SUFFIXES[suffix or ""]
    if abs(value) > _LARGEST:
        raise QuantityError("is larger than any quantity can be (2^63-1)")
    return value


def rounded_up(value: Decimal) -> int:
    """The next whole number, as `Quantity.Value()` gives it: 1500m is 2."""
    return int(value.to_integral_value(rounding=ROUND_CEILING))


def shown(value: Decimal) -> str:
    """As a person would write it: 8, 1500m, 900Gi."""
    if value != value.to_integral_value():
        return f"{(value * 1000).normalize():f}m"
    for suffix in ("Ti", "Gi", "Mi"):
        if value and value % _SUFFIXES[suffix] == 0:
            return f"{int(value / _SUFFIXES[suffix])}{suffix}"
    return str(int(value))
