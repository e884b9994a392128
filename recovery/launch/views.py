"""Views of the objects that users write: the fields that a launch depends on, each with its place.

They are frozen records without derived values or defaults: a field that is None or empty was left out by the user.
`reading` makes them from a document. What Trainer and JobSet make of them is in `launch`.
"""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from recovery.launch.places import Place


class EnvVar(msgspec.Struct, frozen=True):
    """A variable of a container."""

    name: str
    place: Place
    value: str | None = None
    """None: it comes from elsewhere (`valueFrom`), and cannot be known here."""


class Resources(msgspec.Struct, frozen=True):
    """`resources` of a container, or `resourcesPerNode`."""

    place: Place
    requests: Mapping[str, Decimal] = {}
    limits: Mapping[str, Decimal] = {}
    claims: tuple[str, ...] = ()
    """Names of the pod's resource claims (DRA) that the container uses."""
    unquoted: tuple[Place, ...] = ()
    """The places of quantities that are written as numbers: `8`, not `"8"`."""


class Mount(msgspec.Struct, frozen=True):
    """A volumeMount."""

    volume: str
    path: str
    read_only: bool = False


class Container(msgspec.Struct, frozen=True):
    """A container, or an init container."""

    name: str
    place: Place
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    has_env_from: bool = False
    """It has more variables, from ConfigMaps or Secrets, that cannot be known here."""
    resources: Resources | None = None
    mounts: tuple[Mount, ...] = ()
    termination_message_policy: str = ""
    restart_policy: str = ""
    """The container's own restartPolicy (a sidecar's `Always`, KEP-753, or KEP-5307)."""
    has_readiness_probe: bool = False


class ManifestToleration(msgspec.Struct, frozen=True):
    """A toleration. `seconds` None: for ever."""

    place: Place
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


class Volume(msgspec.Struct, frozen=True):
    """A volume. `source`: the name of its source in the API, such as `persistentVolumeClaim`, `emptyDir` or `nfs`."""

    name: str
    place: Place
    source: str = ""
    medium: str = ""
    """The medium of an emptyDir: `Memory`. Empty: the disk of the node."""


