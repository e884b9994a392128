"""The checks on a clean manifest that is broken in one place, for every place and in many ways.

Every field of every base is removed, renamed, and given values of other kinds. No check may raise. There is an error
only where the API server, Trainer, JobSet or Volcano refuse the object or drop a value, and it names that place.
Findings do not depend on how the manifest is written.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from recovery.launch.documents import Document, document_of, documents
from recovery.launch.findings import LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.lint import CODES, explain, lint, subjects
from recovery.launch.places import Path, written
from recovery.launch.preparing import prepare
from recovery.launch.recoverability.outlook import outlook
from tests.unit import fast_yaml
from tests.unit.launch.pages import BASES, NONE, Example, examples

Bodies = list[dict[str, Any]]
Told = tuple[str, str, str]
"""Code, kind of the object, and field of a finding."""

EVERY_BASE = pytest.mark.parametrize("base", sorted(path.stem for path in BASES.glob("*.yaml")))
RUNTIME, JOB_SETS, POD = "spec.template.spec.", "replicatedJobs[{}].", "template.spec.template.spec."
STEP = "template.metadata.labels.trainer.kubeflow.org/trainjob-ancestor-step"
REMOVED = object()


@cache
def _base(base: str) -> str:
    """The objects as JSON, without YAML anchors."""
    return json.dumps([each for each in fast_yaml.load_all((BASES / f"{base}.yaml").read_text()) if each])


def bodies_of(base: str) -> Bodies:
    found: Bodies = json.loads(_base(base))
    return found


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all values below, except those that identify the kind of the object."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in below:
        if (*path, step) in {("kind",), ("apiVersion",)}:
            continue
        yield (*path, step)
        yield from paths(inner, (*path, step))


def at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def changed(base: str, number: int, path: Path, new: object) -> Bodies:
    """The base with another value at the path, or without the field."""
    bodies = bodies_of(base)
    parent = at(bodies[number], path[:-1])
    if new is REMOVED:
        del parent[path[-1]]
    else:
        parent[path[-1]] = deepcopy(new)
    return bodies


def given(bodies: Sequence[Mapping[str, Any]]) -> tuple[Document, ...]:
    return tuple(document_of(body, number=number) for number, body in enumerate(bodies))


def told(bodies: Bodies, findings: Sequence[LintFinding]) -> set[Told]:
    return {
        (each.code.name, str(bodies[each.place.document].get("kind")), written(each.place.path)) for each in findings
    }


def errors(bodies: Bodies) -> set[Told]:
    """The errors of the manifest. Also runs explain-launch and admission's changes, which must not raise either."""
    judged = given(bodies)
    for subject in subjects(judged):
        if subject.group is not None:
            explain(subject.group)
        if isinstance(subject.group, Launch):
            outlook(subject.group)
            prepare(subject.group)
    return told(bodies, [each for each in lint(judged) if each.code.severity is Severity.ERROR])


