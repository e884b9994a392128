"""Groups for tests of recoverability: 16 nodes with 8 GPUs each, prepared unless a test changes that."""

from collections.abc import Iterable, Mapping
from typing import Any

from recovery.launch.findings import LintFinding
from recovery.launch.launch import Launch, Member
from recovery.launch.places import Place
from recovery.launch.views import (
    Container,
    EnvVar,
    FailurePolicy,
    JobSetSpec,
    ManifestToleration,
    MlPolicy,
    Mount,
    PodGroupPolicy,
    PodTemplate,
    ReplicatedJob,
    Runtime,
    RuntimeRef,
    Trainer,
    TrainJob,
    Volume,
)

TRAIN_JOB = Place(0)
RUNTIME = Place(1)
SPEC = RUNTIME / "spec"
JOB = SPEC / "template" / "spec" / "replicatedJobs" / 0
PODS = JOB / "template" / "spec" / "template" / "spec"
MAIN = PODS / "containers" / 0
LOST_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def env(values: Mapping[str, str | None]) -> tuple[EnvVar, ...]:
    return tuple(EnvVar(name, MAIN / "env" / number, value) for number, (name, value) in enumerate(values.items()))


def container(**changed: Any) -> Container:
    fields: dict[str, Any] = {
        "command": ("torchrun", "--tee", "3", "train.py", "--resume"),
        "mounts": (Mount("checkpoints", "/checkpoints"),),
        "termination_message_policy": "FallbackToLogsOnError",
    }
    return Container("node", MAIN, **fields | changed)


def tolerations(*each: Mapping[str, Any]) -> tuple[ManifestToleration, ...]:
    return tuple(ManifestToleration(PODS / "tolerations" / number, **fields) for number, fields in enumerate(each))


def patience(seconds: int | None) -> tuple[ManifestToleration, ...]:
    """Tolerations of a lost node for that long. None: without a limit."""
    return tolerations(
        *({"key": key, "operator": "Exists", "effect": "NoExecute", "seconds": seconds} for key in LOST_NODE)
    )


def pods(main: Container | None = None, **changed: Any) -> PodTemplate:
    fields: dict[str, Any] = {
        "restart_policy": "Never",
        "grace_seconds": 15,
        "containers": (main or container(),),
        "tolerations": patience(30),
        "volumes": (Volume("checkpoints", PODS / "volumes" / 0, "persistentVolumeClaim"),),
    }
    return PodTemplate(PODS, **fields | changed)


def job(template: PodTemplate | None = None, **changed: Any) -> ReplicatedJob:
    fields: dict[str, Any] = {"backoff_limit": 1000, "ancestor": "trainer", "replicas": 1}
    return ReplicatedJob("node", JOB, template or pods(), **fields | changed)


def group(
    trains: ReplicatedJob | None = None,
    *,
    nodes: int = 16,
    gpus_per_pod: int = 8,
    failure_policy: FailurePolicy | None = None,
    before: Iterable[ReplicatedJob] = (),
    ml_policy: MlPolicy | None = None,
    pod_groups: PodGroupPolicy | None = None,
    queued: bool = True,
    annotations: Mapping[str, str] | None = None,
    trainer: Trainer | None = None,
    runtime_alone: bool = False,
) -> Launch:
    """`before`: ReplicatedJobs that are not members."""
    member_job = trains or job()
    spec = JobSetSpec(SPEC / "template" / "spec", jobs=(*before, member_job), failure_policy=failure_policy)
    runtime = Runtime("ClusterTrainingRuntime", "torch", RUNTIME, spec, ml_policy=ml_policy, pod_groups=pod_groups)
    train_job = TrainJob("llm", TRAIN_JOB, RuntimeRef(TRAIN_JOB / "spec" / "runtimeRef", "torch"), trainer=trainer)
    main = member_job.pods.containers[0] if member_job.pods.containers else None
    return Launch(
        RUNTIME if runtime_alone else TRAIN_JOB,
        "llm",
        spec,
        train_job=None if runtime_alone else train_job,
        runtime=runtime,
        members=(Member(member_job, nodes, main, gpus_per_pod),),
        labels={"kueue.x-k8s.io/queue-name": "team"} if queued else {},
        annotations=annotations or {},
    )


def names(found: Iterable[LintFinding]) -> list[str]:
    return [each.code.name for each in found]


def only(found: Iterable[LintFinding]) -> LintFinding:
    (finding,) = found
    return finding
