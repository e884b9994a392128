"""The kinds of objects that are judged, or reported: name and apiVersion as a manifest has them."""

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
"""Of training-operator v1: known, so that the way to Trainer v2 can be shown; nothing of it is judged."""

RECOVERY_POLICY = ManifestKind("RecoveryPolicy", "recovery.trainjob.dev/v1alpha1")
CLUSTER_RECOVERY_POLICY = ManifestKind("ClusterRecoveryPolicy", "recovery.trainjob.dev/v1alpha1")
RECOVERY_CONFIG = ManifestKind("RecoveryConfig", "recovery.trainjob.dev/v1alpha1")

RUNTIMES = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
OWN = (RECOVERY_POLICY, CLUSTER_RECOVERY_POLICY, RECOVERY_CONFIG)
"""Of this project."""
KINDS = (TRAIN_JOB, *RUNTIMES, JOB_SET, VOLCANO_JOB, PYTORCH_JOB, *OWN)


def kind_of(name: str, api_version: str) -> ManifestKind | None:
    """None: it is none of ours."""
    return next((kind for kind in KINDS if (kind.name, kind.api_version) == (name, api_version)), None)


def nearest(name: str, api_version: str) -> ManifestKind | None:
    """The kind that was meant where the apiVersion is another than ours: the same name, and nothing else has it, or the
    same group. A `Job` of `batch/v1` is no mistake. None: there is none."""
    group = api_version.partition("/")[0]
    own = (TRAIN_JOB, *RUNTIMES, JOB_SET, *OWN)
    return next((kind for kind in KINDS if kind.name == name and (kind in own or kind.group == group)), None)
