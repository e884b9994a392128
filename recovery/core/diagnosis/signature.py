"""The rows of the signature table: what a row requires of a loss, its pod and its node, and what a match means."""

from collections.abc import Collection, Iterator
from enum import StrEnum

import msgspec

from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.model.facts import NodeFacts, Snapshot
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT

MESSAGE_MAX = 4096
"""Only this many characters are read, from the end of a message. The kubelet cuts a termination message to this size,
and a process writes last what ended it."""

EXITED = (LossKind.POD_FAILED, LossKind.CONTAINER_RESTARTED, LossKind.PROCESS_ENDED)
"""The kinds of loss in which a process ended and it is known how."""


class DisruptionClass(StrEnum):
    """What a disruption means. These names are API: metrics, status and the rules of policies use them.

    NodeLost: the node is gone, or does not answer any more. HardwareFault: the node runs, but one of its GPUs, links or
    disks, or its kernel, does not. PodDisrupted: the pod was moved on purpose (drain, preemption, taint).
    PodDeleted: the pod or its Job was deleted. Killed: SIGKILL or SIGTERM ended a process, for an unknown reason.
    OutOfMemory: the kernel, the kubelet or CUDA ran out of memory. Crashed: a process ended by a signal that it caused
    itself (abort, segmentation fault). UserError: the script or its settings are wrong. CommunicationFailure: ranks
    could not reach each other, or waited in vain. JobFailed: the Job or the JobSet failed, and no pod shows why.
    Manual: a person asked for the restart. Unknown: nothing shows the cause.
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
    """The state that a row requires of the pod's node."""

    LOST = "gone, or not Ready"
    SILENT = "gone, or not answering"
    CORDONED = "cordoned, not by our own quarantine"


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """One row. It fits if each field fits. In a list, any item suffices. An empty field requires nothing."""

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
    """An RE2 pattern, searched in the termination message, the containers' waiting messages and the pod's message."""
    pod_reasons: tuple[str, ...] = ()
    """`status.reason` of the pod."""
    disrupted_by: tuple[str, ...] = ()
    """Reasons of the condition DisruptionTarget."""
    unhealthy_devices: bool = False
    """The kubelet reports a device of the pod as Unhealthy."""
    node: NodeState | None = None
    """None: any state."""
    node_conditions: tuple[tuple[str, str], ...] = ()
    """Type and status."""
    node_taints: tuple[str, ...] = ()
    """Keys."""
    cascade: bool = False
    """The sign shows that another rank is missing. It is a cause only if there is no other one."""
    blames_node: bool = False
    """The sign proves that the node is at fault, not the job."""

    @property
    def is_specific(self) -> bool:
        """The row requires more than an exit or a reason of DisruptionTarget, so its name says more than these."""
        by_node = self.node_conditions or self.node_taints or self.unhealthy_devices
        return bool(self.message or self.pod_reasons or by_node)


def texts(evidence: Evidence) -> Iterator[str]:
    """The messages about the loss. How the processes of a deleted or disrupted pod ended says nothing about it."""
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
    """The end of the text in valid UTF-8, on which RE2 works. UTF-8 cannot encode half of a surrogate pair."""
    return text[-MESSAGE_MAX:].encode("utf-8", "replace").decode("utf-8")


def fits(row: Signature, evidence: Evidence, snapshot: Snapshot, found: Collection[str]) -> bool:
    """Whether the row fits. `found`: the names of the rows whose pattern matches one of the texts."""
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
    """An inferred loss happened on an unknown node. Its pod is the replacement, and that pod's node says nothing."""
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
            # Our own quarantine follows a loss, so it must not count as the cause.
            return node.unschedulable and all(taint.key != QUARANTINE_TAINT for taint in node.taints)
