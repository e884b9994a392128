"""JobSets: what the CRD and the webhooks of JobSet 0.12 fill in and refuse.

Sources: jobset v0.12 `pkg/webhooks/jobset_webhook.go`, `api/jobset/v1alpha2/jobset_types.go`. The alpha gates
(InPlaceRestart, RestartJob, ElasticJobSet) are off, as they are by default. Not modelled: limits on the length of
names; coordinator, managedBy and volumeClaimPolicies; the rest of the schema, so unknown fields are kept.
"""

import re
from collections.abc import Iterable
from typing import Any

from recovery.ports import JOB_SETS
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.status_error import FieldCause

FAILURE_REASONS = frozenset(
    {"BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"}
)
"""Reasons for a Job's failure that a rule may name."""

_IMMUTABLE = ("network", "successPolicy", "failurePolicy", "startupPolicy")
"""Checked by CEL, so only if both the old and the new spec have the field."""
_MUTABLE_METADATA = frozenset({"labels", "annotations"})
_MUTABLE_POD_SPEC = frozenset({"nodeSelector", "tolerations", "schedulingGates"})
_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def jobset_kind() -> ServedKind:
    return ServedKind(resource=JOB_SETS, default=_default, validate=_validate)


def _default(body: Body, before: Body | None) -> None:
    """The CRD's defaults apply to every write. The mutating webhook is called only for creates."""
    spec = body.setdefault("spec", {})
    if before is not None and before.get("spec") is spec:
        return
    for replicated in spec.get("replicatedJobs", ()):
        replicated.setdefault("groupName", "default")
        replicated.setdefault("replicas", 1)
    policy = spec.get("failurePolicy")
    if policy is not None:
        policy.setdefault("restartStrategy", "Recreate")
    if before is None:
        _mutate(spec)


def _mutate(spec: dict[str, Any]) -> None:
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    for replicated in spec.get("replicatedJobs", ()):
        job = replicated["template"].setdefault("spec", {})
        job.setdefault("completionMode", "Indexed")
        job.setdefault("template", {}).setdefault("spec", {}).setdefault("restartPolicy", "OnFailure")
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for number, rule in enumerate((spec.get("failurePolicy") or {}).get("rules", ())):
        if not rule.get("name"):
            rule["name"] = f"failurePolicyRule{number}"


def _validate(body: Body, before: Body | None) -> Iterable[FieldCause]:
    spec = body["spec"]
    if before is None:
        return _wrong_in_new(spec)
    if before["spec"] == spec:
        return ()
    return _wrong_in_changed(spec, before["spec"])


def _wrong_in_new(spec: dict[str, Any]) -> Iterable[FieldCause]:
    replicated_jobs = spec.get("replicatedJobs", [])
    names: list[str] = []
    for number, replicated in enumerate(replicated_jobs):
        names.append(replicated["name"])
        dependencies = replicated.get("dependsOn", ())
        if dependencies and number == 0:
            yield _invalid("spec.replicatedJobs[0].dependsOn", "DependsOn can't be set for the first ReplicatedJob")
        for each in dependencies:
            if each["name"] not in names:
                sentence = f"replicatedJob: {replicated['name']} cannot depend on replicatedJob: {each['name']}"
                yield _invalid(f"spec.replicatedJobs[{number}].dependsOn", sentence)
    if spec["startupPolicy"]["startupPolicyOrder"] == "InOrder" and any(
        each.get("dependsOn") for each in replicated_jobs
    ):
        yield _invalid("spec", "StartupPolicy and DependsOn APIs are mutually exclusive")
    for name in spec["successPolicy"].get("targetReplicatedJobs", ()):
        if name not in names:
            sentence = f"invalid replicatedJob name '{name}' does not appear in .spec.ReplicatedJobs"
            yield _invalid("spec.successPolicy.targetReplicatedJobs", sentence)
    if spec.get("failurePolicy") is not None:
        yield from _wrong_in_failure_policy(spec["failurePolicy"], names)


def _wrong_in_failure_policy(policy: dict[str, Any], names: list[str]) -> Iterable[FieldCause]:
    if policy["restartStrategy"] == "InPlaceRestart":
        sentence = "InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled"
        yield _invalid("spec.failurePolicy.restartStrategy", sentence)
    seen: list[str] = []
    for number, rule in enumerate(policy.get("rules", ())):
        path = f"spec.failurePolicy.rules[{number}]"
        if rule["action"] in {"RestartJob", "RestartJobAndIgnoreMaxRestarts"}:
            sentence = (
                "RestartJob and RestartJobAndIgnoreMaxRestarts failure policy actions are not allowed when RestartJob "
                "feature gate is disabled"
            )
            yield _invalid(f"{path}.action", sentence)
        if not _RULE_NAME.fullmatch(rule["name"]) or len(rule["name"]) > 128:
            yield _invalid(f"{path}.name", f"invalid failure policy rule name '{rule['name']}'")
        if rule["name"] in seen:
            yield _invalid(f"{path}.name", f"rule names are not unique: '{rule['name']}'")
        seen.append(rule["name"])
        for name in rule.get("targetReplicatedJobs", ()):
            if name not in names:
                sentence = (
                    f"invalid replicatedJob name '{name}' in failure policy does not appear in .spec.ReplicatedJobs"
                )
                yield _invalid(f"{path}.targetReplicatedJobs", sentence)
        for reason in rule.get("onJobFailureReasons", ()):
            if reason not in FAILURE_REASONS:
                sentence = (
                    f"invalid job failure reason '{reason}' in failure policy is not a recognized job failure reason"
                )
                yield _invalid(f"{path}.onJobFailureReasons", sentence)


def _wrong_in_changed(spec: dict[str, Any], old: dict[str, Any]) -> Iterable[FieldCause]:
    for field in _IMMUTABLE:
        if field in spec and field in old and spec[field] != old[field]:
            yield _invalid(f"spec.{field}", "Value is immutable")
    suspended = bool(spec.get("suspend")) or bool(old.get("suspend"))
    if _replicated_jobs(spec, suspended=suspended) != _replicated_jobs(old, suspended=suspended):
        yield _invalid("spec.replicatedJobs", "field is immutable")


def _replicated_jobs(spec: dict[str, Any], *, suspended: bool) -> list[Any]:
    """The replicated Jobs, without the parts that may change if the JobSet is suspended before or after the write."""
    replicated_jobs: list[Any] = spec.get("replicatedJobs", [])
    if not suspended:
        return replicated_jobs
    return [_fixed(replicated) for replicated in replicated_jobs]


def _fixed(replicated: dict[str, Any]) -> dict[str, Any]:
    template = replicated["template"]
    pods = template["spec"]["template"]
    metadata = {key: value for key, value in pods.get("metadata", {}).items() if key not in _MUTABLE_METADATA}
    pod_spec = {key: value for key, value in pods["spec"].items() if key not in _MUTABLE_POD_SPEC}
    fixed_pods = {**pods, "metadata": metadata, "spec": pod_spec}
    return {**replicated, "template": {**template, "spec": {**template["spec"], "template": fixed_pods}}}


def _invalid(field: str, sentence: str) -> FieldCause:
    return FieldCause(field, f"Invalid value: {sentence}")