NEEDED = {
    # The API server requires them.
    "metadata": {"missing-field"},
    "metadata.name": {"missing-field"},
}
REFUSED: dict[str, dict[str, set[str]]] = {
    "TrainJob of torch": {
        **NEEDED,
        # The CRD requires them.
        "spec": {"missing-field"},
        "spec.runtimeRef": {"missing-field"},
        "spec.runtimeRef.name": {"missing-field"},
        # A request for a device needs an equal limit.
        "spec.trainer.resourcesPerNode.limits": {"resources-refused"},
        "spec.trainer.resourcesPerNode.limits.nvidia.com/gpu": {"resources-refused"},
    },
    "ClusterTrainingRuntime of torch": {
        **NEEDED,
        # PET_MASTER_ADDR contains `node`, whatever the name of the ReplicatedJob.
        f"{RUNTIME}replicatedJobs[0].name": {"master-nowhere"},
        # Without the label Trainer drops what the TrainJob sets.
        f"{RUNTIME}replicatedJobs[0].template": {"no-trainer-job"},
        f"{RUNTIME}replicatedJobs[0].template.metadata": {"no-trainer-job"},
        f"{RUNTIME}replicatedJobs[0].template.metadata.labels": {"no-trainer-job"},
        f"{RUNTIME}replicatedJobs[0].{STEP}": {"no-trainer-job"},
        # Trainer's webhook looks for a container of that name.
        f"{RUNTIME}replicatedJobs[0].{POD}containers[0].name": {"missing-container"},
    },
    "TrainJob of mpi": {
        **NEEDED,
        "spec": {"missing-field"},
        "spec.runtimeRef": {"missing-field"},
        "spec.runtimeRef.name": {"missing-field"},
    },
    "ClusterTrainingRuntime of mpi": {
        **NEEDED,
        # numNodes 4 with runLauncherAsNode needs both, by name. Otherwise Trainer's webhook refuses the job.
        f"{RUNTIME}replicatedJobs[0]": {"mpi-jobs"},
        f"{RUNTIME}replicatedJobs[0].name": {"mpi-jobs"},
        f"{RUNTIME}replicatedJobs[1]": {"mpi-jobs", "no-trainer-job"},
        f"{RUNTIME}replicatedJobs[1].name": {"mpi-jobs"},
        # Without the label Trainer drops the TrainJob's image and command.
        f"{RUNTIME}replicatedJobs[1].template": {"no-trainer-job"},
        f"{RUNTIME}replicatedJobs[1].template.metadata": {"no-trainer-job"},
        f"{RUNTIME}replicatedJobs[1].template.metadata.labels": {"no-trainer-job"},
        f"{RUNTIME}replicatedJobs[1].{STEP}": {"no-trainer-job"},
        f"{RUNTIME}replicatedJobs[1].{POD}containers[0].name": {"missing-container"},
    },
    "JobSet of jobset": {
        **NEEDED,
        # Without c10d the rendezvous is static, and no flag gives each pod its rank.
        f"spec.replicatedJobs[0].{POD}containers[0].command[3]": {"same-node-rank"},
        # Its first word is the endpoint of the c10d rendezvous.
        f"spec.replicatedJobs[0].{POD}containers[0].args": {"endpoint-missing"},
        f"spec.replicatedJobs[0].{POD}containers[0].args[0]": {"endpoint-missing"},
    },
    "Job of volcano": {
        **NEEDED,
        # Volcano's webhook refuses a minAvailable above the sum of the replicas. Without its master the plugin sets no
        # variable in any pod. A worker that only an argument names is not counted.
        "spec.tasks": {"min-available", "plugin-task"},
        "spec.tasks[0]": {"min-available", "plugin-task"},
        "spec.tasks[0].name": {"plugin-task"},
        "spec.tasks[0].replicas": {"min-available", "plugin-task"},
        "spec.tasks[1]": {"min-available"},
        "spec.tasks[1].name": {"plugin-task"},
        "spec.tasks[1].replicas": {"min-available"},
        # Volcano's webhook requires an event and an action.
        "spec.policies[0].events": {"volcano-refused"},
        "spec.policies[0].action": {"volcano-refused"},
    },
}
"""For each object, the fields without which it is refused or loses a setting, and the code of that error. All other
fields are optional in the real API: none of them may be an error."""


@EVERY_BASE
def test_a_field_that_is_missing_is_an_error_only_where_it_is_needed(base: str) -> None:
    for number, body in enumerate(bodies_of(base)):
        wanted = REFUSED[f"{body['kind']} of {base}"]
        found = {
            written(path): {code for code, _, _ in errors(changed(base, number, path, REMOVED))} for path in paths(body)
        }
        assert {field: codes for field, codes in found.items() if codes} == wanted


OTHER_VALUES: dict[str, object] = {
    "an object": {},
    "a list": [],
    "text": "x",
    "empty text": "",
    "text that looks like a number": "8",
    "a template": "{{ .Values.nodes }}",
    "a boolean": True,
    "a fraction": 1.5,
    "beyond 64 bits": 2**70,
    "a list of nothing": [None],
    "lists in lists": [[{"a": [None]}]],
    "an object of nothing": {"name": None},
    "an object of objects": {"name": {"name": {}}},
    "null": None,
}


@EVERY_BASE
@pytest.mark.parametrize("kind", OTHER_VALUES)
def test_a_value_of_another_kind_is_told_where_it_stands_and_else_counts_as_missing(base: str, kind: str) -> None:
    """Only the value itself is blamed. Otherwise there are just the errors that the missing field would cause."""
    new = OTHER_VALUES[kind]
    for number, body in enumerate(bodies_of(base)):
        for path in paths(body):
            if _is_another_mistake(path, new):
                continue
            field, wanted = written(path), _refused_without(body, base, path)
            for code, kind_told, place in errors(changed(base, number, path, new)):
                stands_there = kind_told == body["kind"] and place.startswith(field)
                assert stands_there or code in wanted, f"{field} as {kind} gives {code} at {place}"


