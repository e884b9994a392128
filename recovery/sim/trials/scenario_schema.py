"""The words of a scenario file: its fields, their meaning and their defaults. `scenario.py` says what they come to.

Kinds, actions, modes and the fields of chaos are called as in Chaos Mesh (api/v1alpha1: PodChaos, NetworkChaos,
HTTPChaos, TimeChaos, StressChaos, PhysicalMachineChaos) where it has the thing; ClusterChaos, KueueChaos and UserChaos
are ours.
Pods are selected by job and completion index, because their names differ from one incarnation to the next.
"""

from enum import StrEnum
from typing import Any

import msgspec

from recovery.sim.trials.failure_signs import Sign
from recovery.sim.trials.plan import JobAdmission, Marking, PlannedRuntime, Sidecar


class ScenarioPart(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Durations are written as in our policies: 10s, 5m, 2h."""


class ScenarioControllers(ScenarioPart, frozen=True):
    replicas: int = 2
    """Controller processes that stand for election."""
    lease_seconds: int = 15


class ScenarioCluster(ScenarioPart, frozen=True):
    nodes: int | None = None
    """Nodes in all. None: what the jobs need, and the spares."""
    spares: int | None = None
    """Nodes beyond what the jobs need. None: 2, if `nodes` does not say otherwise."""
    gpus_per_node: int = 8
    allow_fail_job: bool = True
    """What the RecoveryConfig allows policies, where `config` is not said."""
    config: dict[str, Any] | None = None
    """Spec of the RecoveryConfig. None: it says no more than `allowFailJob`."""
    birth_settings: bool | None = None
    """The component birth-settings is installed, without which no group changes its size. None: where a policy has
    `elastic`."""


class ScenarioJob(ScenarioPart, frozen=True):
    name: str
    namespace: str = "default"
    runtime: PlannedRuntime = PlannedRuntime.SHIPPED
    pods: int = 8
    gpus_per_pod: int = 8
    grace_period_seconds: int = 30
    total_steps: int | None = None
    """None: it trains until the trial ends."""
    policy: dict[str, Any] | None = None
    """Spec of its RecoveryPolicy, less the selector; {} is all defaults, mode Observe among them. None: no policy."""
    sidecars: tuple[Sidecar, ...] = ()
    """Containers beside the one that trains, in each pod."""
    training_container: Marking = Marking.ACCELERATORS
    """Of a bare JobSet: how the controller knows which container trains."""
    admission: JobAdmission = JobAdmission.AT_ONCE
    admitted_after: str | None = None
    """With `admission` by-user or by-kueue: it is created suspended, and resumed so long after. None: 30s."""
    active_deadline_seconds: int | None = None
    """Of the TrainJob. None: it may take any time."""


class ScenarioRates(ScenarioPart, frozen=True):
    """Chaos beyond what is listed, drawn from the seed: how probable a fault is, for each event it could affect."""

    process: float = 0.0
    """Per request of a controller: it dies, freezes, its clock jumps."""
    request: float = 0.0
    """Per request: it fails."""
    line: float = 0.0
    """Per line of a watch."""


class SelectionMode(StrEnum):
    """How many of the selected are affected: chosen by the scenario's seed."""

    ONE = "one"
    ALL = "all"
    FIXED = "fixed"
    """`value` of them."""
    FIXED_PERCENT = "fixed-percent"
    """`value` per cent of them, rounded down."""


class Component(StrEnum):
    """What of the platform can stand still."""

    MANAGER = "kube-controller-manager"
    JOBSET = "jobset-controller"
    TRAINER = "trainer-controller"


class ChaosSelector(ScenarioPart, frozen=True):
    """One of `job`, `controller` and `component`."""

    job: str = ""
    """`namespace/name`, or the name alone where no other job has it."""
    indexes: tuple[int, ...] = ()
    """With `job`: completion indexes of the pods. Empty: all."""
    controller: int | None = None
    """A replica of the controller, from 0."""
    component: Component | None = None


class Chaos(ScenarioPart, frozen=True, tag_field="kind"):
    """What happens, and when: one of `at` and `event`."""

    at: str = ""
    """From the start of the trial."""
    event: int | None = None
    """Which of a controller's requests, or of the lines that its watches get, from 0, over all its processes. What
    happens to a request or a watch is known by that number, and is best taken from a trial that was seen."""
    selector: ChaosSelector = ChaosSelector()


class PodAction(StrEnum):
    POD_KILL = "pod-kill"
    CONTAINER_KILL = "container-kill"
    POD_FAILURE = "pod-failure"
    """For `duration`, rank 0 exits with `exitCode` a moment after each start."""
    CASCADE = "cascade"
    """Ours: one rank exits with `exitCode` and `sign`, and the others abort one after the other because of it."""
    POD_EVICT = "pod-evict"
    """Ours: the eviction API."""
    POD_PREEMPT = "pod-preempt"
    """Ours: the scheduler preempts them for a pod of higher priority."""
    POD_STUCK = "pod-stuck"
    """Ours: deleted, and its processes do not end before `duration` has passed."""


class ChaosTarget(StrEnum):
    """Which half of an exchange is struck. WATCH is ours: a watch of the controller's."""

    REQUEST = "Request"
    """Before the server has applied it."""
    RESPONSE = "Response"
    """After."""
    WATCH = "Watch"


class PodChaos(Chaos, frozen=True, kw_only=True, tag="PodChaos"):
    """Of a job's pods; `container-kill` also of a controller's, which is started again after `duration`."""

    action: PodAction
    mode: SelectionMode | None = None
    """Must be said of a job's pods, but not of `pod-failure`."""
    value: int | str | None = None
    duration: str | None = None
    grace_period: int | None = None
    """`pod-kill`: 0 deletes by force. None: the pod's own grace, as kubectl deletes (Chaos Mesh: by force)."""
    exit_code: int | None = None
    """None: that of `sign`, else 137 of `container-kill`, 1 of the others."""
    sign: Sign | None = None
    """What the exits leave behind (ours). None: nothing but the code."""
    target: ChaosTarget | None = None
    """`container-kill` of a controller at an `event`: before that request is sent, or when it has been applied."""
    container_names: tuple[Sidecar, ...] = ()
    """`container-kill` of the job's sidecars, by the kernel for want of memory. Empty: of the containers that train."""


class MachineAction(StrEnum):
    """Ours: Chaos Mesh switches off machines through virsh and cloud APIs."""

    POWER_LOSS = "power-loss"
    REMOVE = "remove"
    """Machine and Node are taken away; another one joins after `duration`."""
    OUT_OF_SERVICE = "out-of-service"
    """Power is lost, and an operator taints the node out-of-service a while later."""
    DRAIN = "drain"
    """The nodes are cordoned and their pods evicted, one node after the other."""
    UNHEALTHY = "unhealthy"
    """A monitor says in a condition that the GPUs are bad."""
    MONITORED = "monitored"
    """A monitor cordons and taints the node."""
    BLACK_HOLE = "black-hole"
    """A pod is deleted, and its node lets every new one fail."""
    BROKEN_RUNTIME = "broken-runtime"
    """A pod is deleted, and its node makes no container: new pods wait there."""
    RACK_POWER_LOSS = "rack-power-loss"
    """All nodes of the rack (four each) lose power within seconds."""
    RACK_OVERHEATS = "rack-overheats"
    """The GPUs of all nodes of the rack fall off the bus."""


class PhysicalMachineChaos(Chaos, frozen=True, kw_only=True, tag="PhysicalMachineChaos"):
    """The nodes of the selected pods."""

    action: MachineAction
    mode: SelectionMode
    value: int | str | None = None
    duration: str


class NetworkAction(StrEnum):
    PARTITION = "partition"
    """The nodes of the selected pods are cut off; what runs there goes on."""
    LOSS = "loss"
    """A controller's watch: nothing arrives for `duration`, then all of it."""
    DUPLICATE = "duplicate"
    """A controller's watch: a line arrives twice."""


class NetworkChaos(Chaos, frozen=True, kw_only=True, tag="NetworkChaos"):
    action: NetworkAction
    mode: SelectionMode | None = None
    """Must be said of a partition."""
    value: int | str | None = None
    duration: str | None = None


class HttpAction(StrEnum):
    ABORT = "abort"
    """No answer; a watch is disconnected."""
    DELAY = "delay"
    """A request travels for `delay`; a watch runs that much behind the others."""
    REPLACE = "replace"
    """The answer is `code`."""


class HttpChaos(Chaos, frozen=True, kw_only=True, tag="HTTPChaos"):
    """A request or a watch of a controller."""

    action: HttpAction
    target: ChaosTarget = ChaosTarget.REQUEST
    delay: str | None = None
    code: int | None = None
    """Request: 409, 429, 500. Response: 500. Watch: 410."""
    retry_after: str | None = None
    """With 429. None: 1s."""


class TimeChaos(Chaos, frozen=True, kw_only=True, tag="TimeChaos"):
    """A controller's wall clock."""

    time_offset: str
    """May begin with a minus."""


class StressChaos(Chaos, frozen=True, kw_only=True, tag="StressChaos"):
    """A controller or a component of the platform gets no CPU, and then goes on as if nothing had been."""

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
    """The quota goes to another job, and comes back after `duration`."""


class KueueChaos(Chaos, frozen=True, kw_only=True, tag="KueueChaos"):
    """What Kueue does to a job with `admission: by-kueue`."""

    action: KueueAction
    duration: str


class UserAction(StrEnum):
    SUSPEND = "suspend"
    DELETE = "delete"
    RECREATE = "recreate"
    RESIZE = "resize"
    """Of the Job that trains, to `value` pods more, or fewer."""
    PAUSE = "pause"
    RESTART = "restart"
    RETRY = "retry"
    RESET_BUDGET = "reset-budget"
    QUARANTINE = "quarantine"
    """Of the node of the job's first pod."""
    RELEASE = "release"
    """Of all nodes that are quarantined."""
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
    """With `resize`: how many pods more; negative: fewer."""


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


class ScenarioFile(ScenarioPart, frozen=True):
    """A scenario file."""

    name: str
    jobs: tuple[ScenarioJob, ...]
    seed: int = 0
    duration: str = "90m"
    """In which chaos begins and ends."""
    healing: str = "60m"
    """After it: everything returns, and nothing breaks."""
    controllers: ScenarioControllers = ScenarioControllers()
    cluster: ScenarioCluster = ScenarioCluster()
    chaos: tuple[AnyChaos, ...] = ()
    rates: ScenarioRates = ScenarioRates()
