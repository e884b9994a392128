"""Objects that no API server should send: valid ones, with a few values dropped, replaced or added."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

from hypothesis import strategies as st

from recovery.ports import (
    EVENTS,
    JOB_SETS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiRequest,
    NotFoundError,
    Resource,
)
from tests.unit.fake_api import FakeApi
from tests.unit.kube.store_world import LEDGER_NAME, Body, config, job, load, pod

WATCHED = (PODS, JOBS, JOB_SETS, TRAIN_JOBS, NODES, RECOVERY_POLICIES, RECOVERY_CONFIGS, RECOVERY_GROUPS)

Path = tuple[str | int, ...]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}T")
_DEEP, _NO_TEXT = "~deep~", "~no text~"
_RAW = {_DEEP: b'{"a":' * 5000 + b"1" + b"}" * 5000, _NO_TEXT: b'"\xff\xfe"'}
"""The raw JSON that replaces these strings, because `json` cannot write it."""

DATES = [
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "1969-12-31T23:59:59Z",
    "2026-11-21T09:30:00Z",
    "2026-11-21T09:30:00",
    "2272-12-28T20:53:51Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999-23:59",
    "2026-02-30T00:00:00Z",
]
NUMBERS = [-1, 0, 1, 2, 2**31 - 1, 2**31, 10**11, 2**63 - 1, 2**64, 10**30, 0.5, 1e308, -1e308]
TEXTS = ["", " ", "-1", "1_000", "٣", "²", "9" * 5000, "\x00", "\u202e\n\x1b[2J", "é" * 300, "True", "Running", "llm"]
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([None, True, False, _DEEP, _NO_TEXT]),
    st.sampled_from(DATES),
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS),
    st.sampled_from([[], {}, [None], [1], {"": None}, [[]], {"name": 1}, [{}], {"a": {"b": []}}]),
)
ADDED: st.SearchStrategy[tuple[tuple[str, ...], list[Any]]] = st.sampled_from(
    [
        (("metadata", "deletionTimestamp"), DATES),
        (("metadata", "deletionGracePeriodSeconds"), NUMBERS),
        (("metadata", "labels", "batch.kubernetes.io/job-completion-index"), TEXTS),
        (("metadata", "labels", "jobset.sigs.k8s.io/restart-attempt"), TEXTS),
        (("metadata", "annotations", "batch.kubernetes.io/job-index-failure-count"), TEXTS),
        (("metadata", "annotations", "recovery.trainjob.dev/restart"), [*DATES, '{"at": ' + "[" * 5000, "{", *TEXTS]),
        (("metadata", "annotations", "recovery.trainjob.dev/resume-at"), [*DATES, *TEXTS]),
        (("metadata", "annotations", "recovery.trainjob.dev/suspended-by"), TEXTS),
        (("metadata", "annotations", "recovery.trainjob.dev/paused"), TEXTS),
        (("spec", "terminationGracePeriodSeconds"), NUMBERS),
        (("spec", "parallelism"), NUMBERS),
        (("spec", "completions"), NUMBERS),
        (("spec", "backoffLimit"), NUMBERS),
        (("spec", "activeDeadlineSeconds"), NUMBERS),
        (("spec", "backoffLimitPerIndex"), NUMBERS),
        (("spec", "budget"), [{"window": f"{hours}h"} for hours in ("876600", "99999999", "9" * 40)] + [{"limit": -1}]),
        (("spec", "timeouts"), [{"start": "876600h"}, {"start": "²s"}, {"rendezvous": ""}]),
        (("status", "failedIndexes"), ["", "1,3-5", "5-1", "a-b", "-", "0-2147483647", "٣", "9" * 5000, ",,"]),
        (("status", "allocatable"), [{"nvidia.com/gpu": text} for text in TEXTS]),
        (("status", "startTime"), DATES),
        (("status", "incident", "startedAt"), DATES),
        (("status", "incident", "terms", "budgetWindowSeconds"), NUMBERS),
        (("status", "incident", "terms", "startTimeoutSeconds"), NUMBERS),
        (("status", "budget", "charges"), [[date] for date in DATES]),
    ]
)


@cache
def originals() -> tuple[tuple[Resource, str], ...]:
    """One or more objects of each kind that is read, as JSON."""
    pods = [load(name) for name in ("pod_running", "pod_deleting", "pod_failed_disrupted", "pod_restarted")]
    groups = [load(name) for name in ("recoverygroup", "recoverygroup-tearing-down", "recoverygroup-shrinking")]
    conf = config(paused=False, allow={"cordon": True})
    conf["metadata"]["resourceVersion"] = "9"
    involved = {"metadata": {"name": "e"}, "message": "quota", "lastTimestamp": "2026-11-21T09:30:00Z"}
    lease = {"metadata": {"name": "gpu-0001"}, "spec": {"renewTime": "2026-11-21T09:30:00.000000Z"}}
    found: list[tuple[Resource, Body]] = [
        *((PODS, body) for body in (*pods, pod(0))),
        *((JOBS, body) for body in (load("job"), job())),
        (JOB_SETS, load("jobset")),
        (TRAIN_JOBS, load("trainjob")),
        (NODES, load("node")),
        (RECOVERY_POLICIES, load("recoverypolicy")),
        (RECOVERY_CONFIGS, conf),
        *((RECOVERY_GROUPS, body) for body in groups),
        (EVENTS, involved),
        (LEASES, lease),
    ]
    for resource, body in found:
        if resource != RECOVERY_POLICIES:  # most of each object, and read from policies only
            body["metadata"].pop("managedFields", None)
    return tuple((resource, json.dumps(body)) for resource, body in found)


@st.composite
def mutated(draw: st.DrawFn, resources: tuple[Resource, ...]) -> tuple[Resource, bytes]:
    """An object of one of these resources, as bytes, after one to four changes."""
    resource, original = draw(st.sampled_from([each for each in originals() if each[0] in resources]))
    body = json.loads(original)
    for _ in range(draw(st.integers(1, 4))):
        _change(draw, body)
    return resource, encoded(body)


def _change(draw: st.DrawFn, body: Any) -> None:
    if draw(st.integers(0, 3)) == 0:
        (*parents, name), values = draw(ADDED)
        inner = body
        for parent in parents:
            found = inner.get(parent) if isinstance(inner, dict) else None
            if not isinstance(found, dict):
                return
            inner = found
        inner[name] = deepcopy(draw(st.sampled_from(values)))
        return
    paths = list(_paths(body))
    if not paths:
        return
    path = draw(st.sampled_from(paths))
    inner, last = body, path[-1]
    for part in path[:-1]:
        inner = inner[part]
    how = draw(st.sampled_from(["like it", "like it", "anything", "other shape"]))
    if how == "like it":
        inner[last] = draw(_like(inner[last]))
    elif how == "anything":
        inner[last] = deepcopy(draw(VALUES))
    elif isinstance(inner, dict):
        del inner[last]
    else:
        inner.append(deepcopy(draw(VALUES)))


def _like(value: object) -> st.SearchStrategy[Any]:
    """A value of the same kind, at the edge of its range."""
    match value:
        case str() if _DATE.match(value):
            return st.sampled_from(DATES)
        case str():
            return st.sampled_from(TEXTS)
        case bool():
            return st.booleans()
        case int() | float():
            return st.sampled_from(NUMBERS)
    return VALUES.map(deepcopy)


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _paths(inner, (*path, key))


def encoded(body: object) -> bytes:
    text = json.dumps(body, ensure_ascii=False).encode()
    for string, instead in _RAW.items():
        text = text.replace(json.dumps(string).encode(), instead)
    return text


def intact(resource: Resource) -> bytes:
    """A valid object of that resource."""
    return next(text for each, text in originals() if each == resource).encode()


class Serving(FakeApi):
    """An API server with every object of a job, one of them replaced by `raw`. It accepts every patch."""

    def __init__(self, resource: Resource, raw: bytes) -> None:
        super().__init__()
        self._bodies = {each.plural: [intact(each)] for each in WATCHED} | {resource.plural: [raw]}
        self._bodies[PODS.plural].append(json.dumps(pod(1)).encode())

    async def answer(self, request: ApiRequest) -> bytes:
        plural = request.resource.plural
        if request.verb == "list":
            items = b",".join(self._bodies.get(plural, []))
            head = f'{{"kind": "{request.resource.kind}List", "metadata": {{"resourceVersion": "9"}}, "items": ['
            return head.encode() + items + b"]}"
        if plural not in self._bodies or (request.resource == RECOVERY_GROUPS and request.name != LEDGER_NAME):
            raise NotFoundError(f"there is no {request.name}")
        return self._bodies[plural][0]
