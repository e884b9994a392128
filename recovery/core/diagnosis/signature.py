"""What a row of the signature table can ask of a loss, of its pod and of its node, and what it then means."""

from collections.abc import Collection, Iterator
from enum import StrEnum

import msgspec

from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.model.facts import NodeFacts, Snapshot
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT

MESSAGE_MAX = 4096
"""So much of a message is read, from its end: the kubelet cuts a termination message there, and what ended a
process stands last in what it wrote."""

EXITED = (LossKind.POD_FAILED, LossKind.CONTAINER_RESTARTED)
"""A process ended, and it is known how."""


class DisruptionClass(StrEnum):
    """What a disruption means. These names are API: metrics, status and the rules of policies use them.

    NodeLost: the node is gone, or does not answer any more. HardwareFault: the node runs, but one of its GPUs, links or
    disks, or its kernel, does not. PodDisrupted: the pod was moved on purpose (drain, preemption, taint).
    PodDeleted: the pod or its Job was deleted. Killed: ended by SIGKILL or SIGTERM, for an unknown reason. OutOfMemory:
    the killer of the kernel or of the kubelet, or CUDA refused more. Crashed: ended by a signal of its own making
    (abort, segmentation fault). UserError: the script, or its settings. CommunicationFailure: ranks could not reach
    each other, or waited in vain. JobFailed: the Job or the JobSet failed without a pod that shows why. Manual: a
    person asked for the restart. Unknown: nothing shows the cause.
    """

    NODE_LOST = "NodeLost"
    HARDWARE_FAULT = "HardwareFault"
    POD_DISRUPTED = "PodDisrupted"
    POD_DELETED = "PodDeleted"
    KILLED = "Killed"
    OUT_OF_MEMORY = "OutOfMemory"
    CRASHED = "Crashed"
    USER_ERROR = "UserError"
    COMMUNICATION_FAILURE = "CommunicationFailure"
    JOB_FAILED = "JobFailed"
    MANUAL = "Manual"
    GROWTH = "Growth"
    """Nothing was lost: a smaller group gets nodes again."""
    UNKNOWN = "Unknown"


class NodeState(StrEnum):
    """What a row asks of the pod's node."""

    LOST = "gone, or not Ready"
    SILENT = "gone, or not answering"
    CORDONED = "cordoned, not by our own quarantine"


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """One row. Fields are ANDed, the items of a list ORed; an empty field asks for nothing."""

    name: str
    """CamelCase and stable: status, Events and suspicion show it."""
    disruption_class: DisruptionClass
    means: str
    source: str
    """Where the sign is defined or described."""
    kinds: tuple[LossKind, ...] = ()
    exit_codes: tuple[int, ...] = ()
    exit_reasons: tuple[str, ...] = ()
    message: str = ""
    """RE2, looked for in the termination message, in what the containers wait for, and in the pod's own message."""
    pod_reasons: tuple[str, ...] = ()
    """`status.reason` of the pod."""
    disrupted_by: tuple[str, ...] = ()
    """Reasons of the condition DisruptionTarget."""
    unhealthy_devices: bool = False
    """The kubelet reports a device of the pod as Unhealthy."""
    node: NodeState | None = None
    """None: in whatever state."""
    node_conditions: tuple[tuple[str, str], ...] = ()
    """Type and status."""
    node_taints: tuple[str, ...] = ()
    """Keys."""
    cascade: bool = False
    """It shows that some other rank is missing; it is no cause where there is another."""
    blames_node: bool = False
    """Proof enough that the node, not the job, is at fault."""

    @property
    def is_specific(self) -> bool:
        """It looks at more than how a process ended or who asked a pod to go, so that its name says more than these."""
        by_node = self.node_conditions or self.node_taints or self.unhealthy_devices
        return bool(self.message or self.pod_reasons or by_node)


def texts(evidence: Evidence) -> Iterator[str]:
    """What is said about the loss. A pod that was asked to go says nothing by how its processes then ended."""
    if evidence.exit is not None:
        yield _readable(evidence.exit.message)
    pod = evidence.pod
    if pod is None or evidence.inferred or evidence.kind is LossKind.POD_DELETED:
        return
    if evidence.kind in EXITED:
        for container in (*pod.init_containers, *pod.containers):
            yield _readable(container.waiting_message)
    yield _readable(pod.message)


def _readable(text: str) -> str:
    """RE2 works on UTF-8, which half of a surrogate pair cannot be written in."""
    return text[-MESSAGE_MAX:].encode("utf-8", "replace").decode("utf-8")


def fits(row: Signature, evidence: Evidence, snapshot: Snapshot, found: Collection[str]) -> bool:
    """`found`: the names of the rows whose pattern is in one of the texts."""
    return (
        (not row.kinds or evidence.kind in row.kinds)
        and (not row.message or row.name in found)
        and _exit_fits(row, evidence)
        and _pod_fits(row, evidence)
        and _node_fits(row, evidence, snapshot)
    )


def _exit_fits(row: Signature, evidence: Evidence) -> bool:
    if not row.exit_codes and not row.exit_reasons:
        return True
    ended = evidence.exit
    if ended is None:
        return False
    code_fits = not row.exit_codes or ended.code in row.exit_codes
    return code_fits and (not row.exit_reasons or ended.reason in row.exit_reasons)


def _pod_fits(row: Signature, evidence: Evidence) -> bool:
    if row.disrupted_by and evidence.disrupted_by not in row.disrupted_by:
        return False
    if not row.pod_reasons and not row.unhealthy_devices:
        return True
    pod = evidence.pod
    if pod is None or evidence.inferred:
        return False
    if row.pod_reasons and pod.reason not in row.pod_reasons:
        return False
    return not row.unhealthy_devices or any(container.unhealthy_devices for container in pod.containers)


def _node_fits(row: Signature, evidence: Evidence, snapshot: Snapshot) -> bool:
    """What a replacement was inferred from ran on an unknown node: the node of its successor says nothing."""
    if row.node is None and not row.node_conditions and not row.node_taints:
        return True
    pod = evidence.pod
    if pod is None or not pod.node or evidence.inferred:
        return False
    node = snapshot.nodes.get(pod.node)
    if node is None:
        return row.node in {NodeState.LOST, NodeState.SILENT} and pod.node in snapshot.gone_nodes
    if row.node is not None and not _in_state(node, row.node):
        return False
    if row.node_conditions and not any((each.type, each.status) in row.node_conditions for each in node.conditions):
        return False
    return not row.node_taints or any(taint.key in row.node_taints for taint in node.taints)


def _in_state(node: NodeFacts, state: NodeState) -> bool:
    match state:
        case NodeState.LOST:
            return not node.ready
        case NodeState.SILENT:
            return not node.ready and not node.reachable
        case NodeState.CORDONED:
            # Our own quarantine comes after a loss, and must not be taken for what led to it.
            return node.unschedulable and all(taint.key != QUARANTINE_TAINT for taint in node.taints)
