"""Which chaos runs on a cluster, and what takes the place of the rest there."""

from collections.abc import Mapping

from recovery.core.model.drill import DrillAction
from recovery.scenario.schema import ClusterAction, MachineAction, PodAction

ON_A_CLUSTER: Mapping[PodAction | MachineAction, DrillAction] = {
    PodAction.POD_KILL: DrillAction.POD_KILL,
    PodAction.POD_EVICT: DrillAction.POD_EVICT,
    PodAction.PROCESS_KILL: DrillAction.PROCESS_KILL,
    MachineAction.CORDON: DrillAction.CORDON,
    MachineAction.TAINT: DrillAction.TAINT,
    MachineAction.CONDITION: DrillAction.CONDITION,
}

INSTEAD: Mapping[str, str] = {
    PodAction.CONTAINER_KILL: "process-kill",
    PodAction.POD_FAILURE: "process-kill, and once more with during: Resuming",
    PodAction.CASCADE: "process-kill with mode: one; the others abort without help",
    PodAction.POD_PREEMPT: "pod-evict",
    PodAction.POD_STUCK: "pod-kill, and let the program ignore SIGTERM",
    MachineAction.DRAIN: "cordon and pod-evict",
    MachineAction.UNHEALTHY: "condition",
    MachineAction.MONITORED: "cordon and taint",
    MachineAction.HELD: "cordon, taint and pod-evict",
}
"""What to say on a cluster in place of an action of the simulator. The others have no equivalent there."""

ONLY_ON_A_CLUSTER: Mapping[str, tuple[PodAction | MachineAction | ClusterAction, ...]] = {
    PodAction.PROCESS_KILL: (PodAction.CONTAINER_KILL,),
    MachineAction.CORDON: (MachineAction.DRAIN, ClusterAction.NO_CAPACITY),
    MachineAction.TAINT: (MachineAction.MONITORED,),
    MachineAction.CONDITION: (MachineAction.UNHEALTHY,),
}
"""What the simulator has in place of an action on a cluster, the nearest first."""

SIMULATED_KINDS = frozenset(
    {"NetworkChaos", "HTTPChaos", "TimeChaos", "StressChaos", "ClusterChaos", "KueueChaos", "UserChaos"}
)


def does_not_run(what: str) -> str:
    """The end of a sentence about chaos that does not run on a cluster."""
    instead = INSTEAD.get(what)
    fix = f"say {instead}" if instead else "it stays with the simulator: `recovery simulate`, in a file without target"
    return f"{what} does not run on a cluster; {fix}"
