"""What is known about a group at one moment: frozen records, nothing derived.

Times are aware UTC datetimes. The API server writes most of them in whole seconds, so two facts of the same second have
no known order. The field descriptions give the order of tuples, and the meaning of None where it can occur.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from recovery.core.model.agent_facts import AgentFacts, ProcessesReported
from recovery.core.model.birth_settings import BirthTrial
from recovery.core.model.container_template import ContainerTemplate
from recovery.core.model.demand import Demand
from recovery.core.model.drill import DrillFacts
from recovery.core.model.lost_node import LostNode
from recovery.core.model.native_policy_facts import FailurePolicyFacts, PodFailureRule
from recovery.core.model.node_fault import Fault
from recovery.core.model.progress import Progress


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
    ready: bool = False
    """`ready` of its status: it runs and its readiness probe, if it has one, succeeds."""
    running_since: datetime | None = None
    """None: not running."""
    exit: ExitFacts | None = None
    """`state.terminated`. None: not terminated."""
    last_exit: ExitFacts | None = None
    """`lastState.terminated`, the exit before the latest restart. None: never restarted."""
    waiting_reason: str = ""
    """`state.waiting.reason`, such as ImagePullBackOff; empty if not waiting."""
    waiting_message: str = ""
    image: str = ""
    """Digest of the image that it runs (`imageID`, without the name of the repository). Empty: it has not started."""
    unhealthy_devices: tuple[str, ...] = ()
    """Devices that the kubelet reports as Unhealthy for this container (`allocatedResourcesStatus`, KEP-4680), those of
    DRA claims included: `nvidia.com/gpu: GPU-1f2e`, with the driver's message after it if there is one."""


