"""Jobs: what the server fills in and refuses.

Sources: Kubernetes 1.36 `pkg/apis/batch/v1/defaults.go`, `pkg/apis/batch/validation/validation.go`,
`pkg/registry/batch/job/strategy.go`. Left out: manual selectors, managedBy, the limits on
Jobs of more than 100,000 indexes, and the pod template's own fields. Of the checks of a status, only those are modelled
that make sure that a Job ends once and that its pods are counted correctly.
"""

import json
import re
from collections.abc import Iterable

from recovery.ports import JOBS
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.status_error import FieldCause

MOST_RULES = 20
MOST_EXIT_CODES = 255
UNLIMITED_BACKOFF = 2**31 - 1
"""Default of backoffLimit if backoffLimitPerIndex is set."""

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "ttlSecondsAfterFinished",
)
_IMMUTABLE = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "successPolicy")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates")


def job_kind() -> ServedKind:
    return ServedKind(resource=JOBS, default=_default, validate=_wrong)


# Defaults.


def _default(body: Body, before: Body | None) -> None:
    if before is not None:
        if body["spec"] is not before["spec"]:
            body["spec"] = _completed(body["spec"])
        return
    spec = _completed(body.get("spec") or {})
    metadata, template = body["metadata"], spec.get("template") or {}
    given: Body = (template.get("metadata") or {}).get("labels") or {}
    if given and not metadata.get("labels"):
        metadata["labels"] = dict(given)
    labels = {
        **dict.fromkeys(_NAME_LABELS, metadata["name"]),
        **dict.fromkeys(_UID_LABELS, metadata["uid"]),
        **given,
    }
    spec["template"] = {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}
    selector = spec.get("selector") or {}
    chosen = {_UID_LABELS[1]: metadata["uid"], **(selector.get("matchLabels") or {})}
    spec["selector"] = {**selector, "matchLabels": chosen}
    body["spec"] = spec
    body["status"] = {}


def _completed(spec: Body) -> Body:
    """A new spec with the defaults. The given one stays unchanged: a client may share parts of it among Jobs."""
    spec = {name: value for name, value in spec.items() if value is not None}
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    policy = spec.get("podFailurePolicy")
    return {
        "parallelism": 1,
        "backoffLimit": UNLIMITED_BACKOFF if "backoffLimitPerIndex" in spec else 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed" if policy is None else "Failed",
        **spec,
        **({} if policy is None else {"podFailurePolicy": _completed_policy(policy)}),
    }


def _completed_policy(policy: Body) -> Body:
    rules = []
    for rule in policy.get("rules") or ():
        patterns = [{"status": "True", **pattern} for pattern in rule.get("onPodConditions") or ()]
        rules.append({**rule, "onPodConditions": patterns} if patterns else rule)
    return {**policy, "rules": rules}


# Validation.


def _wrong(body: Body, before: Body | None) -> Iterable[FieldCause]:
    if before is not None and body["spec"] is before["spec"]:
        if body.get("status") is not before.get("status"):
            yield from _wrong_status(body, before)
        return
    spec = body["spec"]
    yield from _wrong_spec(spec)
    completions = spec.get("completions")
    if spec["completionMode"] == "Indexed" and completions:
        hostname = f"{body['metadata']['name']}-{completions - 1}"
        if not _DNS_LABEL.fullmatch(hostname):
            words = f"will not able to create pod with invalid DNS label: {hostname}"
            yield _invalid("metadata.name", body["metadata"]["name"], words)
    if before is not None:
        yield from _wrong_change(spec, before)


def _wrong_spec(spec: Body) -> Iterable[FieldCause]:
    for name in _NUMBERS:
        if spec.get(name, 0) < 0:
            yield _invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
    if spec["completionMode"] == "Indexed":
        yield from _wrong_indexed(spec)
    else:
        if spec["completionMode"] != "NonIndexed":
            yield _unsupported("spec.completionMode", spec["completionMode"], ("Indexed", "NonIndexed"))
        for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
            if name in spec:
                yield _invalid(f"spec.{name}", spec[name], "requires indexed completion mode")
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield _required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    yield from _wrong_restart_policy(spec)
    replacements = _REPLACEMENTS if "podFailurePolicy" not in spec else ("Failed",)
    if spec["podReplacementPolicy"] not in replacements:
        yield _unsupported("spec.podReplacementPolicy", spec["podReplacementPolicy"], replacements)
    if "podFailurePolicy" in spec:
        yield from _wrong_failure_policy(spec)


def _wrong_indexed(spec: Body) -> Iterable[FieldCause]:
    if "completions" not in spec:
        yield _required("spec.completions", "when completion mode is Indexed")
        return
    most = spec.get("maxFailedIndexes", 0)
    if most > spec["completions"]:
        yield _invalid("spec.maxFailedIndexes", most, "must be less than or equal to completions")
    if "successPolicy" in spec:
        yield from _wrong_success_policy(spec["successPolicy"], spec["completions"])