def _refused_without(body: Mapping[str, Any], base: str, path: Path) -> set[str]:
    """The errors of the object without that field, or without a field below it."""
    field, refused = written(path), REFUSED[f"{body['kind']} of {base}"]
    return {code for name, codes in refused.items() if name.startswith(field) for code in codes}


def _is_another_mistake(path: Path, new: object) -> bool:
    """The value has the right kind there but another meaning. Other tests cover that."""
    if path[-2:-1] in (("requests",), ("limits",)):
        return new in ("8", 1.5)
    if path[-2:-1] == ("command",):
        return isinstance(new, str) and bool(new)  # a word that is no flag ends torchrun's flags
    return isinstance(new, str) and path[-1] in ("name", "value") and bool(new)


NUMBERS = {"negative": -1, "zero": 0, "beyond 32 bits": 2**31}
ACCEPTED = {
    # The API server reads a negative grace period as 1 s, and a negative toleration as 0 s.
    "negative": {"terminationGracePeriodSeconds", "tolerationSeconds"},
    # No retries, no waiting, no resources: all of it is valid, if odd.
    "zero": {
        "backoffLimit",
        "completions",
        "cpu",
        "maxRetry",
        "nvidia.com/gpu",
        "parallelism",
        "scheduleTimeoutSeconds",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
    },
    "beyond 32 bits": {
        "cpu",
        "nvidia.com/gpu",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
    },
}
NOT_READ = {"scheduleTimeoutSeconds"}


@EVERY_BASE
@pytest.mark.parametrize("kind", NUMBERS)
def test_a_number_is_an_error_only_where_the_api_refuses_it(base: str, kind: str) -> None:
    for number, body in enumerate(bodies_of(base)):
        for path in paths(body):
            before = at(body, path)
            if isinstance(before, bool) or not isinstance(before, int):
                continue
            found = errors(changed(base, number, path, NUMBERS[kind]))
            refused = path[-1] not in ACCEPTED[kind] | NOT_READ and not _odd_and_valid(body, path, kind)
            refused |= _contradicts(body, path, kind)
            assert bool(found) is refused, f"{written(path)} {kind} gives {found}"


def _contradicts(body: Mapping[str, Any], path: Path, kind: str) -> bool:
    """Requests and limits are both given and contradict each other: those of devices must be equal, and a CPU request
    must not exceed its limit."""
    if path[:3] != ("spec", "trainer", "resourcesPerNode") or "requests" not in at(body, path[:3]):
        return False
    return path[-1] == "nvidia.com/gpu" or (path[-2] == "limits") is (kind == "zero")


def _odd_and_valid(body: Mapping[str, Any], path: Path, kind: str) -> bool:
    """0 replicas and minAvailable 0 are valid, except for a task of Volcano, because the sum is then too small."""
    return kind == "zero" and path[-1] in ("replicas", "minAvailable") and (body["kind"] == "JobSet" or len(path) == 2)


@EVERY_BASE
def test_a_field_with_a_slip_of_the_pen_is_unknown_or_counts_as_missing(base: str) -> None:
    for number, body in enumerate(bodies_of(base)):
        for path in paths(body):
            if isinstance(path[-1], int):
                continue
            bodies = bodies_of(base)
            parent = at(bodies[number], path[:-1])
            parent[f"{path[-1]}x"] = parent.pop(path[-1])
            wanted = REFUSED[f"{body['kind']} of {base}"].get(written(path), set()) | {"unknown-field"}
            if path[-2:-1] in (("requests",), ("limits",)) and "/" not in str(path[-1]):
                wanted |= {"unknown-resource"}
            elif path[-2:-1] == ("requests",):
                wanted = {"resources-refused"}  # any name may be a device, and this one has no limit
            assert {code for code, _, _ in errors(bodies)} <= wanted, written(path)


def _shuffled(value: Any, seed: int) -> Any:
    if isinstance(value, list):
        return [_shuffled(each, seed) for each in value]
    if not isinstance(value, dict):
        return value
    items = list(value.items())
    random.Random(seed).shuffle(items)
    return {name: _shuffled(each, seed) for name, each in items}


