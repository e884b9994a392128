"""The kinds of objects that are judged or reported, with name and apiVersion as in a manifest."""

import msgspec


class ManifestKind(msgspec.Struct, frozen=True):
    """A kind of the API."""

    name: str
    api_version: str

    @property
    def group(self) -> str:
        return self.api_version.partition("/")[0]


TRAIN_JOB = ManifestKind("TrainJob", "trainer.kubeflow.org/v1alpha1")
TRAINING_RUNTIME = ManifestKind("TrainingRuntime", "trainer.kubeflow.org/v1alpha1")
CLUSTER_TRAINING_RUNTIME = ManifestKind("ClusterTrainingRuntime", "trainer.kubeflow.org/v1alpha1")
JOB_SET = ManifestKind("JobSet", "jobset.x-k8s.io/v1alpha2")
VOLCANO_JOB = ManifestKind("Job", "batch.volcano.sh/v1alpha1")
PYTORCH_JOB = ManifestKind("PyTorchJob", "kubeflow.org/v1")
"""A kind of training-operator v1. It is not judged, only recognized, so that the way to Trainer v2 can be shown."""

RECOVERY_POLICY = ManifestKind("RecoveryPolicy", "recovery.trainjob.dev/v1alpha1")
CLUSTER_RECOVERY_POLICY = ManifestKind("ClusterRecoveryPolicy", "recovery.trainjob.dev/v1alpha1")
RECOVERY_CONFIG = ManifestKind("RecoveryConfig", "recovery.trainjob.dev/v1alpha1")

RUNTIMES = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
OWN = (RECOVERY_POLICY, CLUSTER_RECOVERY_POLICY, RECOVERY_CONFIG)
"""The kinds of this project."""
KINDS = (TRAIN_JOB, *RUNTIMES, JOB_SET, VOLCANO_JOB, PYTORCH_JOB, *OWN)


def kind_of(name: str, api_version: str) -> ManifestKind | None:
    """The kind with that name and apiVersion. None: it is not one of `KINDS`."""
    return next((kind for kind in KINDS if (kind.name, kind.api_version) == (name, api_version)), None)


def nearest(name: str, api_version: str) -> ManifestKind | None:
    """The kind that was meant if the apiVersion is not the known one. It has the same name, and either no other API has
    a kind of that name or the group is the same too. A `Job` of `batch/v1` is no mistake. None: no kind was meant."""
    group = api_version.partition("/")[0]
    own = (TRAIN_JOB, *RUNTIMES, JOB_SET, *OWN)
    return next((kind for kind in KINDS if kind.name == name and (kind in own or kind.group == group)), None)
