"""TrainJobs and their runtimes: what the CRDs and the webhooks of Kubeflow Trainer 2.3 fill in and refuse.

Sources: trainer v2.3 `pkg/apis/trainer/v1alpha1/trainjob_types.go`, `pkg/runtime/framework/plugins/jobset/jobset.go`.

Differences from the real ones: a write that the validating webhook denies with 403 gets a 422 here. The webhook looks
up runtimes and JobSets, but a kind here cannot. So a TrainJob whose runtime is missing is accepted and waits for it,
reserved variables and patches of unknown containers are accepted, and the TrainJob's own status says whether pods are
active. The rest of the schema and the immutable fields of a runtime patch are not checked.
"""

import re
from collections.abc import Iterable

from recovery.ports import TRAIN_JOBS, Resource
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.status_error import FieldCause

CLUSTER_TRAINING_RUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
TRAINING_RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime")
MANAGER = "trainer.kubeflow.org/trainjob-controller"
"""Value of `spec.managedBy` for TrainJobs that Trainer itself manages."""

_IMMUTABLE = ("runtimeRef", "initializer", "trainer", "activeDeadlineSeconds", "managedBy")
"""Checked by CEL, so only if both the old and the new spec have the field."""
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def trainer_kinds() -> tuple[ServedKind, ...]:
    return (
        ServedKind(resource=TRAIN_JOBS, default=_default, validate=_validate),
        ServedKind(resource=CLUSTER_TRAINING_RUNTIMES, has_status=False),
        ServedKind(resource=TRAINING_RUNTIMES, has_status=False),
    )


def _default(body: Body, before: Body | None) -> None:
    spec = body["spec"]
    if before is not None and before["spec"] is spec:
        return
    spec.setdefault("suspend", False)
    spec.setdefault("managedBy", MANAGER)
    spec["runtimeRef"].setdefault("apiGroup", TRAIN_JOBS.group)
    spec["runtimeRef"].setdefault("kind", CLUSTER_TRAINING_RUNTIMES.kind)


def _validate(body: Body, before: Body | None) -> Iterable[FieldCause]:
    if before is None:
        return _wrong_in_new(body)
    if before["spec"] == body["spec"]:
        return ()
    return _wrong_in_changed(body, before)


def _wrong_in_new(body: Body) -> Iterable[FieldCause]:
    name = body["metadata"]["name"]
    if not _NAME.fullmatch(name):
        yield FieldCause("<nil>", "Invalid value: metadata.name must match RFC 1035 DNS label format")
    if len(name) > 63:
        yield FieldCause("<nil>", "Invalid value: metadata.name must be no more than 63 characters")


def _wrong_in_changed(body: Body, before: Body) -> Iterable[FieldCause]:
    spec, old = body["spec"], before["spec"]
    for field in _IMMUTABLE:
        if field in spec and field in old and spec[field] != old[field]:
            yield FieldCause(f"spec.{field}", "Invalid value: field is immutable")
    if spec.get("runtimePatches", []) == old.get("runtimePatches", []):
        return
    if not spec["suspend"] and not old["suspend"]:
        sentence = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
        yield FieldCause("spec.runtimePatches", f"Forbidden: {sentence}", "FieldValueForbidden")
        return
    for job in before.get("status", {}).get("jobsStatus", ()):
        if job["active"]:
            sentence = (
                f"RuntimePatches cannot be modified when the JobSet's ReplicatedJob {job['name']} is still active"
            )
            yield FieldCause("spec.runtimePatches", f"Forbidden: {sentence}", "FieldValueForbidden")
