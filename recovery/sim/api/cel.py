"""The rules of a CRD (`x-kubernetes-validations`). Only a few fixed shapes of CEL are supported.

This is no CEL interpreter. The whole text of a rule must match a known shape. A rule without one is refused when the
CRD is loaded, so no rule is skipped because it was not understood.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from re import Match, Pattern
from typing import Any

import re2

Holds = Callable[[Any, Any], bool]
"""Whether a rule holds for a value (`self`) and its previous value (`oldSelf`)."""

_KEYWORDS = frozenset({"rule", "message", "reason", "fieldPath"})
_UNITS = {
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_DURATION_PART = re.compile(r"([0-9]+)(ms|h|m|s)")


class UnknownRuleError(Exception):
    """A rule whose shape is not supported here. The message quotes the rule."""


@dataclass(frozen=True)
class CelRule:
    """One rule, ready to be evaluated."""

    holds: Holds
    message: str
    reason: str = "FieldValueInvalid"
    culprit: str = ""
    """Name of the field at fault, below the field that has the rule. Empty: the field that has the rule."""
    of_changes: bool = False
    """The rule uses `oldSelf`, so it is evaluated only if there is a previous value."""


def compiled(said: dict[str, Any]) -> CelRule:
    """The rule for one item of `x-kubernetes-validations`. Raises UnknownRuleError."""
    text = " ".join(said["rule"].split())
    if unknown := sorted(said.keys() - _KEYWORDS):
        raise UnknownRuleError(f"{text}: {', '.join(unknown)} is not evaluated here")
    for shape, made in _SHAPES:
        if found := shape.fullmatch(text):
            return CelRule(
                made(found),
                said.get("message", f"failed rule: {text}"),  # the API server's own words
                said.get("reason", "FieldValueInvalid"),
                said.get("fieldPath", "").removeprefix("."),
                "oldSelf" in text,
            )
    raise UnknownRuleError(f"no shape of a rule that is evaluated here: {text}")


def expression(re2: str) -> Pattern[str]:
    """Compile an expression that RE2 and Python read alike, except for `$`: RE2's does not match before a newline."""
    return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", re2), re.ASCII)


def _absent(found: Match[str]) -> Holds:
    name = found["name"]
    return lambda value, before: name not in value


def _once_set(found: Match[str]) -> Holds:
    """A field that had a value keeps it."""
    name = found["name"]
    return lambda value, before: name not in before or (name in value and value[name] == before[name])


def _never_shrinks(found: Match[str]) -> Holds:
    name = found["name"]
    return lambda value, before: name not in before or (name in value and len(value[name]) >= len(before[name]))


def _numbered(found: Match[str]) -> Holds:
    """No item of a list has a number above its size."""
    name, number = found["name"], found["number"]
    return lambda value, before: all(item[number] <= len(value[name]) for item in value.get(name, ()))


def _is_not(found: Match[str]) -> Holds:
    text = found["text"]
    return lambda value, before: bool(value != text)


def _unchanged(found: Match[str]) -> Holds:
    return lambda value, before: bool(value == before)


def _text_at(found: Match[str]) -> Holds:
    path, text = found["path"].split(".")[1:], found["text"]

    def holds(value: Any, before: Any) -> bool:
        for name in path:
            value = value[name]
        return bool(value == text)

    return holds


def _matches(found: Match[str]) -> Holds:
    search, wanted = expression(found["re2"]).search, not found["negated"]
    return lambda value, before: (search(value) is not None) is wanted


def _keys_match(found: Match[str]) -> Holds:
    search = expression(found["re2"]).search
    return lambda value, before: all(search(key) for key in value)


def _not_larger(found: Match[str]) -> Holds:
    small, large = found["small"], found["large"]
    return lambda value, before: bool(value[small] <= value[large])


def _not_longer(found: Match[str]) -> Holds:
    """Compares two durations. It holds if one is absent or is not a duration, because other rules check that."""
    small, large, search = found["small"], found["large"], expression(found["re2"]).search

    def holds(value: Any, before: Any) -> bool:
        texts = [value[name] for name in (small, large) if name in value]
        if len(texts) < 2 or not all(search(text) for text in texts):
            return True
        return _duration(texts[0]) <= _duration(texts[1])

    return holds


def _within(found: Match[str]) -> Holds:
    """Limits a duration. It holds for a text that is not a duration, because another rule checks that."""
    longest, search = _duration(found["longest"]), expression(found["re2"]).search
    return lambda value, before: search(value) is None or _duration(value) <= longest


