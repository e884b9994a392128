"""The fields of a scenario file, their meaning and their defaults.

With `jobs` the file describes a trial: `recovery/sim/trials/scenario.py` turns it into a plan. With `target` it
describes an experiment on a job of a cluster: `experiment.py` reads it.

Kinds, actions, modes and fields of chaos have their names from Chaos Mesh (api/v1alpha1: PodChaos, NetworkChaos,
HTTPChaos, TimeChaos, StressChaos, PhysicalMachineChaos) where it has an equivalent. ClusterChaos, KueueChaos and
UserChaos are ours.
Pods are selected by job and completion index, because their names differ from one incarnation to the next.
"""

from enum import StrEnum
from typing import Any

import msgspec

from recovery.core.model.drill import Hypothesis, Objectives
from recovery.core.model.ledger import Phase
from recovery.scenario.failure_sign import Sign
from recovery.scenario.modelled_job import JobAdmission, Marking, PlannedRuntime, PodFailures, Sidecar, TrainingKind

DRILL_TAINT = "recovery.trainjob.dev/drill"
"""Key of the taint that an experiment sets if the file names no other."""


class ScenarioPart(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Durations are written as in our policies: 10s, 5m, 2h."""


class ScenarioControllers(ScenarioPart, frozen=True):
    replicas: int = 2
    """Controller processes that stand for election."""
    lease_seconds: int = 15
    installations: int = 1
    """In how many namespaces they stand for election, by turns."""


class ScenarioCluster(ScenarioPart, frozen=True):
    nodes: int | None = None
    """All nodes of the cluster. None: those that the jobs need, and the spares."""
    spares: int | None = None
    """Nodes beyond what the jobs need. None: 2, if `nodes` does not say otherwise."""
    gpus_per_node: int = 8
    allow_fail_job: bool = True
    """The RecoveryConfig's `allow.failJob`, if `config` is not set."""
    config: dict[str, Any] | None = None
    """Spec of the RecoveryConfig. None: it sets only `allowFailJob`."""
    birth_settings: bool | None = None
    """The component birth-settings is installed. No group changes its size without it. None: it is installed if a
    policy has `elastic`."""


class ScenarioJob(ScenarioPart, frozen=True):
    name: str
    namespace: str = "default"
    runtime: PlannedRuntime = PlannedRuntime.SHIPPED
    pods: int = 8
    gpus_per_pod: int = 8
    grace_period_seconds: int = 30
    total_steps: int | None = None
    """None: it trains until the trial ends."""
    training: TrainingKind = TrainingKind.REQUIRED
    """What the loss of a rank means to the others."""
    pod_failures: PodFailures = PodFailures.NONE
    """The podFailurePolicy of its Jobs."""
    saves_for: str | None = None
    """How long a rank trains on after SIGTERM, while it saves. None: it exits at once."""
    saves_with: int | None = None
    """The code with which it exits then. None: 143."""
    policy: dict[str, Any] | None = None
    """Spec of its RecoveryPolicy without the selector. {}: all defaults, including mode Observe. None: no policy."""
    sidecars: tuple[Sidecar, ...] = ()
    """Containers beside the one that trains, in each pod."""
    training_container: Marking = Marking.ACCELERATORS
    """How the controller knows which container of a bare JobSet trains."""
    admission: JobAdmission = JobAdmission.AT_ONCE
    admitted_after: str | None = None
    """With `admission` by-user or by-kueue: how long after its suspended creation the job is resumed. None: 30s."""
    active_deadline_seconds: int | None = None
    """`spec.activeDeadlineSeconds` of the TrainJob. None: it has no deadline."""
    ttl_seconds_after_finished: int | None = None
    """`spec.ttlSecondsAfterFinished` of its JobSet. None: the JobSet stays."""


class ScenarioRates(ScenarioPart, frozen=True):
    """Further chaos, drawn from the seed: the probability of a fault, for each event that it could affect."""

    process: float = 0.0
    """Per request of a controller: its process dies or freezes, or its clock jumps."""
    request: float = 0.0
    """Per request: it fails."""
    line: float = 0.0
    """Per line of a watch."""


class SelectionMode(StrEnum):
    """How many of the selected are affected. The scenario's seed decides which."""

    ONE = "one"
    ALL = "all"
    FIXED = "fixed"
    """`value` of them."""
    FIXED_PERCENT = "fixed-percent"
    """`value` per cent of them, rounded down."""


class Component(StrEnum):
    """A controller of the platform that can stall."""

    MANAGER = "kube-controller-manager"
    JOBSET = "jobset-controller"
    TRAINER = "trainer-controller"


class ChaosSelector(ScenarioPart, frozen=True):
    """What is affected: one of `job`, `controller` and `component`."""

    job: str = ""
    """`namespace/name`, or the name alone where no other job has it."""
    indexes: tuple[int, ...] = ()
    """With `job`: completion indexes of the pods. Empty: all pods."""
    controller: int | None = None
    """A replica of the controller, from 0."""
    component: Component | None = None


class Chaos(ScenarioPart, frozen=True, tag_field="kind"):
    """What happens, and when. The moment is one of `at`, `during` and `event`."""

    at: str = ""
    """From the start of the trial, or with `target` from the start of the repeat. Empty: with `target` at its start."""
    during: Phase | None = None
    """With `target`, in place of `at` (ours): it waits until the incident is in that phase."""
    event: int | None = None
    """The number of a controller's request, or of a line that its watches receive. It counts from 0, over all processes
    of the replica. Take the number from a trial that has run."""
    selector: ChaosSelector = ChaosSelector()


class PodAction(StrEnum):
    POD_KILL = "pod-kill"
    CONTAINER_KILL = "container-kill"
    POD_FAILURE = "pod-failure"
    """For `duration`, rank 0 exits with `exitCode` a moment after each start."""
    CASCADE = "cascade"
    """Ours: one rank exits with `exitCode` and `sign`. The others then abort one after the other."""
    POD_EVICT = "pod-evict"
    """Ours: the eviction API."""
    POD_PREEMPT = "pod-preempt"
    """Ours: the scheduler preempts them for a pod of higher priority."""
    POD_STUCK = "pod-stuck"
    """Ours: the pod is deleted, but its processes do not end before `duration` has passed."""
    PROCESS_KILL = "process-kill"
    """Ours, with `target`: a process of the rank is killed, and the pod stays."""


class ChaosTarget(StrEnum):
    """Which part of an exchange is affected. WATCH is ours: a watch of the controller."""

    REQUEST = "Request"
    """Before the server applies the request."""
    RESPONSE = "Response"
    """After the server has applied it."""
    WATCH = "Watch"


class PodChaos(Chaos, frozen=True, kw_only=True, tag="PodChaos"):
    """Affects a job's pods. `container-kill` can also affect a controller, which starts again after `duration`."""

    action: PodAction
    mode: SelectionMode | None = None
    """Required for a job's pods, except with `pod-failure`."""
    value: int | str | None = None
    duration: str | None = None
    grace_period: int | None = None
    """With `pod-kill`. 0: force-delete. None: the pod's own grace period, as with kubectl (Chaos Mesh: by force)."""
    exit_code: int | None = None
    """None: the code of `sign` if it has one, else 137 for `container-kill` and 1 for the others."""
    sign: Sign | None = None
    """What the exits leave behind (ours). None: only the code."""
    target: ChaosTarget | None = None
    """With `container-kill` of a controller at an `event`: before that request is sent, or after it is applied."""
    container_names: tuple[Sidecar, ...] = ()
    """With `container-kill`: the kernel's OOM killer ends these sidecars. Empty: the containers that train end."""


class MachineAction(StrEnum):
    """All ours: Chaos Mesh switches off machines through virsh and cloud APIs."""

    POWER_LOSS = "power-loss"
    REMOVE = "remove"
    """The machine and its Node are removed. Another node joins after `duration`."""
    OUT_OF_SERVICE = "out-of-service"
    """The node loses power. A while later an operator taints it out-of-service."""
    DRAIN = "drain"
    """The nodes are cordoned and their pods evicted, one node after the other."""
    UNHEALTHY = "unhealthy"
    """A monitor says in a condition that the GPUs are bad."""
    MONITORED = "monitored"
    """A monitor cordons and taints the node."""
    HELD = "held"
    """A health agent cordons, taints, annotates and drains the node, as NVSentinel does."""
    BLACK_HOLE = "black-hole"
    """A pod is deleted, and every new pod fails on its node."""
    BROKEN_RUNTIME = "broken-runtime"
    """A pod is deleted, and its node creates no containers, so new pods wait there."""
    RACK_POWER_LOSS = "rack-power-loss"
    """All nodes of the rack (four each) lose power within seconds."""
    RACK_OVERHEATS = "rack-overheats"
    """The GPUs of all nodes of the rack fall off the bus."""
    CORDON = "cordon"
    """With `target`: the nodes are cordoned."""
    TAINT = "taint"
    """With `target`: the nodes get a taint."""
    CONDITION = "condition"
    """With `target`: the nodes get the condition RecoveryDrill."""


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class ScenarioTaint(ScenarioPart, frozen=True):
    """A taint that a health agent could set."""

    key: str = DRILL_TAINT
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE


class PhysicalMachineChaos(Chaos, frozen=True, kw_only=True, tag="PhysicalMachineChaos"):
    """The nodes of the selected pods."""

    action: MachineAction
    mode: SelectionMode
    value: int | str | None = None
    duration: str | None = None
    """Not with `target`: what an experiment changes on nodes is taken back at the end of each repeat."""
    taint: ScenarioTaint | None = None
    """With the action `taint`. None: its defaults."""


class NetworkAction(StrEnum):
    PARTITION = "partition"
    """The nodes of the selected pods are cut off from the network. Their processes continue to run."""
    LOSS = "loss"
    """A controller's watch: nothing arrives for `duration`, then everything arrives."""
    DUPLICATE = "duplicate"
    """A controller's watch: a line arrives twice."""


class NetworkChaos(Chaos, frozen=True, kw_only=True, tag="NetworkChaos"):
    action: NetworkAction
    mode: SelectionMode | None = None
    """Required for a partition."""
    value: int | str | None = None
    duration: str | None = None


class HttpAction(StrEnum):
    ABORT = "abort"
    """A request gets no response. A watch is disconnected."""
    DELAY = "delay"
    """A request takes `delay` to arrive. A watch lags that far behind the others."""
    REPLACE = "replace"
    """The response has the status `code`."""


class HttpChaos(Chaos, frozen=True, kw_only=True, tag="HTTPChaos"):
    """Affects a request or a watch of a controller."""

    action: HttpAction
    target: ChaosTarget = ChaosTarget.REQUEST
    delay: str | None = None
    code: int | None = None
    """Request: 409, 429, 500. Response: 500. Watch: 410."""
    retry_after: str | None = None
    """With 429. None: 1s."""


class TimeChaos(Chaos, frozen=True, kw_only=True, tag="TimeChaos"):
    """Sets a controller's wall clock wrong."""

    time_offset: str
    """A duration, which may begin with a minus."""


class StressChaos(Chaos, frozen=True, kw_only=True, tag="StressChaos"):
    """A controller or a component of the platform gets no CPU. Afterwards it continues where it stopped."""

    duration: str


class ClusterAction(StrEnum):
    NO_CAPACITY = "no-capacity"
    PODS_REFUSED = "pods-refused"
    JOB_WITHOUT_PODS = "job-without-pods"
    PAUSE_ALL = "pause-all"
    """The RecoveryConfig pauses every job."""


class ClusterChaos(Chaos, frozen=True, kw_only=True, tag="ClusterChaos"):
    action: ClusterAction
    duration: str


class KueueAction(StrEnum):
    EVICT = "evict"
    """Kueue gives the job's quota to another job, and admits the job again after `duration`."""


class KueueChaos(Chaos, frozen=True, kw_only=True, tag="KueueChaos"):
    """What Kueue does to a job with `admission: by-kueue`."""

    action: KueueAction
    duration: str


class UserAction(StrEnum):
    SUSPEND = "suspend"
    DELETE = "delete"
    RECREATE = "recreate"
    DELETE_JOB = "delete-job"
    """The Job that trains, with its pods. JobSet makes it again."""
    DELETE_JOBSET = "delete-jobset"
    """The JobSet of a TrainJob, with its Jobs. Trainer makes it again."""
    RESIZE = "resize"
    """The Job that trains gets `value` more pods, or fewer if it is negative."""
    PAUSE = "pause"
    RESTART = "restart"
    RETRY = "retry"
    RESET_BUDGET = "reset-budget"
    QUARANTINE = "quarantine"
    """The node of the job's first pod."""
    RELEASE = "release"
    """All quarantined nodes."""
    UNTAINT = "untaint"
    """A user removes our taint from a quarantined node by hand."""
    RESET_BREAKER = "reset-breaker"
    POLICY_OBSERVE = "policy-observe"
    POLICY_DELETE = "policy-delete"


class UserChaos(Chaos, frozen=True, kw_only=True, tag="UserChaos"):
    """What a user does to a job or to its policy, and undoes after `duration`."""

    action: UserAction
    duration: str | None = None
    value: int | None = None
    """With `resize`: how many more pods. Negative: fewer."""


AnyChaos = (
    PodChaos
    | PhysicalMachineChaos
    | NetworkChaos
    | HttpChaos
    | TimeChaos
    | StressChaos
    | ClusterChaos
    | KueueChaos
    | UserChaos
)


class ScenarioTarget(ScenarioPart, frozen=True):
    """A job of a cluster."""

    job: str
    """`namespace/name`, or the name alone: then the namespace is that of the command line."""


class ScenarioLimits(ScenarioPart, frozen=True):
    """What an experiment may affect. It is not started where it could exceed a limit. None: there is no limit."""

    nodes: int | None = None
    """How many nodes it may change."""
    gpus: int | None = None
    """How many GPUs the job may have."""
    checkpoint_age: str | None = None
    """How old the last checkpoint of the job may be."""


class ScenarioFile(ScenarioPart, frozen=True):
    """A scenario file. It has `jobs`, `target` or both."""

    name: str
    jobs: tuple[ScenarioJob, ...] = ()
    """The jobs of the modelled cluster."""
    target: ScenarioTarget | None = None
    """The job that an experiment strikes. None: the file is no experiment."""
    repeat: int = 1
    """With `target`: how many times the chaos happens, each time after the job has recovered."""
    hypothesis: Hypothesis = Hypothesis()
    """With `target`: what is expected of each repeat."""
    slo: Objectives = Objectives()
    """With `target`: what a repeat may cost at most."""
    limits: ScenarioLimits = ScenarioLimits()
    """With `target`."""
    seed: int = 0
    duration: str = "90m"
    """All chaos begins and ends within this time."""
    healing: str = "60m"
    """Time after `duration`, in which everything returns and nothing breaks."""
    controllers: ScenarioControllers = ScenarioControllers()
    cluster: ScenarioCluster = ScenarioCluster()
    chaos: tuple[AnyChaos, ...] = ()
    rates: ScenarioRates = ScenarioRates()