class PodTemplate(msgspec.Struct, frozen=True):
    """The pod template of a ReplicatedJob, or of a task."""

    place: Place
    """The place of its `spec`."""
    restart_policy: str = ""
    grace_seconds: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    tolerations: tuple[ManifestToleration, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    scheduler_name: str = ""
    host_network: bool = False
    host_ipc: bool = False
    shares_processes: bool = False
    """`shareProcessNamespace`: the containers can end each other's processes."""
    dns_policy: str = ""
    """Empty: Kubernetes' default, `ClusterFirst`."""
    active_deadline_seconds: int | None = None
    """The pod's own deadline, counted from its start. None: it has none."""
    priority_class: str = ""


class NativeRule(msgspec.Struct, frozen=True):
    """A rule of a podFailurePolicy or of a failurePolicy: its action, and in words what it matches."""

    action: str
    place: Place
    matches: str = ""
    exit_codes: tuple[int, ...] = ()
    """`onExitCodes.values` of a podFailurePolicy rule."""
    exit_codes_operator: str = ""
    """`In` or `NotIn`. Empty: the rule matches no exit codes."""
    pod_conditions: tuple[str, ...] = ()
    """Types of `onPodConditions` that a podFailurePolicy rule requires to be True: `DisruptionTarget`."""
    job_reasons: tuple[str, ...] = ()
    """`onJobFailureReasons` of a failurePolicy rule: `DeadlineExceeded`. Empty: any."""


class ReplicatedJob(msgspec.Struct, frozen=True):
    """One of `replicatedJobs`."""

    name: str
    place: Place
    pods: PodTemplate
    replicas: int | None = None
    ancestor: str = ""
    """Trainer's step label on the Job template: `trainer`, `dataset-initializer`, `model-initializer`; empty: none."""
    depends_on: tuple[str, ...] = ()
    """The ReplicatedJobs that it waits for until they are `Complete`."""
    depends_on_ready: tuple[str, ...] = ()
    """The ReplicatedJobs that it waits for until they are `Ready`."""
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds: int | None = None
    """`ttlSecondsAfterFinished` of the Job."""
    pod_replacement_policy: str = ""
    pod_failure_rules: tuple[NativeRule, ...] = ()


class FailurePolicy(msgspec.Struct, frozen=True):
    """A JobSet's failurePolicy."""

    place: Place
    max_restarts: int | None = None
    restart_strategy: str = ""
    rules: tuple[NativeRule, ...] = ()


class JobSetSpec(msgspec.Struct, frozen=True):
    """The spec of a JobSet, or of a runtime's template."""

    place: Place
    jobs: tuple[ReplicatedJob, ...] = ()
    failure_policy: FailurePolicy | None = None
    suspended: bool = False
    publishes_not_ready: bool | None = None
    """`network.publishNotReadyAddresses`."""
    dns_hostnames: bool | None = None
    """`network.enableDNSHostnames`."""
    subdomain: str = ""
    """`network.subdomain`."""
    ttl_seconds: int | None = None
    """`ttlSecondsAfterFinished` of the JobSet."""
    success_jobs: tuple[str, ...] = ()
    """`successPolicy.targetReplicatedJobs`: those that decide whether the JobSet is complete. Empty: all do."""


class TorchPolicy(msgspec.Struct, frozen=True):
    """`mlPolicy.torch`."""

    place: Place
    env_targets: tuple[tuple[str, str], ...] = ()
    """`envInjection.targets`: ReplicatedJob and container."""


class MpiPolicy(msgspec.Struct, frozen=True):
    """`mlPolicy.mpi`."""

    place: Place
    num_proc_per_node: int | None = None
    implementation: str = ""
    run_launcher_as_node: bool | None = None


class MlPolicy(msgspec.Struct, frozen=True):
    """A runtime's `mlPolicy`."""

    place: Place
    num_nodes: int | None = None
    torch: TorchPolicy | None = None
    mpi: MpiPolicy | None = None
    others: tuple[str, ...] = ()
    """Other frameworks that are set, whose own settings are not judged: jax, xgboost, flux."""


class PodGroupPolicy(msgspec.Struct, frozen=True):
    """A runtime's `podGroupPolicy`. `plugin`: coscheduling or volcano."""

    place: Place
    plugin: str = ""


class Runtime(msgspec.Struct, frozen=True):
    """A TrainingRuntime or ClusterTrainingRuntime."""

    kind: str
    name: str
    place: Place
    job_set: JobSetSpec
    namespace: str = ""
    labels: Mapping[str, str] = {}
    ml_policy: MlPolicy | None = None
    pod_groups: PodGroupPolicy | None = None
    annotations: Mapping[str, str] = {}


class Trainer(msgspec.Struct, frozen=True):
    """`spec.trainer` of a TrainJob."""

    place: Place
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    num_nodes: int | None = None
    num_proc_per_node: int | str | None = None
    """A word (`auto`, `gpu`, `cpu`, `tpu`) is what torchrun takes; Trainer v2.3 takes numbers only."""
    resources: Resources | None = None


class RuntimeRef(msgspec.Struct, frozen=True):
    """`spec.runtimeRef`, with kind and group as written. Empty: Trainer's defaults."""

    place: Place
    name: str = ""
    kind: str = ""
    api_group: str = ""


class PodPatch(msgspec.Struct, frozen=True):
    """What one of `runtimePatches` sets in the pods of a ReplicatedJob. It does not change fields that are empty."""

    job: str
    pods: PodTemplate
    manager: str = ""


class TrainJob(msgspec.Struct, frozen=True):
    """A TrainJob."""

    name: str
    place: Place
    runtime: RuntimeRef
    namespace: str = ""
    trainer: Trainer | None = None
    initializers: Mapping[str, Place] = {}
    """The initializers of `spec.initializer`, by Trainer's step: `dataset-initializer`, `model-initializer`."""
    patches: tuple[PodPatch, ...] = ()
    suspended: bool = False
    active_deadline_seconds: int | None = None
    managed_by: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class JobSet(msgspec.Struct, frozen=True):
    """A JobSet that a user wrote, without a TrainJob."""

    name: str
    place: Place
    spec: JobSetSpec
    namespace: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class LifecyclePolicy(msgspec.Struct, frozen=True):
    """A policy of a Volcano Job, or of one of its tasks: an action, and the events or the exit code that trigger it."""

    place: Place
    action: str = ""
    events: Mapping[str, Place] = {}
    """The place of each event, by name."""
    exit_code: int | None = None
    unread: bool = False
    """Neither the events nor the exit code could be read."""


class Task(msgspec.Struct, frozen=True):
    """A task of a Volcano Job."""

    name: str
    place: Place
    pods: PodTemplate
    replicas: int | None = None
    min_available: int | None = None
    policies: tuple[LifecyclePolicy, ...] = ()


class VolcanoJob(msgspec.Struct, frozen=True):
    """A Job of `batch.volcano.sh`."""

    name: str
    place: Place
    tasks: tuple[Task, ...] = ()
    plugins: Mapping[str, tuple[str, ...]] = {}
    """The plugins by name, with their arguments: `pytorch: ["--master=master", "--worker=worker", "--port=23456"]`."""
    min_available: int | None = None
    max_retry: int | None = None
    policies: tuple[LifecyclePolicy, ...] = ()
    annotations: Mapping[str, str] = {}


class PyTorchJob(msgspec.Struct, frozen=True):
    """A PyTorchJob of training-operator v1, for which only the way to Trainer v2 is shown."""

    name: str
    place: Place


Object = TrainJob | Runtime | JobSet | VolcanoJob | PyTorchJob