def _wrong_restart_policy(spec: Body) -> Iterable[FieldCause]:
    path = "spec.template.spec.restartPolicy"
    policy = (spec["template"].get("spec") or {}).get("restartPolicy", "Always")
    if policy == "Always":
        yield _required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in {"OnFailure", "Never"}:
        yield _unsupported(path, policy, ("Never", "OnFailure"))
    elif "podFailurePolicy" in spec and policy != "Never":
        yield _invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _wrong_failure_policy(spec: Body) -> Iterable[FieldCause]:
    rules, pods = spec["podFailurePolicy"]["rules"], spec["template"].get("spec") or {}
    names = [each["name"] for key in ("containers", "initContainers") for each in pods.get(key) or ()]
    if len(rules) > MOST_RULES:
        yield _too_many("spec.podFailurePolicy.rules", len(rules), MOST_RULES)
    for number, rule in enumerate(rules):
        path = f"spec.podFailurePolicy.rules[{number}]"
        action = rule.get("action")
        if not action:
            yield _required(f"{path}.action", f"valid values: {json.dumps(_ACTIONS)}")
        elif action not in _ACTIONS:
            yield _unsupported(f"{path}.action", action, _ACTIONS)
        elif action == "FailIndex" and "backoffLimitPerIndex" not in spec:
            yield _invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
        codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes and patterns:
            words = "specifying both OnExitCodes and OnPodConditions is not supported"
            yield FieldCause(path, f"Invalid value: {words}")
        elif codes:
            yield from _wrong_exit_codes(codes, f"{path}.onExitCodes", names)
        elif patterns:
            yield from _wrong_patterns(patterns, f"{path}.onPodConditions")
        else:
            yield FieldCause(path, "Invalid value: specifying one of OnExitCodes and OnPodConditions is required")


def _wrong_exit_codes(codes: Body, path: str, names: list[str]) -> Iterable[FieldCause]:
    operator, values = codes.get("operator"), codes.get("values") or []
    if operator not in _OPERATORS:
        yield _unsupported(f"{path}.operator", operator, _OPERATORS)
    if codes.get("containerName") not in {None, *names}:
        words = "must be one of the container or initContainer names in the pod template"
        yield _invalid(f"{path}.containerName", codes["containerName"], words)
    if not values:
        yield _invalid(f"{path}.values", values, "at least one value is required")
    if len(values) > MOST_EXIT_CODES:
        yield _too_many(f"{path}.values", len(values), MOST_EXIT_CODES)
    for place, value in enumerate(values):
        if operator == "In" and value == 0:
            yield _invalid(f"{path}.values[{place}]", value, "must not be 0 for the In operator")
        if value in values[:place]:
            yield FieldCause(f"{path}.values[{place}]", f"Duplicate value: {value}", "FieldValueDuplicate")
    if values != sorted(values):
        yield _invalid(f"{path}.values", values, "must be ordered")


def _wrong_patterns(patterns: list[Body], path: str) -> Iterable[FieldCause]:
    if len(patterns) > MOST_RULES:
        yield _too_many(path, len(patterns), MOST_RULES)
    for place, pattern in enumerate(patterns):
        if pattern["status"] not in _STATUSES:
            yield _unsupported(f"{path}[{place}].status", pattern["status"], _STATUSES)


def _wrong_success_policy(policy: Body, completions: int) -> Iterable[FieldCause]:
    path = "spec.successPolicy.rules"
    rules = policy.get("rules") or []
    if not rules:
        yield _required(path, "at least one rules must be specified when the successPolicy is specified")
    if len(rules) > MOST_RULES:
        yield _too_many(path, len(rules), MOST_RULES)
    for number, rule in enumerate(rules):
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            words = "at least one of succeededCount or succeededIndexes must be specified"
            yield _required(f"{path}[{number}]", words)
        wrong = _wrong_indexes(indexes, completions) if indexes else ""
        if wrong:
            yield _invalid(f"{path}[{number}].succeededIndexes", indexes, f"error parsing succeededIndexes: {wrong}")
        if count is not None and not 0 <= count <= completions:
            words = f"must be less than or equal to {completions} (the number of specified completions)"
            yield _invalid(f"{path}[{number}].succeededCount", count, words)


def _wrong_indexes(text: str, completions: int) -> str:
    """What is wrong with a list of indexes and index intervals. Empty: the list is valid."""
    last = -1
    for interval in text.split(","):
        for number, limit in enumerate(interval.split("-")):
            if number > 1:
                words = "violates the requirement that an index interval can have at most two parts separated by '-'"
                return f"the fragment {json.dumps(interval)} {words}"
            if not (limit.isascii() and limit.isdecimal()):
                return f"cannot convert string to integer for index: {json.dumps(limit)}"
            if int(limit) >= completions:
                return f"too large index: {json.dumps(limit)}"
            if int(limit) <= last:
                return f"non-increasing order, previous: {last}, current: {limit}"
            last = int(limit)
    return ""