EVERY_BAD_EXAMPLE = pytest.mark.parametrize("code", CODES, ids=[code.name for code in CODES])


@cache
def _bad(name: str) -> Bodies | None:
    """The objects of the page's bad example, which callers must not change. None: it is not YAML, or the mistake is in
    its notation."""
    example = examples(next(code for code in CODES if code.name == name))["Bad"]
    if example.base == NONE or any(each.problems for each in documents(example.manifest())):
        return None
    return [each for each in fast_yaml.load_all(example.manifest()) if each]


EVERY_FORM: dict[str, Callable[[Bodies], str]] = {
    "YAML": lambda bodies: fast_yaml.dump_all(bodies, sort_keys=False),
    "YAML of long flows": lambda bodies: fast_yaml.dump_all(bodies, default_flow_style=True, width=10_000),
    "JSON": lambda bodies: "\n---\n".join(json.dumps(each) for each in bodies),
    "a List in JSON": lambda bodies: json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}, indent=2),
    "a List in YAML": lambda bodies: fast_yaml.dump({"apiVersion": "v1", "kind": "List", "items": bodies}),
    "Windows": lambda bodies: fast_yaml.dump_all(bodies, sort_keys=False).replace("\n", "\r\n"),
    "with a byte order mark": lambda bodies: f"\ufeff{fast_yaml.dump_all(bodies)}",
    "other order of keys": lambda bodies: fast_yaml.dump_all(_shuffled(bodies, 7), sort_keys=False),
    "another order of keys": lambda bodies: fast_yaml.dump_all(_shuffled(bodies, 8), sort_keys=False),
}


@EVERY_BAD_EXAMPLE
def test_what_is_told_does_not_depend_on_how_it_is_written(code: Any) -> None:
    bodies = _bad(code.name)
    if bodies is None:
        return
    wanted = {(each.code, each.place, each.message, each.fix) for each in lint(given(bodies))}
    for form, dumped in EVERY_FORM.items():
        found = {(each.code, each.place, each.message, each.fix) for each in lint(documents(dumped(bodies)))}
        assert found == wanted, form


@EVERY_BAD_EXAMPLE
def test_what_is_told_does_not_depend_on_the_order_of_the_documents(code: Any) -> None:
    bodies = _bad(code.name)
    if bodies is None:
        return
    backwards = bodies[::-1]
    assert told(backwards, lint(given(backwards))) == told(bodies, lint(given(bodies)))


def _lines_that_are_not_of_their_field(text: str) -> list[str]:
    """The findings whose line does not show their field, although the manifest has that field."""
    read, lines, wrong = documents(text), text.splitlines(), list[str]()
    for finding in lint(read):
        document = read[finding.place.document]
        path = (*document.root, *finding.place.path)
        while path and path not in document.lines:
            path = path[:-1]
        line = document.line_of(finding.place.path)
        shown = lines[line - 1] if 0 < line <= len(lines) else ""
        key = path[-1] if path else ""
        if not line or (key not in shown if isinstance(key, str) else not shown.lstrip().startswith("-")):
            wrong.append(f"{finding.code.name} {written(finding.place.path)}: line {line}: {shown}")
    return wrong


@EVERY_BAD_EXAMPLE
def test_the_line_that_is_told_has_the_field_in_it(code: Any) -> None:
    example = examples(code)["Bad"]

    assert _lines_that_are_not_of_their_field(example.manifest()) == []


@EVERY_BASE
def test_the_line_of_every_mistake_has_the_field_in_it(base: str) -> None:
    for number, body in enumerate(bodies_of(base)):
        for path in list(paths(body))[::3]:
            others: tuple[object, ...] = ([], "x")
            for new in others:
                text = fast_yaml.dump_all(changed(base, number, path, new), sort_keys=False)
                assert _lines_that_are_not_of_their_field(text) == [], written(path)


def test_there_are_enough_of_them() -> None:
    """Otherwise the tests above could pass because nothing was broken."""
    assert (
        sum(1 for base in ("torch", "mpi", "jobset", "volcano") for body in bodies_of(base) for _ in paths(body)) > 300
    )
    assert sum(1 for code in CODES if _bad(code.name) is not None) > 60
    assert Example("torch", "kind: TrainJob\nspec: {trainer: {numNodes: '16'}}").findings() != ()
