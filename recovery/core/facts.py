"""What is known about a group at one moment: frozen records, nothing derived.

Times are aware UTC datetimes. The API server writes most of them in whole seconds, so two facts of the same second have
no order between them. Tuples are ordered as the comments say; None is explained where it can occur.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec


class GroupKey(msgspec.Struct, frozen=True, order=True):
    """Names a group of pods that fail and restart together, by the name of its JobSet and of its TrainJob."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Condition(msgspec.Struct, frozen=True):
    """A Kubernetes status condition. `since` is lastTransitionTime, None if absent."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class ExitFacts(msgspec.Struct, frozen=True):
    """How a container ended. `finished_at` None: the kubelet did not say."""

    code: int
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerFacts(msgspec.Struct, frozen=True):
    """One container or init container of a pod."""

    name: str
    restarts: int = 0
    running_since: datetime | None = None
    """None: not running."""
    exit: ExitFacts | None = None
    """`state.terminated`. None: not terminated."""
    last_exit: ExitFacts | None = None
    """`lastState.terminated`, the exit before the latest restart. None: never restarted."""
    waiting_reason: str = ""
    """`state.waiting.reason`, such as ImagePullBackOff; empty if not waiting."""


class PodFacts(msgspec.Struct, frozen=True):
    """A member pod, or the last that was seen of one."""

    name: str
    uid: str
    job_uid: str
    """UID of the controlling Job: the incarnation that this pod belongs to."""
    job_name: str
    index: int | None
    """Completion index, None for a Job that is not Indexed."""
    created_at: datetime
    resource_version: str = ""
    node: str = ""
    """Empty: not scheduled."""
    phase: str = "Pending"
    gpus: int = 0
    ready: bool = False
    ready_since: datetime | None = None
    deleting_since: datetime | None = None
    """When the deletion was asked for (deletionTimestamp less the grace period). None: not being deleted."""
    grace_seconds: int = 30
    """terminationGracePeriodSeconds of the spec."""
    deletion_grace_seconds: int | None = None
    """metadata.deletionGracePeriodSeconds: the grace of the deletion under way. None: not being deleted."""
    containers: tuple[ContainerFacts, ...] = ()
    init_containers: tuple[ContainerFacts, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """Only conditions that tell of trouble: DisruptionTarget=True, PodScheduled=False."""
    joined_probe: bool = False
    """Ready says that the rank has joined all the others (`policy.JOINED_PROBE_ANNOTATION`), not only that it runs."""
    gone_at: datetime | None = None
    """When the object was seen to disappear while its Job lived on. None: the object exists."""

    @property
    def running(self) -> bool:
        """All containers run. A pod that is being deleted still counts: its processes live."""
        return (
            self.gone_at is None
            and self.phase == "Running"
            and bool(self.containers)
            and all(c.running_since is not None for c in self.containers)
        )


class ExitCodesRequirement(msgspec.Struct, frozen=True):
    """`onExitCodes`; `container_name` None: any container."""

    operator: str
    values: tuple[int, ...]
    container_name: str | None = None


class PodConditionPattern(msgspec.Struct, frozen=True):
    """One item of `onPodConditions`."""

    type: str
    status: str = "True"


class PodFailureRule(msgspec.Struct, frozen=True):
    """One rule of a Job's podFailurePolicy: exactly one of the two requirements is set."""

    action: str
    on_exit_codes: ExitCodesRequirement | None = None
    on_pod_conditions: tuple[PodConditionPattern, ...] = ()


class JobFacts(msgspec.Struct, frozen=True):
    """A child Job of the JobSet."""

    name: str
    uid: str
    resource_version: str
    jobset_uid: str
    replicated_job: str
    created_at: datetime
    restart_attempt: int = 0
    deleting_since: datetime | None = None
    suspended: bool = False
    parallelism: int = 1
    completions: int | None = None
    backoff_limit: int = 6
    pod_restart_policy: str = "Never"
    pod_failure_rules: tuple[PodFailureRule, ...] = ()
    active: int = 0
    failed: int = 0
    succeeded: int = 0
    conditions: tuple[Condition, ...] = ()
    touched: str = ""
    """Value of the annotation that the watchdog touches (`recovery.trainjob.dev/touched`)."""
    failed_create: str = ""
    """Message of the newest FailedCreate Event of the Job; filled by live reads of a Job without pods only."""

    def condition(self, type_: str) -> Condition | None:
        """The condition of that type if its status is True, else None."""
        return next((c for c in self.conditions if c.type == type_ and c.status == "True"), None)


