"""What can go wrong in a trial, as data.

The key of a fault is the actor that it affects, the number of that actor's event, and its kind. So when some faults are
removed from a list, the others still mean the same faults. Shrinking depends on this.
"""

from enum import StrEnum

import msgspec

from recovery.scenario.failure_sign import Sign


class FaultKind(StrEnum):
    """Named as in Chaos Mesh where it has the same fault."""

    # Faults of jobs and nodes. The actor is `world`, the number counts its faults.
    POD_KILL = "pod-kill"
    """A user deletes member pods, with their own grace period."""
    POD_FORCE_DELETE = "pod-force-delete"
    """A user deletes member pods with grace 0: the object is removed at once, its processes end a moment later."""
    POD_EVICT = "pod-evict"
    """The eviction API: DisruptionTarget, then deletion."""
    CONTAINER_KILL = "container-kill"
    """The processes that train exit with `code` and `sign`, all at the same moment if several pods are named."""
    SIDECAR_KILL = "sidecar-kill"
    """The kernel's OOM killer ends `container`, which does not train: 137, OOMKilled."""
    CASCADE = "cascade"
    """One rank exits with `code` and `sign`. The others do not hang, but abort one after the other because of it."""
    POD_PREEMPT = "pod-preempt"
    """The scheduler preempts member pods for a pod of higher priority: DisruptionTarget, then deletion."""
    POD_STUCK = "pod-stuck"
    """A pod is deleted. Its processes ignore SIGTERM and SIGKILL for `seconds`; then its node is reset."""
    CRASH_LOOP = "crash-loop"
    """For `seconds`, rank 0 exits with `code` and `sign` a moment after each start."""
    NODE_POWER_LOSS = "node-power-loss"
    NODE_PARTITION = "node-partition"
    """The node is cut off from the network for `seconds`. Its processes continue to run."""
    NODE_REMOVE = "node-remove"
    """The machine and its Node object are removed. Another node of the same size joins after `seconds`."""
    NODE_OUT_OF_SERVICE = "node-out-of-service"
    """A node loses power, and a while later an operator taints it out-of-service. It is back after `seconds`."""
    NODE_DRAIN = "node-drain"
    """Nodes are cordoned, and their pods evicted one node after the other. The nodes are uncordoned after `seconds`."""
    NODE_UNHEALTHY = "node-unhealthy"
    """For `seconds` a monitor reports bad GPUs in a condition of the node. Running pods are not affected."""
    NODE_MONITORED = "node-monitored"
    """For `seconds` a monitor keeps new pods off the node by a cordon and a taint. Running pods are not affected."""
    NODE_HELD = "node-held"
    """For `seconds` a health agent holds a node: it cordons, taints, annotates and drains it. It prefers nodes that
    have bad GPUs or are quarantined, then those that had, because it finds the same faults as the controller."""
    BLACK_HOLE = "black-hole"
    """A pod is deleted, and for `seconds` every new pod fails on its node, although the node is Ready."""
    BROKEN_RUNTIME = "broken-runtime"
    """A pod is deleted, and for `seconds` its node creates no containers, although it is Ready. New pods wait."""
    RACK_POWER_LOSS = "rack-power-loss"
    """All nodes of a rack lose power within a few seconds."""
    RACK_OVERHEATS = "rack-overheats"
    """The GPUs of a whole rack fall off the bus. Trainings there exit at once. A monitor reports it for `seconds`."""
    NO_CAPACITY = "no-capacity"
    """All free nodes are cordoned for `seconds`."""
    PODS_REFUSED = "pods-refused"
    """A webhook or quota refuses new pods for `seconds`: FailedCreate."""
    JOB_WITHOUT_PODS = "job-without-pods"
    """The Job controller overlooks Jobs created within `seconds` until something on them changes (k/k 131917)."""
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
    """A user deletes the workload and recreates it under the same name."""
    USER_RESIZE = "user-resize"
    """A user changes parallelism and completions of the Job that trains by `pods_more`."""
    USER_DELETE_JOB = "user-delete-job"
    """A user deletes the Job that trains, with its pods; JobSet recreates it."""
    USER_DELETE_JOBSET = "user-delete-jobset"
    """A user deletes the JobSet of a TrainJob, with its Jobs and pods; Trainer recreates it."""
    KUEUE_EVICT = "kueue-evict"
    """Kueue evicts the job, and admits it again after `seconds`."""
    USER_PAUSE = "user-pause"
    """`recovery pause`. The pause ends after `seconds`."""
    USER_RESTART = "user-restart"
    """`recovery restart`: a manual incident."""
    USER_RETRY = "user-retry"
    USER_RESET_BUDGET = "user-reset-budget"
    USER_QUARANTINE = "user-quarantine"
    """`recovery quarantine` of a node."""
    USER_RELEASE = "user-release"
    """`recovery release` of all quarantined nodes."""
    USER_UNTAINT = "user-untaint"
    """A user removes our taint from a quarantined node by hand."""
    USER_RESET_BREAKER = "user-reset-breaker"
    """`recovery reset-breaker`."""
    PAUSE_ALL = "pause-all"
    """The RecoveryConfig pauses every job for `seconds`."""
    POLICY_OBSERVE = "policy-observe"
    """The policy is switched from Enforce to Observe, and back after `seconds`."""
    POLICY_DELETE = "policy-delete"
    """The policy is deleted, and recreated after `seconds`."""
    # Faults of controller processes. The actor is a replica (`controller-0`), the number counts its requests.
    PROCESS_KILL = "process-kill"
    """The process dies just before it sends the request, and starts again after `seconds`."""
    PROCESS_KILL_AFTER = "process-kill-after"
    """The request is applied, and the process dies before the response arrives."""
    PROCESS_FREEZE = "process-freeze"
    """The process stops for `seconds`, at any point of its work, and then continues as if nothing had happened."""
    CLOCK_JUMP = "clock-jump"
    """The process's wall clock is off by `seconds` from now on, until the process restarts or the healing begins."""
    # Faults of requests of controller processes.
    CONFLICT = "conflict"
    """409 although nothing has changed, as if another write had come between and been undone."""
    TOO_MANY_REQUESTS = "too-many-requests"
    """429 with Retry-After `seconds`."""
    SERVER_ERROR = "server-error"
    """500, not applied."""
    SERVER_ERROR_APPLIED = "server-error-applied"
    TIMEOUT = "timeout"
    """No response, not applied."""
    TIMEOUT_APPLIED = "timeout-applied"
    DELAYED = "delayed"
    """The request is applied after `seconds`, even if its sender has died or given up by then."""
    # Faults of watches of controller processes. The number counts the lines of all of a replica's watches.
    WATCH_DISCONNECT = "watch-disconnect"
    WATCH_STALL = "watch-stall"
    """Nothing arrives for `seconds`, then everything arrives."""
    WATCH_EXPIRED = "watch-expired"
    """410: the resourceVersion of the watch is too old."""
    WATCH_DUPLICATE = "watch-duplicate"
    """The line arrives twice."""
    WATCH_LAG = "watch-lag"
    """This stream lags `seconds` behind the others until it is reopened or the healing begins."""


class FaultKey(msgspec.Struct, frozen=True, order=True):
    """`actor`: `world`, or a replica of the controller."""

    actor: str
    number: int
    kind: FaultKind

    def __str__(self) -> str:
        return f"{self.actor}/{self.number}/{self.kind}"


class TrialFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault. Its kind decides which fields have a meaning."""

    key: FaultKey
    seconds: float = 0.0
    """How long it lasts."""
    at_seconds: float | None = None
    """When it happens, from the start of the trial. None: at the actor's event of that number."""
    job: str = ""
    """Namespace and name of the job that it affects, joined by a slash."""
    indexes: tuple[int, ...] = ()
    """Completion indexes of the pods that it affects, or whose nodes it affects. In a group of several Jobs they
    continue from Job to Job. For faults of processes at a moment: the replicas."""
    code: int = 0
    """Exit code, where the sign has none of its own."""
    sign: Sign = Sign.NONE
    """What the exits leave behind."""
    node: str = ""
    """Name of the node that it affects. Empty: that of the pods."""
    container: str = ""
    """Name of the container that it affects. Empty: the one that trains."""
    pods_more: int = 0
    """How many more pods a Job gets. Negative: fewer."""
