"""Lint of RecoveryPolicies, ClusterRecoveryPolicies and the RecoveryConfig.

It checks what the API server checks: first the schema and the rules of the CRDs, then the rules of the webhook. The
controller applies the same rules. Only the webhook checks what its cluster allows, because it knows the RecoveryConfig.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from recovery.core.diagnosis.signature_table import BY_NAME
from recovery.core.model.durations import parse_duration
from recovery.launch.documents import Document
from recovery.launch.fields import Field
from recovery.launch.findings import LintFinding
from recovery.launch.lint import ignored_codes
from recovery.launch.own_kinds import POLICY_DOUBTFUL, POLICY_REFUSED, is_ours
from recovery.launch.places import Path, Place

if TYPE_CHECKING:
    from recovery.sim.api.kinds.kind import ServedKind
    from recovery.sim.api.status_error import FieldCause

_LOOK_UP = "see docs/reference.md for what the field takes"
_BESIDE_THE_FIELDS = frozenset({"apiVersion", "kind", "metadata", "status"})
_ALLOWS_ALL: Mapping[str, Any] = {"allow": {"failJob": True, "cordon": True, "assumeDead": True}}
_NO_FIELD = "<nil>"
"""Stands for a path when a rule of the whole object is broken."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_TYPE = re.compile(r"must be of type ([a-z,]+)")


def check(documents: Sequence[Document]) -> Iterator[LintFinding]:
    """The findings in our own kinds, without those that the objects' annotations ignore."""
    ignored = {document.number: ignored_codes(document) for document in documents}
    yield from (each for each in _found(documents) if each.code.name not in ignored[each.place.document])


def _found(documents: Sequence[Document]) -> Iterator[LintFinding]:
    admitted: list[tuple[Document, Mapping[str, Any]]] = []
    for document in documents:
        if is_ours(document):
            completed, found = _by_schema(document)
            yield from found
            if not found:
                admitted.append((document, completed))
    yield from _by_webhook(admitted)
    for document, body in admitted:
        yield from _about_deadlines(document, body, documents)


def _by_schema(document: Document) -> tuple[Mapping[str, Any], list[LintFinding]]:
    """The object with the API server's defaults, and why the API server refuses it."""
    # Loaded here, because manifests of jobs do not need the embedded API server.
    from recovery.sim.api.kinds.recovery import definition, recovery_kinds  # noqa: PLC0415

    kind = next(each for each in recovery_kinds() if each.resource.kind == document.kind)
    schema = definition(kind.resource)["schema"]["openAPIV3Schema"]
    found = [
        finding
        for name, value in document.body.items()
        if name not in _BESIDE_THE_FIELDS
        for finding in _unknown_fields(schema, value, Place(document.number) / str(name))
    ]
    body = deepcopy(dict(document.body))
    kind.default(body, None)
    for cause in _causes(kind, body, document.body):
        place = Place(document.number, _path_of(cause.field, document.body))
        of_object = cause.field == _NO_FIELD
        message, fix = _advice(cause.message if of_object else f"{cause.field}: {cause.message}")
        fix = _fix_of(cause.field, cause.reason, cause.message) or fix
        found.append(LintFinding(POLICY_REFUSED, place, message, fix))
    return body, found


def _causes(kind: "ServedKind", completed: dict[str, Any], body: Mapping[str, Any]) -> "list[FieldCause]":
    """Why the API server refuses the object. If a value breaks the schema, it does not evaluate the rules. Here they
    are evaluated without that value, so that all mistakes are shown at once."""
    from recovery.sim.api.schemas import RULES_NOT_ASKED  # noqa: PLC0415

    found = list(kind.validate(completed, None))
    if RULES_NOT_ASKED not in found:
        return found
    found = [cause for cause in found if cause != RULES_NOT_ASKED]
    rest = deepcopy(dict(body))
    for path in sorted({_path_of(cause.field, body) for cause in found}, key=len, reverse=True):
        _remove(rest, path)
    kind.default(rest, None)
    known = {cause.field for cause in found}
    return found + [each for each in kind.validate(rest, None) if each != RULES_NOT_ASKED and each.field not in known]


def _remove(body: dict[str, Any], path: Path) -> None:
    """Remove the value at the path. Items of a list stay, so that the items after them keep their indexes."""
    parent: Any = body
    for step in path[:-1]:
        parent = parent[step]
    if path and isinstance(parent, dict):
        parent.pop(path[-1], None)


def _advice(sentence: str) -> tuple[str, str]:
    """The message, and the advice that follows the last semicolon in many sentences."""
    message, semicolon, advice = sentence.rpartition("; ")
    return (message, advice) if semicolon else (sentence, _LOOK_UP)


def _fix_of(field: str, reason: str, message: str) -> str:
    """The fix that follows from the API server's reason. Empty: none does, so the advice applies."""
    if reason == "FieldValueRequired":
        return f"write {field}"
    if reason == "FieldValueNotSupported":
        written_value, *supported = _QUOTED.findall(message)
        if cause := BY_NAME.get(written_value):
            return f"{written_value} is a cause of class {cause.disruption_class}: write {cause.disruption_class}"
        near = difflib.get_close_matches(written_value, supported, n=1)
        return f"did you mean {near[0]}?" if near else f"write {' or '.join(supported)}"
    wanted = _TYPE.search(message)
    return f"write {_as_written(wanted[1])}" if wanted else ""