class FailurePolicyRule(msgspec.Struct, frozen=True):
    """One rule of a JobSet's failurePolicy; an empty list of requirements matches everything."""

    name: str
    action: str
    on_job_failure_reasons: tuple[str, ...] = ()
    on_job_failure_message_patterns: tuple[str, ...] = ()
    target_replicated_jobs: tuple[str, ...] = ()


class FailurePolicyFacts(msgspec.Struct, frozen=True):
    """A JobSet's failurePolicy."""

    max_restarts: int = 0
    rules: tuple[FailurePolicyRule, ...] = ()


class ReplicatedJobFacts(msgspec.Struct, frozen=True):
    """One replicatedJob of the JobSet's spec. `ancestor`: Trainer's step label, such as `trainer`."""

    name: str
    replicas: int = 1
    ancestor: str = ""
    waits_for_complete: tuple[str, ...] = ()
    """The ReplicatedJobs that `dependsOn` wants Complete before this one starts."""


class JobSetFacts(msgspec.Struct, frozen=True):
    """The JobSet of the workload. `failure_policy` None: a failed Job fails the JobSet."""

    name: str
    uid: str
    resource_version: str
    generation: int
    created_at: datetime
    replicated_jobs: tuple[ReplicatedJobFacts, ...] = ()
    suspended: bool = False
    restarts: int = 0
    restarts_counted: int = 0
    """`status.restartsCountTowardsMax`."""
    terminal_state: str = ""
    """Completed, Failed, or empty."""
    failure_policy: FailurePolicyFacts | None = None
    conditions: tuple[Condition, ...] = ()
    deleting_since: datetime | None = None

    def condition(self, type_: str) -> Condition | None:
        """The condition of that type if its status is True, else None."""
        return next((c for c in self.conditions if c.type == type_ and c.status == "True"), None)


class WorkloadFacts(msgspec.Struct, frozen=True):
    """The object that the user created: a TrainJob, or a JobSet that nothing controls."""

    kind: str
    """TrainJob or JobSet."""
    name: str
    uid: str
    resource_version: str
    generation: int
    created_at: datetime
    suspended: bool = False
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    deleting_since: datetime | None = None

    def condition(self, type_: str) -> Condition | None:
        """The condition of that type if its status is True, else None."""
        return next((c for c in self.conditions if c.type == type_ and c.status == "True"), None)


class NodeFacts(msgspec.Struct, frozen=True):
    """A node as far as explanations need it."""

    name: str
    ready: bool
    ready_since: datetime | None = None
    """When `ready` took its present value."""
    ready_reason: str = ""
    unschedulable: bool = False


class Snapshot(msgspec.Struct, frozen=True):
    """All facts about one group at one moment."""

    key: GroupKey
    workload: WorkloadFacts | None
    """None: the workload is gone."""
    jobset: JobSetFacts | None
    """None: Trainer has not made it yet, or it is gone."""
    jobs: tuple[JobFacts, ...]
    """Member Jobs only (initializers are not members), by name; a dying one is still here."""
    pods: tuple[PodFacts, ...]
    """Pods of member Jobs, past incarnations that still exist included, and those that vanished under a living Job."""
    nodes: Mapping[str, NodeFacts] = {}
    """The nodes that the pods name."""
    trained_at: Mapping[str, datetime] = {}
    """By Job UID: the first moment at which all its members are known to have run at once (`history.all_ran_at`),
    remembered for as long as the Job exists. A Job that is not here has not trained."""
    expected_jobs: int = 0
    """How many member Jobs the JobSet's spec asks for; 0: not known. Fewer may exist while JobSet makes them."""
    live: bool = False
    """Read from the API server for this decision, not from a cache."""
