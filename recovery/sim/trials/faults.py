"""What can go wrong in a trial, as data.

A fault is known by the actor that it affects, which of its events it is, and its kind: (actor, number, kind). So a list
of faults from which some were struck out still means the same faults, which is what shrinking needs.
"""

from enum import StrEnum

import msgspec

from recovery.sim.trials.failure_signs import Sign


class FaultKind(StrEnum):
    """Words of Chaos Mesh where it has one."""

    # What happens to jobs and nodes. The actor is `world`, the number counts its faults.
    POD_KILL = "pod-kill"
    """A user deletes member pods, with their grace."""
    POD_FORCE_DELETE = "pod-force-delete"
    """A user deletes them with grace 0: the object goes at once, its processes a moment later."""
    POD_EVICT = "pod-evict"
    """The eviction API: DisruptionTarget, then deletion."""
    CONTAINER_KILL = "container-kill"
    """The processes that train exit with `code` and `sign`; all of them at once if several pods are named."""
    SIDECAR_KILL = "sidecar-kill"
    """The kernel kills `container`, which does not train, for want of memory: 137, OOMKilled."""
    CASCADE = "cascade"
    """One rank exits with `code` and `sign`; the others do not hang, but abort one after the other because of it."""
    POD_PREEMPT = "pod-preempt"
    """The scheduler preempts member pods for a pod of higher priority: DisruptionTarget, then deletion."""
    POD_STUCK = "pod-stuck"
    """A pod is deleted and its processes ignore SIGTERM and SIGKILL until `seconds` have passed (its node is reset)."""
    CRASH_LOOP = "crash-loop"
    """For `seconds`, rank 0 exits with `code` and `sign` a moment after each start."""
    NODE_POWER_LOSS = "node-power-loss"
    NODE_PARTITION = "node-partition"
    """The node is cut off for `seconds`; its processes run on."""
    NODE_REMOVE = "node-remove"
    """The machine and its Node object are taken away; another node of the same size joins after `seconds`."""
    NODE_OUT_OF_SERVICE = "node-out-of-service"
    """A node loses power, and a moment later an operator taints it out-of-service; it is back after `seconds`."""
    NODE_DRAIN = "node-drain"
    """Nodes are cordoned and their pods evicted, one node after the other; they are let in again after `seconds`."""
    NODE_UNHEALTHY = "node-unhealthy"
    """For `seconds` a monitor says in a condition of the node that its GPUs are bad; what runs there runs on."""
    NODE_MONITORED = "node-monitored"
    """For `seconds` a monitor keeps pods off the node, by a cordon and a taint of its own; what runs there runs on."""
    BLACK_HOLE = "black-hole"
    """A pod is deleted, and for `seconds` its node, which says that it is Ready, lets every new pod fail."""
    BROKEN_RUNTIME = "broken-runtime"
    """A pod is deleted, and for `seconds` its node, which says that it is Ready, makes no container: new pods wait."""
    RACK_POWER_LOSS = "rack-power-loss"
    """All nodes of a rack lose power within some seconds."""
    RACK_OVERHEATS = "rack-overheats"
    """The GPUs of a whole rack fall off the bus: what runs there exits at once, and for `seconds` a monitor says so."""
    NO_CAPACITY = "no-capacity"
    """All free nodes are cordoned for `seconds`."""
    PODS_REFUSED = "pods-refused"
    """A webhook or quota refuses new pods for `seconds`: FailedCreate."""
    JOB_WITHOUT_PODS = "job-without-pods"
    """The Job controller overlooks Jobs made within `seconds` until something on them changes (k/k 131917)."""
    MANAGER_STALL = "manager-stall"
    """kube-controller-manager does nothing for `seconds`."""
    JOBSET_STALL = "jobset-stall"
    TRAINER_STALL = "trainer-stall"
    # What users do.
    USER_SUSPEND = "user-suspend"
    """A user suspends the workload, and resumes it after `seconds`."""
    USER_DELETE = "user-delete"
    """A user deletes the workload."""
    USER_RECREATE = "user-recreate"
    """A user deletes the workload and creates it again under the same name."""
    USER_RESIZE = "user-resize"
    """A user changes parallelism and completions of the Job that trains by `pods_more`."""
    USER_DELETE_JOB = "user-delete-job"
    """A user deletes the Job that trains, with its pods; JobSet recreates it."""
    KUEUE_EVICT = "kueue-evict"
    """Kueue takes the quota of the job away, and admits it again after `seconds`."""
    USER_PAUSE = "user-pause"
    """`recovery pause`, and its end after `seconds`."""
    USER_RESTART = "user-restart"
    """`recovery restart`: a manual incident."""
    USER_RETRY = "user-retry"
    USER_RESET_BUDGET = "user-reset-budget"
    USER_QUARANTINE = "user-quarantine"
    """`recovery quarantine` of a node."""
    USER_RELEASE = "user-release"
    """`recovery release` of all nodes that are quarantined."""
    USER_UNTAINT = "user-untaint"
    """A user removes our taint from a quarantined node by hand."""
    USER_RESET_BREAKER = "user-reset-breaker"
    """`recovery reset-breaker`."""
    PAUSE_ALL = "pause-all"
    """The RecoveryConfig pauses every job for `seconds`."""
    POLICY_OBSERVE = "policy-observe"
    """The policy is switched to Observe, and back to what it was after `seconds`."""
    POLICY_DELETE = "policy-delete"
    """The policy is deleted, and made again after `seconds`."""
    # What happens to controller processes. The actor is a replica (`controller-0`), the number counts its requests.
    PROCESS_KILL = "process-kill"
    """Dead just before the request is sent, and started again after `seconds`."""
    PROCESS_KILL_AFTER = "process-kill-after"
    """The request is applied; the process dies before it hears of it."""
    PROCESS_FREEZE = "process-freeze"
    """Stopped for `seconds`, in the middle of whatever it did; then it goes on as if nothing had been."""
    CLOCK_JUMP = "clock-jump"
    """Its wall clock is off by `seconds` from now on, until it is started again or the healing begins."""
    # What happens to requests of controller processes.
    CONFLICT = "conflict"
    """409 though nothing changed: another write got in between and out again."""
    TOO_MANY_REQUESTS = "too-many-requests"
    """429 with Retry-After `seconds`."""
    SERVER_ERROR = "server-error"
    """500, not applied."""
    SERVER_ERROR_APPLIED = "server-error-applied"
    TIMEOUT = "timeout"
    """No answer, not applied."""
    TIMEOUT_APPLIED = "timeout-applied"
    DELAYED = "delayed"
    """The request travels for `seconds` and is applied then, whether its sender still lives and waits or not."""
    # What happens to watches of controller processes. The number counts the lines of all of a replica's watches.
    WATCH_DISCONNECT = "watch-disconnect"
    WATCH_STALL = "watch-stall"
    """Nothing arrives for `seconds`, then all of it."""
    WATCH_EXPIRED = "watch-expired"
    """410: the position is forgotten."""
    WATCH_DUPLICATE = "watch-duplicate"
    """The line arrives twice."""
    WATCH_LAG = "watch-lag"
    """This stream runs `seconds` behind the others until it is opened again or the healing begins."""


class FaultKey(msgspec.Struct, frozen=True, order=True):
    """`actor`: `world`, or a controller's replica."""

    actor: str
    number: int
    kind: FaultKind

    def __str__(self) -> str:
        return f"{self.actor}/{self.number}/{self.kind}"


class TrialFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault. Which fields mean something is said at its kind."""

    key: FaultKey
    seconds: float = 0.0
    """How long it lasts."""
    at_seconds: float | None = None
    """When it happens, from the start of the trial. None: when its actor's event of that number comes."""
    job: str = ""
    """Namespace and name of the job that it affects, joined by a slash."""
    indexes: tuple[int, ...] = ()
    """Completion indexes of the pods that it affects, or whose nodes; in a group of several Jobs they go on from Job to
    Job. For faults of processes at a moment: the replicas."""
    code: int = 0
    """Exit code, where the sign has none of its own."""
    sign: Sign = Sign.NONE
    """What the exits leave behind."""
    node: str = ""
    """Name of the node that it affects. Empty: that of the pods."""
    container: str = ""
    """Name of the container that it affects. Empty: the one that trains."""
    pods_more: int = 0
    """How many pods more a Job is to have; negative: fewer."""
