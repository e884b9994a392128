"""Evidence to a Disruption: what the loss means, where it began, and what of it is only its consequence."""

from enum import StrEnum

import msgspec

from recovery.core.evidence import Evidence, LossKind
from recovery.core.ledger import Suspect

MAX_SUSPECTS = 8


class DisruptionClass(StrEnum):
    """What a disruption means. These names are API: metrics, status and the rules of policies use them.

    NodeLost: the node is gone, or does not answer any more. HardwareFault: the node runs, a GPU or its link does not.
    PodDisrupted: somebody moved the pod on purpose (drain, preemption, taint). PodDeleted: somebody deleted the pod or
    its Job. Killed: ended by SIGKILL or SIGTERM, nobody says why. OutOfMemory: the kernel's or the kubelet's killer.
    Crashed: ended by a signal of its own making (abort, segmentation fault). UserError: the script, or its settings.
    CommunicationFailure: ranks could not reach each other, or waited in vain. JobFailed: the Job or the JobSet failed
    without a pod that tells why. Manual: a person asked for the restart. Unknown: nothing tells.
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
    UNKNOWN = "Unknown"


class Finding(msgspec.Struct, frozen=True):
    """One piece of evidence and what it means."""

    evidence: Evidence
    disruption_class: DisruptionClass
    signature: str = ""
    """The name of the row of `signatures.SIGNATURES` that tells; empty: the kind of loss alone does."""
    cascade: bool = False
    """The consequence of another loss, not a cause of its own: no rule is asked about it, nobody is suspected for it."""
    blames_node: bool = False
    """Proof enough that the node, not the job, is at fault."""


class Disruption(msgspec.Struct, frozen=True):
    """What the evidence means: the root first, then the other causes by time, then what is only consequence."""

    findings: tuple[Finding, ...]

    @property
    def root(self) -> Finding:
        return self.findings[0]

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return tuple(finding.evidence for finding in self.findings)

    @property
    def disruption_class(self) -> DisruptionClass:
        return self.root.disruption_class

    @property
    def cause(self) -> str:
        """A short CamelCase cause for the printer column: `Exit137`, `Evicted`, `PodDeleted`, `Xid79`."""
        return cause_of(self.root)

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """Where the failure showed first; what is only consequence comes last, and only where nothing else is known."""
        causes = [finding for finding in self.findings if not finding.cascade] or list(self.findings)
        found = [suspect for suspect in (finding.evidence.suspect() for finding in causes) if suspect is not None]
        return tuple(found[:MAX_SUSPECTS])


def classify(evidence: tuple[Evidence, ...]) -> Disruption:
    """What the evidence means. Total: whatever it is, it has a class."""
    return Disruption(tuple(Finding(item, _by_kind(item.kind)) for item in evidence))


_BY_KIND = {
    LossKind.POD_DELETED: DisruptionClass.POD_DELETED,
    LossKind.POD_DISRUPTED: DisruptionClass.POD_DISRUPTED,
    LossKind.NODE_LOST: DisruptionClass.NODE_LOST,
    LossKind.NODE_FAULT: DisruptionClass.HARDWARE_FAULT,
    LossKind.JOB_FAILING: DisruptionClass.JOB_FAILED,
    LossKind.JOB_SET_FAILED: DisruptionClass.JOB_FAILED,
    LossKind.MANUAL: DisruptionClass.MANUAL,
}


def _by_kind(kind: LossKind) -> DisruptionClass:
    return _BY_KIND.get(kind, DisruptionClass.UNKNOWN)


def cause_of(finding: Finding) -> str:
    """A short CamelCase cause for the printer column."""
    root = finding.evidence
    if root.exit is not None:
        return "OOMKilled" if root.exit.reason == "OOMKilled" else f"Exit{root.exit.code}"
    if root.kind is LossKind.POD_DISRUPTED and root.disrupted_by:
        return root.disrupted_by
    return str(root.kind)
