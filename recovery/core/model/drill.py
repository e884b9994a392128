"""A drill: a failure that a person causes on purpose, to see whether a job recovers.

A RecoveryDrill is the record of one run. Its spec is written with the rights of the person who runs the drill, its
status by the controller alone. The controller takes a failure for a drill only if the pod that failed first was named
in the spec before, and the status says that the name counts (`core.drill.acceptance`).
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from recovery.core.model.reason import Reason

DRILLS_LABEL = "recovery.trainjob.dev/drills"
"""On a Namespace, set by its administrator: whether jobs of the namespace may be drilled."""
DRILLS_ALLOWED = "allowed"
NODE_MARK_ANNOTATION = "recovery.trainjob.dev/drill"
"""On a Node: what a drill has changed there, and until when (`NodeMark` as JSON). The patch that makes the change
writes the mark, and the patch that takes the change back removes it."""
DRILL_CONDITION_TYPE = "RecoveryDrill"
"""The type of the node condition that a drill may set. Clouds replace machines because of the real types."""
DRILL_CLASS = "Drill"
"""Under this class, totals and metrics count what drills have caused."""
DRILL_MAX_SECONDS = 4 * 3600
"""The longest time from the creation of a RecoveryDrill to `expiresAt`."""
NAMES_AFTER_END_SECONDS = 60.0
"""How long after the end of a drill a loss of a named pod is still part of it: the controller may see it late."""


class DrillAction(StrEnum):
    """What a drill does to pods or to nodes of the job."""

    POD_KILL = "pod-kill"
    POD_EVICT = "pod-evict"
    PROCESS_KILL = "process-kill"
    CORDON = "cordon"
    TAINT = "taint"
    CONDITION = "condition"

    @property
    def of_nodes(self) -> bool:
        """The action changes the node of a pod, and is taken back at the end."""
        return self in {DrillAction.CORDON, DrillAction.TAINT, DrillAction.CONDITION}


class ResumesPast(StrEnum):
    """Where the training has to continue. checkpoint: from a checkpoint, not from its beginning."""

    CHECKPOINT = "checkpoint"


class Hypothesis(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What is expected of each repeat."""

    incidents: int = msgspec.field(default_factory=lambda: 1)
    """How many incidents the controller opens."""
    charged: int = msgspec.field(default_factory=int)
    """How many of them are charged to the budget. A drill is charged only for a failure that it did not cause."""
    resumes_past: ResumesPast | None = None
    """Where the training continues. None: that is not judged."""


