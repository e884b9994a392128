"""YAML scalars as Kubernetes reads them: by the YAML 1.1 of kubectl's parser, and then as JSON.

That parser is go.yaml.in/yaml/v2 (resolve.go), which sigs.k8s.io/yaml uses. It differs from PyYAML's YAML 1.1: `y` and
`n` are booleans too, `0o17` is 15, `1:30` is a string, and a date stays a string. A number without a fraction is a
whole number in any notation, because JSON does not distinguish them: `1e3` is 1000 and `8.0` is 8.
"""

import base64
import binascii
import math
import re

Scalar = None | bool | int | float | str

_TAG = "tag:yaml.org,2002:"
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_NO_NUMBERS = re.compile(r"\.(nan|NaN|NAN)|[+-]?\.(inf|Inf|INF)")
_DIGITS = re.compile(r"[0-9+-]")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?", re.DOTALL)
_BASES = (
    (re.compile(r"([+-]?)0[xX]([0-9a-fA-F]+)"), 16),
    (re.compile(r"([+-]?)0[bB]([01]+)"), 2),
    (re.compile(r"([+-]?)0[oO]?([0-7]+)"), 8),
    (re.compile(r"([+-]?)(0|[1-9][0-9]*)"), 10),
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_DIGITS_MAX = 400
"""No float has more digits, so a longer text is not meant as a number."""
_JSON_WHOLE_MAX = 1e21
"""From this value on Go writes a float with an exponent, and the JSON reader reads that as a float again."""
_TAGS = {"bool": bool, "int": int, "float": float, "null": type(None)}


class ScalarError(ValueError):
    """A value that JSON cannot hold, or that does not match its tag. The message follows the value in a sentence."""


def resolved(text: str, tag: str | None, *, plain: bool) -> Scalar:
    """The value of a scalar. `tag`: the full tag. None: it has none. `plain`: without quotes. Raises ScalarError."""
    if tag is None:
        return _value(text) if plain else text
    name = tag.removeprefix(_TAG) if tag.startswith(_TAG) else ""
    if name == "binary":
        return _binary(text)
    if name not in _TAGS:
        return text
    value = _value(text)
    if name == "float" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, _TAGS[name]) or (name == "int" and isinstance(value, bool)):
        raise ScalarError(f"is not of the tag !!{name}")
    return value


def key(value: Scalar) -> str:
    """A key of a mapping as JSON has it. Raises ScalarError."""
    if isinstance(value, str):
        return value
    if value is None:
        raise ScalarError("is empty, and a key has to be text")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _value(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if _NO_NUMBERS.fullmatch(text):
        raise ScalarError("is no number that JSON can hold")
    if text.startswith("."):
        return _floating(text)
    if not _DIGITS.match(text) or _DATE.fullmatch(text):
        return text
    number = text.replace("_", "")
    whole = _whole(number)
    return whole if whole is not None else _floating(number, otherwise=text)


def _whole(text: str) -> int | None:
    """The text as a whole number. None: it is not one, or does not fit into 64 bits."""
    if len(text) > _DIGITS_MAX:
        return None
    for form, base in _BASES:
        matched = form.fullmatch(text)
        if matched:
            value = int(matched[2], base) * (-1 if matched[1] == "-" else 1)
            return value if -(2**63) <= value < 2**64 else None
    return None


def _floating(text: str, otherwise: str = "") -> Scalar:
    """`otherwise`: the value if the text is not a number. Empty: the text itself."""
    if len(text) > _DIGITS_MAX or not _FLOAT.fullmatch(text):
        return otherwise or text
    value = float(text)
    if math.isinf(value):
        return otherwise or text
    return int(value) if value.is_integer() and abs(value) < _JSON_WHOLE_MAX else value


def _binary(text: str) -> str:
    try:
        return base64.b64decode(re.sub(r"\s", "", text), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        raise ScalarError("is not base64, as its tag !!binary has it") from None