def _wrong_change(spec: Body, before: Body) -> Iterable[FieldCause]:
    old = before["spec"]
    for name in _IMMUTABLE:
        if spec.get(name) != old.get(name):
            yield _immutable(f"spec.{name}", spec.get(name))
    if spec.get("completions") != old.get("completions"):
        if spec["completionMode"] != "Indexed":
            yield _immutable("spec.completions", spec.get("completions"))
        elif spec.get("completions") != spec["parallelism"]:
            words = "can only be modified in tandem with spec.parallelism"
            yield _invalid("spec.completions", spec.get("completions"), words)
    may_be_placed_again = _at_rest(before)
    if _lasting(spec["template"], at_rest=may_be_placed_again) != _lasting(
        old["template"], at_rest=may_be_placed_again
    ):
        yield _immutable("spec.template", spec["template"])


def _at_rest(job: Body) -> bool:
    """The Job is suspended without active pods, and either never started or its status says Suspended."""
    status = job.get("status", {})
    put_aside = "startTime" not in status or _true(status, "Suspended")
    return bool(job["spec"].get("suspend")) and put_aside and not status.get("active")


def _lasting(template: Body, *, at_rest: bool) -> Body:
    """The immutable part of the template. At rest, scheduling, resources, labels and annotations may change."""
    if not at_rest:
        return template
    metadata = {key: value for key, value in template["metadata"].items() if key not in {"labels", "annotations"}}
    spec = {key: value for key, value in template["spec"].items() if key not in _SCHEDULING}
    affinity = {key: value for key, value in (spec.pop("affinity", None) or {}).items() if key != "nodeAffinity"}
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [{**container, "resources": None} for container in spec[key]]
    return {"metadata": metadata, "spec": {**spec, "affinity": affinity}}


def _wrong_status(body: Body, before: Body) -> Iterable[FieldCause]:
    status, old = body.get("status") or {}, before.get("status") or {}
    for kind in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"):
        if _true(old, kind) and not _true(status, kind):
            yield FieldCause("status.conditions", f"Invalid value: cannot disable the terminal {kind}=True condition")
    for final, interim in (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")):
        if _true(status, final) and not _true(status, interim):
            words = f"cannot set {final}=True condition without the {interim}=true condition"
            yield FieldCause("status.conditions", f"Invalid value: {words}")
    if _true(status, "SuccessCriteriaMet") and _true(status, "FailureTarget"):
        words = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"
        yield FieldCause("status.conditions", f"Invalid value: {words}")
    if status.get("failed", 0) < old.get("failed", 0):
        yield _invalid("status.failed", status.get("failed", 0), "cannot decrease the failed counter")
    yield from _wrong_start_time(body["spec"], status, old)
    if status.get("ready", 0) > status.get("active", 0):
        yield _invalid("status.ready", status["ready"], "cannot set more ready pods than active")
    if _true(status, "Complete") or _true(status, "Failed"):
        for name in ("active", "terminating"):
            if status.get(name, 0) > 0:
                yield _invalid(f"status.{name}", status[name], f"{name}>0 is invalid for finished job")
        if status.get("uncountedTerminatedPods"):
            uncounted = status["uncountedTerminatedPods"]
            yield _invalid("status.uncountedTerminatedPods", uncounted, "must be empty for finished job")


def _wrong_start_time(spec: Body, status: Body, old: Body) -> Iterable[FieldCause]:
    """Checks startTime only if it changes or if this write finishes the Job."""
    suspended, changed = bool(spec.get("suspend")), status.get("startTime") != old.get("startTime")
    finished = _true(status, "Complete") or _true(status, "Failed")
    finishes = finished and not (_true(old, "Complete") or _true(old, "Failed"))
    is_empty = suspended and spec.get("completions") == 0
    if finished and "startTime" not in status and (changed or finishes) and not is_empty:
        yield _required("status.startTime", "startTime is required for finished job")
    resumes = _true(old, "Suspended") and _has(status, "Suspended", "False")
    if changed and "startTime" in old and not suspended and not resumes:
        words = "field is immutable for unsuspended job once set"
        yield _invalid("status.startTime", status.get("startTime"), words)


def _true(status: Body, kind: str) -> bool:
    return _has(status, kind, "True")


def _has(status: Body, kind: str, value: str) -> bool:
    return any(each["type"] == kind and each["status"] == value for each in status.get("conditions", ()))


def _invalid(field: str, value: object, words: str) -> FieldCause:
    return FieldCause(field, f"Invalid value: {json.dumps(value)}: {words}")


def _immutable(field: str, value: object) -> FieldCause:
    return _invalid(field, value, "field is immutable")


def _required(field: str, words: str) -> FieldCause:
    return FieldCause(field, f"Required value: {words}", "FieldValueRequired")


def _unsupported(field: str, value: object, supported: Iterable[str]) -> FieldCause:
    listed = ", ".join(f'"{each}"' for each in supported)
    return FieldCause(
        field, f"Unsupported value: {json.dumps(value)}: supported values: {listed}", "FieldValueNotSupported"
    )


def _too_many(field: str, count: int, most: int) -> FieldCause:
    return FieldCause(field, f"Too many: {count}: must have at most {most} items", "FieldValueTooMany")
