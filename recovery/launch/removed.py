"""Fields that Trainer 2.3 no longer has, and fields of training-operator v1, each with its replacement.

The sources are the types of Trainer v2.0.0 to v2.3.0 (pkg/apis/trainer/v1alpha1) and its CHANGELOG. podSpecOverrides
became podTemplateOverrides in 2.1 (#2785) and runtimePatches in 2.2 (#3309), which replaced labels and annotations too.
mlPolicy.torch lost numProcPerNode (#3239) and elasticPolicy (#3235) in 2.2.
"""

from collections.abc import Mapping

import msgspec

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.places import Place, written

REMOVED_FIELD = Code("removed-field", Severity.ERROR, "the API no longer has this field")
CODES = (REMOVED_FIELD,)


class Removed(msgspec.Struct, frozen=True):
    """What became of a field."""

    since: str
    """Why it does nothing: `it is gone since Trainer 2.2`."""
    fix: str


_IN_V1 = "it is of training-operator v1"
_GONE_IN_2_2 = "it is gone since Trainer 2.2"
_PATCH = (
    "write spec.runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs[].template.spec.template, "
    "with a manager like example.com/team"
)
_METADATA = (
    "write spec.runtimePatches[].trainingRuntimeSpec.template.metadata.{name}, with a manager like example.com/team"
)
_TRAINER_INSTEAD = "write image, command, args, env and resourcesPerNode under spec.trainer, the rest into a runtime"
_REPLICAS = Removed(_IN_V1, f"set spec.runtimeRef.name and spec.trainer.numNodes; {_TRAINER_INSTEAD}")
_ELASTIC = "write torchrun --nnodes=min:max --rdzv-backend=c10d --rdzv-endpoint=host:port in spec.trainer.command"

_TRAIN_JOB: Mapping[str, Removed] = {
    "podSpecOverrides": Removed("it is gone since Trainer 2.1", _PATCH),
    "podTemplateOverrides": Removed(_GONE_IN_2_2, _PATCH),
    "labels": Removed(_GONE_IN_2_2, _METADATA.format(name="labels")),
    "annotations": Removed(_GONE_IN_2_2, _METADATA.format(name="annotations")),
    "modelConfig": Removed("it is gone since Trainer 2.0", "write spec.initializer.model.storageUri"),
    "datasetConfig": Removed("it is gone since Trainer 2.0", "write spec.initializer.dataset.storageUri"),
    "trainingRuntimeRef": Removed("it is gone since Trainer 2.0", "write spec.runtimeRef"),
    "pytorchReplicaSpecs": _REPLICAS,
    "tfReplicaSpecs": _REPLICAS,
    "mpiReplicaSpecs": _REPLICAS,
    "jaxReplicaSpecs": _REPLICAS,
    "xgbReplicaSpecs": _REPLICAS,
    "nprocPerNode": Removed(_IN_V1, "write spec.trainer.numProcPerNode"),
    "slotsPerWorker": Removed(_IN_V1, "write spec.trainer.numProcPerNode"),
    "elasticPolicy": Removed(_IN_V1, _ELASTIC),
    "runPolicy": Removed(
        _IN_V1,
        "write suspend and activeDeadlineSeconds under spec, and backoffLimit into the Job template of the runtime",
    ),
}
_RUNTIME: Mapping[str, Removed] = {
    "mlPolicy.torch.numProcPerNode": Removed(
        _GONE_IN_2_2, "remove it; a TrainJob sets spec.trainer.numProcPerNode, and left out it means auto"
    ),
    "mlPolicy.torch.elasticPolicy": Removed(_GONE_IN_2_2, f"remove it and {_ELASTIC} of the TrainJob"),
}
_BY_KIND: Mapping[str, Mapping[str, Removed]] = {
    "TrainJob": {f"spec.{path}": gone for path, gone in _TRAIN_JOB.items()},
    "TrainingRuntime": {f"spec.{path}": gone for path, gone in _RUNTIME.items()},
    "ClusterTrainingRuntime": {f"spec.{path}": gone for path, gone in _RUNTIME.items()},
}


def fix_of(kind: str, place: Place) -> LintFinding | None:
    """What became of a field that the API of this kind does not have. None: it never had a field of that name."""
    path = written(place.path)
    gone = _BY_KIND.get(kind, {}).get(path)
    if gone is None:
        return None
    return LintFinding(REMOVED_FIELD, place, f"{path} does nothing: {gone.since}", gone.fix)