def _as_written(types: str) -> str:
    names = {"integer": "a whole number", "boolean": "true or false", "array": "a list", "string": "text in quotes"}
    return " or ".join(names.get(name, f"an {name}" if name == "object" else f"a {name}") for name in types.split(","))


def _unknown_fields(parent: Mapping[str, Any], value: Any, place: Place) -> Iterator[LintFinding]:
    """The fields that the schema lacks, here and below. The API server drops them. `parent`: the schema of the object
    that has this field."""
    known = parent.get("properties", {})
    name = str(place.path[-1])
    if known and name not in known:
        found: list[LintFinding] = []
        Field(value, place, found).unknown(tuple(known))
        yield from found
        return
    yield from _below(known.get(name) or parent.get("additionalProperties") or {}, value, place)


def _below(schema: Mapping[str, Any], value: Any, place: Place) -> Iterator[LintFinding]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _unknown_fields(schema, each, place / str(name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _below(schema.get("items", {}), each, place / number)


def _path_of(field: str, body: Mapping[str, Any]) -> Path:
    """The path of a field that the API server names, as far as the body has it. Keys of maps may contain dots."""
    path: list[str | int] = []
    value: Any = body
    rest = field
    while rest:
        if isinstance(value, list):
            index = re.match(r"\[(\d+)\]\.?", rest)
            if index is None or int(index[1]) >= len(value):
                break
            step: str | int = int(index[1])
            length = index.end()
        else:
            keys = [key for key in value if _begins(rest, str(key))] if isinstance(value, dict) else []
            if not keys:
                break
            step = max(keys, key=len)
            length = len(str(step)) + (rest[len(str(step)) :][:1] == ".")
        path.append(step)
        value, rest = value[step], rest[length:]
    return tuple(path)


def _begins(text: str, key: str) -> bool:
    return text.startswith(key) and text[len(key) :][:1] in ("", ".", "[")


def _about_deadlines(
    policy: Document, completed: Mapping[str, Any], documents: Sequence[Document]
) -> Iterator[LintFinding]:
    """A job that ends by its deadline before `backoff.minInterval` allows its second restart."""
    written_interval = _at(completed, "spec", "backoff").get("minInterval")
    if written_interval is None:  # a RecoveryConfig
        return
    interval, place = parse_duration(written_interval, ""), Place(policy.number, ("spec", "backoff", "minInterval"))
    wanted, namespace = _at(completed, "spec", "selector", "matchLabels"), _at(completed, "metadata").get("namespace")
    for job in documents:
        labels, deadline = _at(job.body, "metadata", "labels"), _at(job.body, "spec").get("activeDeadlineSeconds")
        elsewhere = policy.kind == "RecoveryPolicy" and _at(job.body, "metadata").get("namespace") != namespace
        if job.kind not in {"TrainJob", "JobSet"} or elsewhere or not isinstance(deadline, int):
            continue
        if interval.total_seconds() < deadline or any(labels.get(key) != value for key, value in wanted.items()):
            continue
        message = (
            f"spec.backoff.minInterval: {written_interval} is not shorter than activeDeadlineSeconds {deadline} of "
            f"{job.kind} {_at(job.body, 'metadata').get('name')}, so that job ends before its second restart"
        )
        yield LintFinding(
            POLICY_DOUBTFUL, place, message, "write a shorter interval, or give the job a longer deadline"
        )


def _at(body: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at the path. Empty: there is none."""
    found: Any = body
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _by_webhook(admitted: Sequence[tuple[Document, Mapping[str, Any]]]) -> Iterator[LintFinding]:
    """`admitted`: the documents that the schema admits, and their objects with defaults."""
    from recovery.admission.objects import JUDGED, JudgedObject  # noqa: PLC0415
    from recovery.admission.verdict import judge  # noqa: PLC0415
    from recovery.ports import RECOVERY_CONFIGS  # noqa: PLC0415

    resources = {resource.kind: resource for resource in JUDGED}
    judged: dict[int, JudgedObject] = {}
    for document, body in admitted:
        metadata = body["metadata"] if isinstance(body.get("metadata"), dict) else {}
        name, namespace = (str(metadata.get(field) or "") for field in ("name", "namespace"))
        judged[document.number] = JudgedObject(resources[document.kind], namespace, name, body.get("spec") or {})
    everything = JudgedObject(RECOVERY_CONFIGS, "", "default", _ALLOWS_ALL)
    for document, _ in admitted:
        own = judged[document.number]
        others = [each for each in judged.values() if (each.resource, each.namespace) == (own.resource, own.namespace)]
        verdict = judge(own, others, everything)
        for code, sentences in ((POLICY_REFUSED, verdict.errors), (POLICY_DOUBTFUL, verdict.warnings)):
            for sentence in sentences:
                place = Place(document.number, _path_of(sentence.partition(":")[0], document.body))
                yield LintFinding(code, place, *_advice(sentence))