class Objectives(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What a repeat may cost at most. A repeat that exceeds it has failed, and ends the run."""

    recovery: str | None = None
    """From the failure until the incident has closed, as a duration. None: not judged."""
    idle_gpu_seconds: float | None = None
    """Idle GPU-seconds of all incidents of a repeat. None: not judged."""


class DrilledWorkload(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The TrainJob or JobSet that is drilled."""

    kind: str
    name: str
    uid: str


class NamedPod(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that the drill is about to make fail."""

    number: int
    """From 1, rising by one."""
    repeat: int
    """The repeat of the experiment, from 1."""
    action: DrillAction
    pod: str
    pod_uid: str = msgspec.field(name="podUID")
    node: str = ""
    """Node of the pod."""
    index: int | None = None
    """Completion index of the pod within its Job."""


class DrillEnd(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why the run is over, as the person's client says."""

    at: datetime
    reason: Reason
    """DrillDone: all repeats were run. Else why the run was stopped."""
    message: str = ""
    """The reason as a sentence."""


class DrillSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`spec` of a RecoveryDrill. Pods are added to `pods` while the run goes on; `end` is written once."""

    workload_ref: DrilledWorkload
    experiment: str
    """The name in the experiment file."""
    expires_at: datetime
    """After this time the drill names no pod, and what it has changed on nodes is taken back. At most 4 hours after the
    creation."""
    repeat: int = msgspec.field(default_factory=lambda: 1)
    """How many times the experiment is run."""
    started_by: str = ""
    """Who runs the drill, as the client says. For people; nothing depends on it."""
    hypothesis: Hypothesis = Hypothesis()
    slo: Objectives = Objectives()
    checkpoint_step: int | None = None
    """The training step of the last checkpoint when the run began, as the job reported it. None: not known."""
    pods: tuple[NamedPod, ...] = ()
    end: DrillEnd | None = None
    """None: the run goes on, or its client is gone."""


class DrillVerdict(StrEnum):
    """Passed: every expectation held. Failed: one did not hold. Aborted: the run was stopped before it could be judged.
    Inconclusive: another disruption fell in, or nothing shows what was expected."""

    PASSED = "Passed"
    FAILED = "Failed"
    ABORTED = "Aborted"
    INCONCLUSIVE = "Inconclusive"


class DrillRefusal(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why the controller takes no failure for this drill."""

    reason: Reason
    message: str = ""


class DrillCase(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result of one repeat."""

    repeat: int
    verdict: DrillVerdict
    reason: Reason
    """Why the verdict is that."""
    message: str = ""
    """The reason as a sentence."""
    incidents: tuple[str, ...] = ()
    """Ids of the incidents that the repeat caused."""
    recovery_seconds: float | None = None
    """From the first failure until the last incident closed. None: none has closed."""
    idle_gpu_seconds: float = msgspec.field(default_factory=float)
    seconds_by_phase: dict[str, float] = {}
    attempts: int = 0
    actions: tuple[str, ...] = ()
    """What was done, in order, such as RecreateGroup. Adopted: the platform did it."""
    resumed_step: int | None = None
    """The training step that the ranks continued from. None: not known."""
    lost_steps: int | None = None
    """How many steps were made twice. None: not known."""


class DrillStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`status` of a RecoveryDrill. Only the controller writes it."""

    named: int = 0
    """How many of `spec.pods` count, in the order of their numbers. A failure of one of them is a drill."""
    refusal: DrillRefusal | None = None
    """None: the drill is not refused."""
    cases: tuple[DrillCase, ...] = ()
    verdict: DrillVerdict | None = None
    """Of the whole run: the worst of its cases. None: the run goes on."""
    message: str = ""


class DrillRef(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The drill that caused an incident."""

    name: str
    uid: str
    repeat: int = msgspec.field(default_factory=lambda: 1)


class DrillFacts(msgspec.Struct, frozen=True):
    """A RecoveryDrill."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    created_at: datetime
    spec: DrillSpec
    status: DrillStatus = DrillStatus()
    deleting: bool = False

    @property
    def over_at(self) -> datetime:
        """When its time is over. A spec may say any date, and its creation is what the API server has seen."""
        return min(self.spec.expires_at, self.created_at + timedelta(seconds=DRILL_MAX_SECONDS))

    def names(self, pod_uid: str, now: datetime) -> NamedPod | None:
        """The pod of the drill with that UID, if a failure of it now is a drill."""
        end = self.spec.end
        if now >= self.over_at:
            return None
        # The client dates the end. A clock that is far ahead must not make real failures free until the time is over.
        if end is not None and abs((now - end.at).total_seconds()) > NAMES_AFTER_END_SECONDS:
            return None
        return next((each for each in self.counting if each.pod_uid == pod_uid), None)

    @property
    def counting(self) -> tuple[NamedPod, ...]:
        """The pods that count. By position and by number: the client writes both, and could put a pod that has failed
        before those that were acknowledged."""
        first = self.spec.pods[: self.status.named]
        return tuple(each for place, each in enumerate(first, 1) if each.number == place)


class MarkedTaint(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A taint that a drill has put on a node."""

    key: str
    effect: str
    value: str = ""


class NodeMark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a drill has changed on a node (`NODE_MARK_ANNOTATION`). A node has at most one mark."""

    namespace: str
    drill: str
    """Name of the RecoveryDrill."""
    uid: str
    """UID of the RecoveryDrill."""
    expires_at: datetime
    cordon: bool = False
    """The drill has cordoned the node."""
    taint: MarkedTaint | None = None
    """None: it has set no taint."""
    condition: bool = False
    """It has set the condition RecoveryDrill."""