class PodFacts(msgspec.Struct, frozen=True):
    """A member pod, or its last known state."""

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
    scheduled_at: datetime | None = None
    """When it was scheduled (condition PodScheduled). None: it was not, or the time is not known."""
    accepted_at: datetime | None = None
    """When its kubelet accepted it (`status.startTime`). None: it has not, or did not say."""
    phase: str = "Pending"
    gpus: int = 0
    """Accelerators, including those of DRA claims (`kube.projections.accelerators`)."""
    ready: bool = False
    """The training is Ready: the pod is, or all of its training containers are and only other containers are not."""
    ready_since: datetime | None = None
    """When it became Ready. If only other containers are not Ready: when the training containers started."""
    ready_denied: bool = False
    """The containers are all Ready, and the pod is not: by the node controller, or because of a readiness gate."""
    deleting_since: datetime | None = None
    """When the deletion was requested (deletionTimestamp minus the grace period). None: not being deleted."""
    priority: int = 0
    """`spec.priority`, which the API server takes from the PriorityClass."""
    grace_seconds: int = 30
    """terminationGracePeriodSeconds of the spec."""
    deletion_grace_seconds: int | None = None
    """metadata.deletionGracePeriodSeconds: the grace period of the deletion in progress. None: not being deleted."""
    deletion_dated_again: bool = False
    """`deleting_since` is the date of a delete with a grace period of 0, such as the kubelet's last one. An earlier
    request may have been up to `grace_seconds` before, and the object no longer shows it."""
    ended_before_deletion: tuple[ExitFacts | None, ...] = ()
    """The exits in the last state before its deletion, and None if it was Failed. Empty: nothing had ended, the watch
    has not shown that state, or it is not being deleted."""
    let_go: bool = False
    """Its Job was seen to stop tracking it while it ran, so the Job deletes it on purpose: to suspend, or to shrink."""
    containers: tuple[ContainerFacts, ...] = ()
    """The training containers, once `training_container.assigned` has selected them. Until then all containers."""
    other_containers: tuple[ContainerFacts, ...] = ()
    """Helpers and sidecars, native sidecars included (init containers with restartPolicy Always)."""
    training_known: bool = True
    """False: no rule selects a training container, so `containers` is empty and exits are no evidence."""
    init_containers: tuple[ContainerFacts, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """All but those that only say that the pod is starting or healthy (Initialized, Ready, ContainersReady,
    PodReadyToStartContainers, PodScheduled=True)."""
    reason: str = ""
    """`status.reason`: Evicted, UnexpectedAdmissionError, NodeAffinity; empty: none."""
    message: str = ""
    """`status.message`, its beginning."""
    demand: Demand = Demand()
    index_failures: int = 0
    """How many pods of its index failed before it (`batch.kubernetes.io/job-index-failure-count`). Counted only where
    the Job has a backoffLimitPerIndex."""
    joined_probe: bool = False
    """Ready means that the rank has joined all the others (`policy.JOINED_PROBE_ANNOTATION`), not only that it runs."""
    gone_at: datetime | None = None
    """When the object was seen to disappear while its Job still existed. None: the object exists."""
    dead_since: datetime | None = None
    """Since when its processes count as dead, so that it may be force-deleted. Set by `core.incident.fencing` from the
    facts about its node. None: they may still run."""
    dead_because: str = ""
    """Why, in words."""
    processes: ProcessesReported | None = None
    """Set by `core.diagnosis.agent_view`. None: the container shows its process, because no agent reports another."""
    fault: Fault | None = None
    """Set by `decide` from the rules of the policy. None: no rule names a fault of its node."""

    @property
    def all_containers(self) -> tuple[ContainerFacts, ...]:
        """Init containers first, then the training containers, then the others."""
        return (*self.init_containers, *self.containers, *self.other_containers)

    @property
    def running(self) -> bool:
        """Its training containers run. A pod that is being deleted still counts: its processes still run.

        The phase does not show this: a helper whose image cannot be pulled keeps the whole pod Pending.
        """
        ended = self.processes is not None and not self.processes.running
        if ended or self.gone_at is not None or self.dead_since is not None or self.phase in {"Succeeded", "Failed"}:
            return False
        if not self.training_known:
            return self.phase == "Running"
        return bool(self.containers) and all(c.running_since is not None for c in self.containers)

    @property
    def holds_gpus(self) -> bool:
        """The pod is on a node and has not ended, so no other pod can have its GPUs yet."""
        return self.gone_at is None and bool(self.node) and self.phase not in {"Succeeded", "Failed"}


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
    suspended_at: datetime | None = None
    """When the Job controller had last deleted the pods of the suspended Job. The Job shows that only until it is
    resumed; the store and the ledger remember it. None: not known."""
    parallelism: int = 1
    completions: int | None = None
    backoff_limit: int = 6
    own_backoff_limit: int | None = None
    """The limit before the controller raised it, because ranks wait for a node. None: the controller has not."""
    backoff_limit_per_index: int | None = None
    """How many retries one index has before the Job marks it as failed. None: no limit per index."""
    failed_indexes: str = ""
    """`status.failedIndexes`: the indexes that the Job has marked as failed, such as `1,3-5`."""
    active_deadline_seconds: int | None = None
    """`spec.activeDeadlineSeconds`, counted from `status.startTime` of this Job. None: no deadline."""
    pod_restart_policy: str = "Never"
    containers: tuple[ContainerTemplate, ...] = ()
    """Containers of the pod template. Empty: not known, because a real Job has at least one."""
    demand: Demand = Demand()
    """What its pod template requires of a node."""
    training_container: str = ""
    """The annotation `recovery.trainjob.dev/container` of the pod template; empty: there is none."""
    collective: str = ""
    """The annotation `recovery.trainjob.dev/collective` of the pod template; empty: there is none."""
    pod_failure_rules: tuple[PodFailureRule, ...] = ()
    active: int = 0
    failed: int = 0
    succeeded: int = 0
    status_written_at: datetime | None = None
    """When its status last changed (managedFields): a pod was created, ran, or ended. None: not known."""
    conditions: tuple[Condition, ...] = ()
    touched: str = ""
    """The annotation `recovery.trainjob.dev/touched`."""
    torn_down_by: str = ""
    """The attempt that deletes its pods before the Job (`recovery.trainjob.dev/torn-down-by`). Empty: none does."""
    birth_revision: str = ""
    """The birth settings that it was created with (annotation `recovery.trainjob.dev/birth-settings`). Empty: none."""
    born_nodes: int | None = None
    """The size with which it was created (annotation `recovery.trainjob.dev/nodes`). None: that of its template."""
    gang: str = ""
    """The label or field by which a scheduler places all of its pods or none (a gang has its own size). Empty: none."""
    agent_image: str = ""
    """The image of the volume `recovery-agent` of its pod template. Empty: its pods have no agent."""
    pinned: bool = False
    """Kueue chooses the node of each of its pods (topology-aware scheduling)."""
    failed_create: str = ""
    """Message of the newest FailedCreate Event of the Job. Only a live read of a Job without pods fills it."""
    gone_at: datetime | None = None
    """When the object was seen to be gone. None: it exists."""

    def condition(self, type_: str) -> Condition | None:
        """The condition of that type if its status is True, else None."""
        return next((c for c in self.conditions if c.type == type_ and c.status == "True"), None)


class ReplicatedJobFacts(msgspec.Struct, frozen=True):
    """One replicatedJob of the JobSet's spec. `ancestor`: Trainer's step label, such as `trainer`."""

    name: str
    replicas: int = 1
    ancestor: str = ""
    waits_for_complete: tuple[str, ...] = ()
    """The ReplicatedJobs that `dependsOn` wants Complete before this one starts."""
    size_known: bool = False
    """True: the next two were read from the template."""
    parallelism: int | None = None
    """Of the Job template. None: absent, and the API server defaults it to 1."""
    completions: int | None = None
    """Of the Job template. None: absent."""
    accelerators: int = 0
    """How many accelerators a pod of the template requests."""


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
    success_targets: tuple[str, ...] = ()
    """`spec.successPolicy.targetReplicatedJobs`. Empty: it names none, so all have to succeed."""
    active_deadline_seconds: int | None = None
    """`spec.activeDeadlineSeconds` (KEP-1186, not in JobSet 0.12), counted from the last resume. None: no deadline."""
    ttl_seconds: int | None = None
    """`spec.ttlSecondsAfterFinished`: how long it stays after its end. None: until a client deletes it."""
    conditions: tuple[Condition, ...] = ()
    deleting_since: datetime | None = None
    failed_create: str = ""
    """Message of the newest Event in which JobSet says that it could not create a Job. Only a live read of a JobSet
    without Jobs fills it. Events live for an hour, so the Job may have been created afterwards."""
    failed_create_at: datetime | None = None
    """The date of that Event. JobSet retries many times, but the Event mostly has the date of the second try only."""

    def condition(self, type_: str) -> Condition | None:
        """The condition of that type if its status is True, else None."""
        return next((c for c in self.conditions if c.type == type_ and c.status == "True"), None)

    @property
    def success_jobs(self) -> frozenset[str]:
        """The ReplicatedJobs whose success ends the training of a bare JobSet. Empty: all have to succeed.

        Without a `successPolicy` nothing says what each one is for, so those with accelerators are the training.
        """
        return frozenset(self.success_targets) or frozenset(
            each.name for each in self.replicated_jobs if each.accelerators
        )


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
    active_deadline_seconds: int | None = None
    """`spec.activeDeadlineSeconds`. Trainer counts it from the creation or the last resume (`reconcileDeadline` in
    pkg/controller/trainjob_controller.go, v2.3). None: no deadline."""
    patched_by: tuple[str, ...] = ()
    """Managers of the `spec.runtimePatches` that patch a ReplicatedJob. Kueue is one once it has admitted the job."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    deleting_since: datetime | None = None
    progress: Progress | None = None
    """None: the platform reports none."""

    def condition(self, type_: str) -> Condition | None:
        """The condition of that type if its status is True, else None."""
        return next((c for c in self.conditions if c.type == type_ and c.status == "True"), None)


class Taint(msgspec.Struct, frozen=True):
    """A taint of a node. `since` is timeAdded, None if absent."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    since: datetime | None = None


class NodeFacts(msgspec.Struct, frozen=True):
    """A node."""

    name: str
    ready: bool
    ready_since: datetime | None = None
    """When `ready` last changed."""
    ready_reason: str = ""
    unschedulable: bool = False
    uid: str = ""
    resource_version: str = ""
    reachable: bool = True
    """False: Ready is Unknown, so it is not known what runs there."""
    taints: tuple[Taint, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """All but Ready and those pressure conditions of the kubelet that are False."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Only our own (`policy.OWN_ANNOTATION_PREFIX`)."""
    gpus: int = 0
    """Allocatable accelerators."""
    deleting_since: datetime | None = None
    lease_renewed_at: datetime | None = None
    """`spec.renewTime` of the node's Lease. Read live, if the node is not reachable. None: not read, or it has none."""


class WaitingGroup(msgspec.Struct, frozen=True):
    """A group with members that have no node, or that will soon lose their node and have to be placed again."""

    key: GroupKey
    needed: int
    """How many nodes its members need, including the nodes that they have."""
    feasible: tuple[str, ...]
    """Nodes on which they could run, as in `FleetFacts.feasible`. If some request accelerators, the nodes for these."""
    held: frozenset[str] = frozenset()
    """Nodes on which some of them are, including terminating ones."""


class Room(msgspec.Struct, frozen=True):
    """Where more pods of a group could run now, besides those it has, after the groups that wait before it."""

    pods: int
    """How many more pods."""
    nodes: tuple[str, ...] = ()
    """On which nodes, by name."""
    spares: tuple[str, ...] = ()
    """Those of `nodes` with the label `recovery.trainjob.dev/spare`."""
    reserved: int = 0
    """How many nodes are left to groups that wait."""


class FleetFacts(msgspec.Struct, frozen=True):
    """What a decision about one group needs to know about all nodes of the cluster."""

    nodes: int
    """How many nodes there are."""
    lost: tuple[LostNode, ...] = ()
    """Nodes lost within the last 15 minutes, including those that are back, by time."""
    feasible: tuple[str, ...] | None = ()
    """Nodes on which a pod of the group could run, by name: Ready, not cordoned, without a taint that keeps it off,
    with the labels that it requires and enough accelerators in total (free or not). None: not known yet, or the pods'
    requirements would take too long to evaluate."""
    with_accelerators: tuple[str, ...] | None = None
    """Those of `feasible` that fit a member with accelerators: nodes that fit a launcher may not fit its workers. None:
    no member requests accelerators, or it is not known."""
    pods_per_node: int = 1
    """How many pods of the group one such node has room for."""
    waiting: tuple[WaitingGroup, ...] | None = ()
    """The other groups that wait for nodes, without those that need more of a kind than exist. None: not known yet."""
    room: Room | None = None
    """The room for more pods of the group now. None: not known, or not asked for."""


class UndecodableObject(msgspec.Struct, frozen=True):
    """An object whose content cannot be read, with what its metadata still says. Empty texts: it does not say that."""

    kind: str
    namespace: str
    name: str
    uid: str
    problem: str
    """What is wrong, with the path of the field where that is known."""
    group: GroupKey | None = None
    """The group that is not acted on until the object can be read. None: it belongs to none, or that is not known."""
    resource_version: str = ""

    @property
    def title(self) -> str:
        """How a message names the object: `namespace/name`, or the name where there is no namespace."""
        name = self.name or "without a name"
        return f"{self.namespace}/{name}" if self.namespace else name

    @property
    def sentence(self) -> str:
        return f"{self.kind} {self.title} cannot be read: {self.problem}"


class Snapshot(msgspec.Struct, frozen=True, dict=True):
    """All facts about one group at one moment."""

    key: GroupKey
    workload: WorkloadFacts | None
    """None: the workload is gone."""
    jobset: JobSetFacts | None
    """None: Trainer has not created it yet, or it is gone."""
    jobs: tuple[JobFacts, ...]
    """Member Jobs only (initializers are not members), by name, including those being deleted."""
    pods: tuple[PodFacts, ...]
    """Pods of member Jobs, including past incarnations that still exist and pods that vanished under a living Job."""
    gone_jobs: tuple[JobFacts, ...] = ()
    """Member Jobs that are gone and had trained, by name: of each name the newest. Only the controller that saw them
    knows them. The Job of that name that exists now is another one."""
    nodes: Mapping[str, NodeFacts] = {}
    """The nodes that the pods name."""
    gone_nodes: frozenset[str] = frozenset()
    """Nodes that pods name and that do not exist. In a live snapshot the API server has just said so."""
    fleet: FleetFacts | None = None
    """In live snapshots only. None: not asked for."""
    trained_at: Mapping[str, datetime] = {}
    """By Job UID: the first moment at which all its members are known to have run at once (`trained.all_ran_at`),
    remembered for as long as the Job exists, and while it is in `gone_jobs`. A Job without an entry has not trained."""
    fully_watched: frozenset[str] = frozenset()
    """UIDs of Jobs of which no pod has come and gone unseen. `pods` lacks only those that vanished before another one
    of their rank. Only in a group of several Jobs."""
    met_at: Mapping[str, datetime] = {}
    """By Job UID: when the ledger saw its ranks meet those of the other Jobs for the last time. For a Job without an
    entry, only its pods can show it."""
    trained_members: Mapping[str, int] = {}
    """By Job UID: the largest number of members that are known to have run at once, minus those that were scaled away
    since. A Job without an entry: not known."""
    done: Mapping[str, tuple[PodFacts, ...]] = {}
    """By Job UID: pods in which the training exited 0 before anything asked them to terminate, one for each such rank,
    remembered until the Job is suspended. The pods may have failed, been replaced and vanished since. A Job without an
    entry: no such rank is known."""
    expected_jobs: int = 0
    """How many member Jobs the JobSet's spec asks for; 0: not known. Fewer may exist while JobSet creates them."""
    live: bool = False
    """Read from the API server for this decision, not from a cache."""
    birth_trial: BirthTrial | None = None
    """The result of the latest dry run with birth settings. None: this process has made none."""
    read_at: datetime | None = None
    """When the live read began. With a slow API server facts are older than the decision. None: read from a cache."""
    stale: Mapping[str, datetime] = {}
    """Resources whose watch is silent, by plural, and when it last reported. Empty: all are current."""
    agent: AgentFacts | None = None
    """The latest report of the group's agents. None: this process has none."""
    leaves_out_agents: bool = False
    """This process can have the next Jobs of the group created without the agent."""
    drills: tuple[DrillFacts, ...] = ()
    """The RecoveryDrills of the workload, oldest first."""
    undecodable: tuple[UndecodableObject, ...] = ()
    """Objects of the group that cannot be read, by kind and name. Where one could be read before, its last readable
    state is among the facts."""
