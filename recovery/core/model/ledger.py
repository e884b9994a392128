"""What `RecoveryGroup.status` remembers: the ledger that makes a recovery happen exactly once.

It is written by compare-and-swap before the first destructive call, and read by the next leader. Everything that
must survive a crash is here: the target UIDs of the trigger, what was charged, which evidence has been handled.
Times are RFC 3339 on the wire. Structs omit defaults, except those from a factory, so that the object stays readable.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from recovery.core.model.birth_settings import BirthSettings
from recovery.core.model.drill import DRILL_CLASS, DrillRef
from recovery.core.model.earlier_failures import FailureMark, Handled
from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.evidence_count import EvidenceCount
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.group_size import AvoidedNode, ElasticState
from recovery.core.model.group_totals import BudgetState, Totals
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.proof import RecoveryProof
from recovery.core.model.reason import Reason
from recovery.core.model.request_answer import RequestAnswer
from recovery.core.model.standing import Broken, Standing
from recovery.core.model.step import Step
from recovery.core.model.suspect_log import SuspectLog
from recovery.core.model.training_steps import TrainingStep, TrainingSteps
from recovery.core.model.waits import Released, Suspension
from recovery.core.model.writer_lease import WriterLease

SCHEMA_VERSION = 7
"""The only version that a released controller has written. 1 to 6 were formats before the first release: no number is
used again."""


class Phase(StrEnum):
    """The phase of an incident. Phases are contiguous. Healthy: no incident is open."""

    HEALTHY = "Healthy"
    DETECTED = "Detected"
    DECIDED = "Decided"
    STOPPING = "Stopping"
    FENCING = "Fencing"
    TEARING_DOWN = "TearingDown"
    BACKOFF = "Backoff"
    SCHEDULING = "Scheduling"
    STARTING = "Starting"
    RENDEZVOUS = "Rendezvous"
    RESUMING = "Resuming"
    HELD = "Held"


class Outcome(StrEnum):
    """How an incident closed."""

    RECOVERED = "Recovered"
    FAILED = "Failed"
    HELD = "Held"
    SUPERSEDED = "Superseded"
    OBSERVED = "Observed"


class IncidentHandling(StrEnum):
    """Who handled the incident, for statistics. automatic: the controller or the platform, without a person. manual: a
    person requested a restart or a retry. held: it was in phase Held at some time."""

    AUTOMATIC = "automatic"
    """The controller or the platform, without a person."""
    MANUAL = "manual"
    """A person requested a restart or a retry during the incident."""
    HELD = "held"
    """The incident was in phase Held at some time, no matter what ended that phase."""


class AttemptAction(StrEnum):
    """RecreateGroup: the controller recreates the group. ReplaceNode: it quarantines the suspect's node first.
    AvoidNode: it excludes the suspect's node for this group only. Shrink: it recreates the group with fewer nodes.
    Grow: it recreates the group with more nodes. RecreateJobSet: it recreates a JobSet that had failed permanently.
    RestartInPlace: the agents start the processes of the group again in their pods. Adopted: the platform restarts the
    group. None: the loss is left to the platform, because its own policy or a rule says so, or because the Job replaces
    the member."""

    RECREATE_GROUP = "RecreateGroup"
    REPLACE_NODE = "ReplaceNode"
    AVOID_NODE = "AvoidNode"
    SHRINK = "Shrink"
    GROW = "Grow"
    RECREATE_JOB_SET = "RecreateJobSet"
    RESTART_IN_PLACE = "RestartInPlace"
    ADOPTED = "Adopted"
    NONE = "None"


RESIZES = frozenset({AttemptAction.SHRINK, AttemptAction.GROW})
"""Attempts that change the number of nodes of the group."""
JOB_TRIGGERS = frozenset({AttemptAction.RECREATE_GROUP, AttemptAction.REPLACE_NODE, AttemptAction.AVOID_NODE}) | RESIZES
"""Attempts that delete the child Jobs."""
RESTARTS_A_TRAINING = JOB_TRIGGERS | {AttemptAction.RESTART_IN_PLACE}
"""Attempts of the controller that restart a group whose JobSet goes on."""


class MessageRelation(StrEnum):
    """How the message of an incident relates to the message of its latest attempt."""

    ATTEMPT = "Attempt"
    """The same message: nothing was added since the attempt."""
    MORE = "More"
    """The same message with additions."""
    ELSE = "Else"
    """A different message."""


class Target(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The objects that the trigger deletes. A UID can be deleted only once, so repeating the trigger is harmless."""

    job_set_uid: str = msgspec.field(name="jobSetUID", default="")
    job_uids: tuple[str, ...] = msgspec.field(name="jobUIDs", default=())
    from_restarts: int = 0
    """Restart attempt of the target Jobs. A higher `status.restarts` shows that JobSet has restarted them."""
    epoch: str = ""
    """RestartInPlace: the epoch after which the agents start their processes again, as the barrier's id and its number.
    An epoch ends only once, so repeating the answer is harmless. Empty: another action."""