def _sorted(found: Match[str]) -> Holds:
    return lambda value, before: all(one <= next_ for one, next_ in pairwise(value))


def _each_once(found: Match[str]) -> Holds:
    """No two items have the same value in that field. The field is required: an item without it is refused before."""
    name = found["name"]
    return lambda value, before: len({item[name] for item in value}) == len(value)


def _not_listed(found: Match[str]) -> Holds:
    name, text, listed, number = found["name"], found["text"], found["listed"], int(found["number"])
    return lambda value, before: value[name] != text or number not in value[listed]


def _requires(found: Match[str]) -> Holds:
    """Where a field has that value, the object has another field."""
    name, text, needed = found["name"], found["text"], found["needed"]
    return lambda value, before: value[name] != text or needed in value


def _belongs_to(found: Match[str]) -> Holds:
    """Only where a field has one of these values does the object have another field."""
    name, field, listed = found["name"], found["field"], re.findall(r"'([^']*)'", found["listed"])
    return lambda value, before: field not in value or value[name] in listed


def _compiles(found: Match[str]) -> Holds:
    """The value is a valid regular expression: the rule yields true, or an error if the expression does not compile."""
    return lambda value, before: _is_re2(value)


def _is_re2(text: str) -> bool:
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(text, options)
    except re2.error:
        return False
    return True


def _duration(text: str) -> timedelta:
    return sum((int(count) * _UNITS[unit] for count, unit in _DURATION_PART.findall(text)), timedelta())


_SHAPES: tuple[tuple[Pattern[str], Callable[[Match[str]], Holds]], ...] = tuple(
    (re.compile(shape), made)
    for shape, made in (
        (r"!has\(self\.(?P<name>\w+)\)", _absent),
        (r"self == oldSelf", _unchanged),
        (
            r"!has\(oldSelf\.(?P<name>\w+)\) \|\|"
            r" \(has\(self\.(?P=name)\) && self\.(?P=name) == oldSelf\.(?P=name)\)",
            _once_set,
        ),
        (
            r"!has\(oldSelf\.(?P<name>\w+)\) \|\|"
            r" \(has\(self\.(?P=name)\) && self\.(?P=name)\.size\(\) >= oldSelf\.(?P=name)\.size\(\)\)",
            _never_shrinks,
        ),
        (
            r"!has\(self\.(?P<name>\w+)\) \|\|"
            r" self\.(?P=name)\.all\((?P<item>\w+), (?P=item)\.(?P<number>\w+) <= self\.(?P=name)\.size\(\)\)",
            _numbered,
        ),
        (r"self != '(?P<text>[^']*)'", _is_not),
        (r"self(?P<path>(\.\w+)+) == '(?P<text>[^']*)'", _text_at),
        (r"(?P<negated>!?)self\.matches\('(?P<re2>[^']*)'\)", _matches),
        (r"self\.all\(key, key\.matches\('(?P<re2>[^']*)'\)\)", _keys_match),
        (r"self\.(?P<small>\w+) <= self\.(?P<large>\w+)", _not_larger),
        (
            r"!has\(self\.(?P<small>\w+)\) \|\| !has\(self\.(?P<large>\w+)\)"
            r" \|\| !\[self\.(?P=small), self\.(?P=large)\]\.all\(text, text\.matches\('(?P<re2>[^']*)'\)\)"
            r" \|\| duration\(self\.(?P=small)\) <= duration\(self\.(?P=large)\)",
            _not_longer,
        ),
        (
            r"!self\.matches\('(?P<re2>[^']*)'\) \|\| duration\(self\) <= duration\('(?P<longest>\w+)'\)",
            _within,
        ),
        (r"self\.isSorted\(\)", _sorted),
        (
            r"self\.all\((?P<one>\w+), self\.exists_one\((?P<other>\w+),"
            r" (?P=other)\.(?P<name>\w+) == (?P=one)\.(?P=name)\)\)",
            _each_once,
        ),
        (r"self\.(?P<name>\w+) != '(?P<text>[^']*)' \|\| !\((?P<number>\d+) in self\.(?P<listed>\w+)\)", _not_listed),
        (r"self\.(?P<name>\w+) != '(?P<text>[^']*)' \|\| has\(self\.(?P<needed>\w+)\)", _requires),
        (
            r"!has\(self\.(?P<field>\w+)\) \|\| self\.(?P<name>\w+) in \[(?P<listed>'\w+'(, '\w+')*)\]",
            _belongs_to,
        ),
        (r"''\.matches\(self\) \? true : true", _compiles),
    )
)
