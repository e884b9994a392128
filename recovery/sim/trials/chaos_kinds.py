"""Maps the actions of chaos to kinds of fault."""

from recovery.scenario.schema import (
    ChaosTarget,
    ClusterAction,
    Component,
    HttpAction,
    MachineAction,
    NetworkAction,
    PodAction,
    UserAction,
)
from recovery.sim.trials.faults import FaultKind

POD_KINDS = {
    PodAction.POD_KILL: FaultKind.POD_KILL,
    PodAction.CONTAINER_KILL: FaultKind.CONTAINER_KILL,
    PodAction.POD_FAILURE: FaultKind.CRASH_LOOP,
    PodAction.CASCADE: FaultKind.CASCADE,
    PodAction.POD_EVICT: FaultKind.POD_EVICT,
    PodAction.POD_PREEMPT: FaultKind.POD_PREEMPT,
    PodAction.POD_STUCK: FaultKind.POD_STUCK,
}
EXIT_CODES = {PodAction.CONTAINER_KILL: 137, PodAction.POD_FAILURE: 1, PodAction.CASCADE: 1}
MACHINE_KINDS = {
    MachineAction.POWER_LOSS: FaultKind.NODE_POWER_LOSS,
    MachineAction.REMOVE: FaultKind.NODE_REMOVE,
    MachineAction.OUT_OF_SERVICE: FaultKind.NODE_OUT_OF_SERVICE,
    MachineAction.DRAIN: FaultKind.NODE_DRAIN,
    MachineAction.UNHEALTHY: FaultKind.NODE_UNHEALTHY,
    MachineAction.MONITORED: FaultKind.NODE_MONITORED,
    MachineAction.HELD: FaultKind.NODE_HELD,
    MachineAction.BLACK_HOLE: FaultKind.BLACK_HOLE,
    MachineAction.BROKEN_RUNTIME: FaultKind.BROKEN_RUNTIME,
    MachineAction.RACK_POWER_LOSS: FaultKind.RACK_POWER_LOSS,
    MachineAction.RACK_OVERHEATS: FaultKind.RACK_OVERHEATS,
}
STALLS = {
    Component.MANAGER: FaultKind.MANAGER_STALL,
    Component.JOBSET: FaultKind.JOBSET_STALL,
    Component.TRAINER: FaultKind.TRAINER_STALL,
}
CLUSTER_KINDS = {
    ClusterAction.NO_CAPACITY: FaultKind.NO_CAPACITY,
    ClusterAction.PODS_REFUSED: FaultKind.PODS_REFUSED,
    ClusterAction.JOB_WITHOUT_PODS: FaultKind.JOB_WITHOUT_PODS,
    ClusterAction.PAUSE_ALL: FaultKind.PAUSE_ALL,
}
USER_KINDS = {
    UserAction.SUSPEND: FaultKind.USER_SUSPEND,
    UserAction.RESIZE: FaultKind.USER_RESIZE,
    UserAction.DELETE: FaultKind.USER_DELETE,
    UserAction.RECREATE: FaultKind.USER_RECREATE,
    UserAction.DELETE_JOB: FaultKind.USER_DELETE_JOB,
    UserAction.DELETE_JOBSET: FaultKind.USER_DELETE_JOBSET,
    UserAction.PAUSE: FaultKind.USER_PAUSE,
    UserAction.RESTART: FaultKind.USER_RESTART,
    UserAction.RETRY: FaultKind.USER_RETRY,
    UserAction.RESET_BUDGET: FaultKind.USER_RESET_BUDGET,
    UserAction.QUARANTINE: FaultKind.USER_QUARANTINE,
    UserAction.RELEASE: FaultKind.USER_RELEASE,
    UserAction.UNTAINT: FaultKind.USER_UNTAINT,
    UserAction.RESET_BREAKER: FaultKind.USER_RESET_BREAKER,
    UserAction.POLICY_OBSERVE: FaultKind.POLICY_OBSERVE,
    UserAction.POLICY_DELETE: FaultKind.POLICY_DELETE,
}
OF_NODES = frozenset({UserAction.RELEASE, UserAction.UNTAINT, UserAction.RESET_BREAKER})
"""User actions that concern the whole cluster, not one job."""
HTTP_KINDS = {
    (HttpAction.ABORT, ChaosTarget.REQUEST, None): FaultKind.TIMEOUT,
    (HttpAction.ABORT, ChaosTarget.RESPONSE, None): FaultKind.TIMEOUT_APPLIED,
    (HttpAction.ABORT, ChaosTarget.WATCH, None): FaultKind.WATCH_DISCONNECT,
    (HttpAction.DELAY, ChaosTarget.REQUEST, None): FaultKind.DELAYED,
    (HttpAction.DELAY, ChaosTarget.WATCH, None): FaultKind.WATCH_LAG,
    (HttpAction.REPLACE, ChaosTarget.REQUEST, 409): FaultKind.CONFLICT,
    (HttpAction.REPLACE, ChaosTarget.REQUEST, 429): FaultKind.TOO_MANY_REQUESTS,
    (HttpAction.REPLACE, ChaosTarget.REQUEST, 500): FaultKind.SERVER_ERROR,
    (HttpAction.REPLACE, ChaosTarget.RESPONSE, 500): FaultKind.SERVER_ERROR_APPLIED,
    (HttpAction.REPLACE, ChaosTarget.WATCH, 410): FaultKind.WATCH_EXPIRED,
}
LASTING = frozenset(
    {
        PodAction.POD_FAILURE,
        PodAction.POD_STUCK,
        *MACHINE_KINDS,
        NetworkAction.PARTITION,
        NetworkAction.LOSS,
        UserAction.SUSPEND,
        UserAction.PAUSE,
        UserAction.POLICY_OBSERVE,
        UserAction.POLICY_DELETE,
    }
)
"""Actions that need a duration. Other actions on pods, networks and by users take none."""
ONE_POD_EACH = frozenset(
    {
        FaultKind.POD_STUCK,
        FaultKind.CASCADE,
        *(kind for kind in MACHINE_KINDS.values() if kind is not FaultKind.NODE_DRAIN),
        FaultKind.NODE_PARTITION,
    }
)
"""Kinds of faults that affect one pod, or its node: one fault for each selected pod."""