class Attempt(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One attempt to recover the group."""

    number: int
    """Number of the attempt within its incident, starting at 1."""
    epoch: int
    """`status.epoch` of the RecoveryGroup from this attempt on."""
    action: AttemptAction
    started_at: datetime
    reason: Reason
    """Why the attempt was made."""
    message: str = ""
    """Why the attempt was made, as a sentence."""
    then: str = ""
    """What the controller reported when it left another loss to the platform. Empty: there was no other loss."""
    job_set_uid: str = msgspec.field(name="jobSetUID", default="")
    """UID of the JobSet that the controller deletes (RecreateJobSet), or that another client has deleted (Adopted).
    While `target` has the same UID, the new JobSet does not exist yet."""
    nodes: tuple[str, ...] = ()
    """ReplaceNode: the nodes that are quarantined for this attempt."""

    @property
    def whole_message(self) -> str:
        return f"{self.message}; then {self.then}" if self.then else self.message


class Considered(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An action that was considered and not taken."""

    action: str
    """RecreateGroup, ReplaceNode or FailJob."""
    reason: Reason
    """Why the action was not taken."""
    message: str = ""
    """Why the action was not taken, as a sentence."""
    node: str = ""
    """ReplaceNode: name of the node. Empty: no node is known."""

    @property
    def key(self) -> tuple[str, str, Reason]:
        """What identifies the same consideration when it is made again, even if the figures in its message differ."""
        return self.action, self.node, self.reason


class Suspect(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that failed first."""

    pod: str
    node: str = ""
    """Node of the pod. Empty: the pod had none yet."""
    index: int | None = None
    """Completion index of the pod within its Job."""
    exit_code: int | None = None
    """Exit code of the container that failed. None: no exit was seen."""


class PhaseSpan(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One phase that the incident has been in, or is in."""

    phase: Phase
    started_at: datetime
    ended_at: datetime | None = None
    """When the phase ended. None: it has not ended."""
    idle_gpu_seconds: float = 0.0
    """Idle GPU-seconds of the phase, counted when it ends. 0 until then."""
    released: bool = False
    """A suspension by the controller had freed the GPUs of the group, so the GPU-seconds count as released, not as
    idle. If that changes during a phase, the phase has several entries."""
    released_gpu_seconds: float = 0.0
    """GPU-seconds in which a suspension by the controller had freed the GPUs. Only the oldest entry can also have idle
    GPU-seconds, because several older entries may be merged into it."""
    gpus: int | None = None
    """GPUs of the group in this phase, if an attempt has changed the size of the group. None: as many as when the
    incident opened."""


class Closing(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How an incident ended."""

    outcome: Outcome
    outcome_reason: Reason
    """Why the incident ended that way."""
    ended_at: datetime
    source: str = ""
    """What shows the recovery: `progress`, `joined-probe`, `agent` or `ready`. Empty: the incident did not get that
    far."""
    verified: bool = False
    """The training has confirmed the recovery. Ready pods only show that all ranks run."""
    still_broken: bool = False
    """Ranks hung when the incident closed, because no one restarts them."""


class Incident(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One disruption, from its first evidence to its end."""

    id: str
    """Id of the incident. It stays the same after a crash of the controller."""
    number: int
    """Number of the incident within its group, starting at 1."""
    started_at: datetime
    """When the failure happened, as far as the evidence shows it."""
    detected_at: datetime
    disruption_class: str = msgspec.field(name="class")
    """Class of the disruption, such as NodeLost or Crashed."""
    cause: str
    """Cause of the disruption, in one word such as Exit137 or Evicted."""
    mode: str
    """Mode of the policy when the incident opened: Observe or Enforce."""
    pinned: PinnedPolicy = msgspec.field(name="terms")
    step: Step
    """What the controller does about the incident. The phase says where the pods are."""
    fingerprint: str = ""
    """Identifies failures of the same kind, by class, cause, signature and rank. Never parsed."""
    opened_by: str = ""
    """Key of the evidence that opened the incident."""
    drill: DrillRef | None = None
    """The drill that caused the incident. None: it is no drill."""
    lost_at: datetime | None = None
    """Since when ranks hang, as the processes showed it. That may be before `started_at`, if the incident before covers
    that time. None: none has been seen to hang since the latest restart."""
    target: Target = Target()
    """The objects that the latest restart deletes, or would delete."""
    gpus: int = 0
    """GPUs of the whole group. All of them are idle while one member is missing."""
    ranks: int = 0
    """Number of members of the group, after the latest attempt that changed it."""
    suspects: tuple[Suspect, ...] = ()
    """The pods that failed first."""
    suspect_log: SuspectLog | None = None
    """The last log lines of the first suspect, for people. No decision reads them. None: nothing was restarted, the log
    has not been read yet, or the controller may not read logs."""
    evidence: tuple[str, ...] = ()
    """What the controller has seen of the disruption, in words: the first 16 signs."""
    evidence_counts: tuple[EvidenceCount, ...] = ()
    """How many signs of each kind the controller has seen, the kind of the first one first."""
    attempts: tuple[Attempt, ...] = ()
    """Attempts to recover the group, newest last."""
    restarts: int = 0
    """Restarts in the incident, by the controller or adopted, including attempts that are no longer listed."""
    drill_restarts: int = 0
    """How many of `restarts` repair what the drill has caused."""
    handling: IncidentHandling = IncidentHandling.AUTOMATIC
    """Who has handled the incident so far: automatic, manual or held."""
    phases: tuple[PhaseSpan, ...] = ()
    """Phases of the incident, contiguous from the failure on. The last one has no end while it lasts."""
    charged: bool = False
    """The incident was charged to the budget."""
    suspension: Suspension | None = None
    """The suspension of the workload by the controller. None: the controller does not suspend the workload, and ends
    any suspension that has its annotation."""
    released: Released | None = None
    """The group gave its GPUs back because a member found no node. None: not since the latest restart."""
    resumed_by_others: bool = False
    """Another client has ended a suspension by the controller, so the controller does not suspend the workload again in
    this incident."""
    probe_proven: bool = False
    """When the incident opened, a member was Ready by its joined probe, so the training script reports that it has
    joined. Only then, or with `joinsProven`, does `timeouts.rendezvous` apply."""
    joins_proven: bool = False
    """When the incident opened, agents had reported that all ranks had joined."""
    progress_at: datetime | None = None
    """Date of the latest progress report when the incident opened. In Resuming, the date of a report that only says
    that the new processes begin. None: there was no report, so the incident does not wait in Resuming."""
    training_steps: TrainingSteps | None = None
    """Training steps, as the agents report them. None: no agent had reported steps when the incident opened."""
    rule: str = ""
    """Name of the rule that decided last. Empty: the default (`restart`) decided."""
    would: str = ""
    """What Enforce would have done (RecreateGroup, ReplaceNode, FailJob, Hold), decided once, from the facts at that
    time. Empty: not decided yet, the loss would be left to Kubernetes, or the mode is Enforce."""
    would_message: str = ""
    """`would` as a sentence. It stays when the platform restarts the group. Empty: `would` is empty."""
    enforce_estimate: EnforceEstimate = EnforceEstimate()
    """Estimate of what Enforce would have saved in this incident, once it is closed."""
    considered: tuple[Considered, ...] = msgspec.field(name="alternatives", default=())
    """Actions that were considered and not taken, newest last."""
    storm: str = ""
    """Id of the storm of node losses that the incident is part of. Empty: none."""
    storm_what: str = ""
    """The storm in words, as known at the latest verdict or when the incident ended. Empty: no storm."""
    storm_latest_at: datetime | None = None
    """When the latest node loss of the storm happened, as known at that time. It identifies a storm that continues.
    None: no storm."""
    reason: Reason = Reason.MEMBER_LOST
    """Why the controller took, or did not take, the latest action."""
    message: str = ""
    """What was seen, which rule or default decided, what was done and what comes next, as a sentence."""
    message_relation: MessageRelation = MessageRelation.ATTEMPT
    """How `message` relates to the latest attempt: it is the message of the attempt (Attempt), has additions (More), or
    is another one (Else)."""
    closing: Closing | None = None
    """How the incident ended. None: it is open. A closed incident stays until its RecoveryIncident is recorded."""

    @property
    def attempt(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def booked_class(self) -> str:
        """The class under which the incident counts in totals. Drills have one of their own, beside those of
        failures."""
        return DRILL_CLASS if self.drill is not None else self.disruption_class

    @property
    def restarted(self) -> bool:
        """The controller or the platform has restarted the group."""
        return any(each.action is not AttemptAction.NONE for each in self.attempts)

    def gpus_in(self, span: PhaseSpan) -> int:
        """GPUs of the group in that phase of the incident."""
        return self.gpus if span.gpus is None else span.gpus

    @property
    def gpus_now(self) -> int:
        """GPUs of the group in the latest phase."""
        return self.gpus_in(self.phases[-1]) if self.phases else self.gpus


class ClosedIncident(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Summary of a closed incident, for `status.history`."""

    id: str
    outcome: Outcome
    outcome_reason: Reason
    disruption_class: str = msgspec.field(name="class")
    cause: str
    started_at: datetime
    ended_at: datetime
    attempts: int
    idle_gpu_seconds: float
    reason: Reason
    """Why the controller took the latest action of the incident."""
    message: str = ""
    """What was seen, what decided, what was done and how the incident ended, as a sentence."""
    source: str = ""
    """What shows the recovery, as in the incident. Empty: the incident did not get that far."""
    verified: bool = False
    still_broken: bool = False
    """Ranks hung when the incident closed, or later because of its loss, because no one restarts them."""
    handling: IncidentHandling = IncidentHandling.AUTOMATIC
    released_gpu_seconds: float = 0.0
    """GPU-seconds in which a suspension by the controller had freed the GPUs. They do not count as idle."""
    charged: bool = False
    """The incident was charged to the budget."""
    storm: str = ""
    """Id of the storm of node losses that the incident was part of. Empty: none."""
    storm_latest_at: datetime | None = None
    """When the latest node loss of the storm happened, as far as the incident knew. None: no storm."""
    drill: DrillRef | None = None
    """The drill that caused the incident. None: it was no drill."""

    @property
    def booked_class(self) -> str:
        """The class under which the incident counts in totals, as in `Incident`."""
        return DRILL_CLASS if self.drill is not None else self.disruption_class


class IncidentTotals(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a closed incident, or the time in which its group was Broken after it, adds to the totals of all groups in
    the status of the RecoveryConfig."""

    workload_uid: str = msgspec.field(name="workloadUID")
    number: int
    """The number of the incident within its workload."""
    started_at: datetime
    """When the failure happened. With `workloadUID` and `number` it identifies the incident, because a RecoveryGroup
    that was deleted starts again with number 1."""
    disruption_class: str = msgspec.field(name="class")
    outcome: Outcome
    handling: IncidentHandling = IncidentHandling.AUTOMATIC
    idle_gpu_seconds: dict[str, float] = {}
    """Idle GPU-seconds by phase."""
    released_gpu_seconds: float = 0.0
    restarts: int = 0
    """Restarts in the incident, without those that repair what a drill has caused."""
    broken: bool = False
    """It is no incident, and `number` is 0, but the time in which the group was Broken, from `startedAt` on."""
    enforce_estimate: EnforceEstimate = EnforceEstimate()


class Ledger(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`RecoveryGroup.status`."""

    schema_version: int = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    """Version of the format. A controller that knows only smaller versions takes no action on the group and reports
    that. Always written: a status without a version cannot be read."""
    epoch: int = 0
    """Number that rises by one with each restart, by the controller or adopted from the platform."""
    phase: Phase = Phase.HEALTHY
    standing: Standing = Standing.UNKNOWN
    """Whether the program trains, as of the latest write."""
    met_at: datetime | None = None
    """When the ranks met for the last time, as of the latest write. None: no write has shown it."""
    broken: Broken | None = None
    """Since when the group hangs, between incidents. None: it does not, or an incident is open."""
    suspended_at: datetime | None = None
    """When the pods of the group were last deleted by a suspension. A pod that was created before is of an earlier run,
    even if it ends only after the resume. None: no suspension was seen since the ledger exists."""
    training_step: TrainingStep | None = None
    """How far the training had come, as its agents reported it. None: no agent has reported a step."""
    incident: Incident | None = None
    """The open incident, or the last one until its RecoveryIncident is recorded. None: there is none."""
    totals: Totals = Totals()
    budget: BudgetState = BudgetState()
    attempts_in_row: int = 0
    """Restarts by the controller since the group last ran whole for `backoff.resetAfter`. The backoff depends on it."""
    restart_ended_at: datetime | None = None
    """When the last restart ended, ours or adopted: all ranks had met, or it was given up. None: not known."""
    in_place_in_row: int = 0
    """Restarts in place since the group was last recreated, or last ran whole for `backoff.resetAfter`."""
    agent_left_out: bool = False
    """The agent has kept a pod from starting, so the group was recreated without it. That is done once."""
    charged_in_row: int = 0
    """Restarts in a row that cost budget, since the group last ran whole for `backoff.resetAfter`. A restart without a
    charge, or that a user requested, begins a new row. From the second on, the recovery before it was in vain."""
    next_attempt_at: datetime | None = None
    """When the controller resumes the workload, makes a restart that waits for its backoff, or may make the next
    attempt by the budget's window. None: no time is set."""
    requests: tuple[RequestAnswer, ...] = ()
    """The newest answer to each kind of request: restart, retry and reset-budget."""
    birth_revisions: int = 0
    """How many birth settings the group has had: the revision of the latest."""
    birth_settings: BirthSettings | None = None
    """Settings with which the Jobs of the group are created. None: Jobs are created as their template says."""
    avoided: tuple[AvoidedNode, ...] = ()
    """Nodes that the group avoids, at most 16. The birth settings exclude them when the API server creates the Jobs."""
    elastic: ElasticState | None = None
    """The size of an elastic group that runs with fewer nodes than wanted, or whose size is being changed. None: the
    group has all the nodes that it wants, or is not elastic."""
    handled: Handled = Handled()
    failures: tuple[FailureMark, ...] = ()
    """The latest failures, oldest first, at most 4, to recognise a failure that repeats."""
    history: tuple[ClosedIncident, ...] = ()
    """Closed incidents, newest first, at most 10."""
    uncounted: tuple[IncidentTotals, ...] = ()
    """Closed incidents, and times in which the group was Broken, that are not in the totals in the RecoveryConfig yet,
    oldest first, at most 20. The controller adds them as soon as the API server accepts the write."""
    folds: tuple[FoldedIncidents, ...] = ()
    """Incidents of mode Observe that share a RecoveryIncident with later ones of the same kind, at most 8."""
    proof: RecoveryProof | None = None
    """The latest recovery that shows that the group recovers. None: there was none yet."""
    conditions: tuple[LedgerCondition, ...] = ()
    writer: WriterLease | None = None
    """The Lease that elected the controller of the latest write. None: there was no election."""
    cause: str = ""
    """For the printer column: the cause of the open incident, or of the last one. Drill: a drill caused it."""
    action: str = ""
    """For the printer column: the latest action in the open incident, or in the last one."""
    idle_gpus: int = msgspec.field(name="idleGPUs", default=0)
    """For the printer column: GPUs that are idle because of the open incident, or because the group is Broken."""
    reason: Reason | None = None
    """Reason of the latest decision about the group. None: nothing has been decided yet."""
    message: str = ""
    """The latest decision about the group, as a sentence."""

    @property
    def holds_gpus_idle(self) -> bool:
        """An incident is open, and no suspension by the controller has released its GPUs."""
        found = self.incident
        return found is not None and found.closing is None and not (found.phases and found.phases[-1].released)

    @property
    def current_incident(self) -> Incident:
        """The incident. The caller must know that there is one."""
        assert self.incident is not None, "no incident is open"
        return self.incident

    def with_incident(self, **changes: object) -> "Ledger":
        """The ledger with these fields of its incident changed."""
        return msgspec.structs.replace(self, incident=msgspec.structs.replace(self.current_incident, **changes))
