"""Label and field selectors: which objects a list or a watch selects."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from recovery.ports import EVENTS, JOBS, NODES, PODS, Resource
from recovery.sim.api.error_answers import bad_request
from recovery.sim.api.kinds.kind import Body

Matches = Callable[[Body], bool]
_Requirement = Callable[[Mapping[str, str]], bool]

_METADATA_FIELDS = ("metadata.name", "metadata.namespace")
_FIELDS: dict[Resource, tuple[str, ...]] = {
    PODS: ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
    NODES: ("spec.unschedulable",),
    JOBS: ("status.successful",),
    EVENTS: (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "reason",
        "type",
    ),
}
"""Selectable fields besides the metadata: `ToSelectableFields` of each resource's strategy."""

_SET_BASED = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")


@lru_cache(maxsize=256)
def selector(resource: Resource, namespace: str | None, label_selector: str, field_selector: str) -> Matches | None:
    """A test whether an object is selected. None: all are. Raises `StatusError` if a selector cannot be parsed."""
    tests: list[Matches] = []
    if namespace is not None and resource.namespaced:
        tests.append(lambda body: body["metadata"].get("namespace") == namespace)
    if label_selector.strip():
        requirements = [_requirement(text.strip()) for text in _COMMA_OUTSIDE_PARENTHESES.split(label_selector)]
        tests.append(lambda body: _all_hold(requirements, body["metadata"].get("labels") or {}))
    tests += [_field_test(resource, text.strip()) for text in field_selector.split(",") if text.strip()]
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda body: all(test(body) for test in tests)


def _all_hold(requirements: list[_Requirement], labels: Mapping[str, str]) -> bool:
    return all(holds(labels) for holds in requirements)


def _requirement(text: str) -> _Requirement:
    """One requirement on labels. As in the real server, `!=` and `notin` hold for objects without the label."""
    if found := _SET_BASED.match(text):
        key, among = found["key"], frozenset(value.strip() for value in found["values"].split(","))
        if found["operator"] == "in":
            return lambda labels: labels.get(key) in among
        return lambda labels: labels.get(key) not in among
    if "=" in text:
        key, operator, value = _equation(text)
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if not text.strip("!") or " " in text:
        raise bad_request(f"unable to parse requirement: {text!r}")
    if text.startswith("!"):
        return lambda labels: text[1:].strip() not in labels
    return lambda labels: text in labels


def _field_test(resource: Resource, text: str) -> Matches:
    if "=" not in text:
        raise bad_request(f"invalid field selector: {text!r}; can't understand it")
    field, operator, value = _equation(text)
    if field not in _METADATA_FIELDS and field not in _FIELDS.get(resource, ()):
        raise bad_request(f"field label not supported: {field}")
    path = field.split(".")
    if operator == "!=":
        return lambda body: _value(body, path) != value
    return lambda body: _value(body, path) == value


def _equation(text: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        if operator in text:
            left, right = text.split(operator, 1)
            return left.strip(), operator, right.strip()
    raise AssertionError(text)


def _value(body: Body, path: list[str]) -> str:
    """The field as text. Empty if there is none, such as `spec.nodeName` of an unbound pod."""
    found: object = body
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return "true" if found else "false"
    return "" if found is None else str(found)
