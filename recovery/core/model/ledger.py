"""What `RecoveryGroup.status` remembers: the ledger that makes a recovery happen exactly once.

It is written by compare-and-swap before the first destructive call, and read by the next leader. Everything that
must survive a crash stands here: the target UIDs of the trigger, what was charged, which evidence has been dealt with.
Times are RFC 3339 on the wire; structs omit defaults so that the object stays readable with kubectl.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from recovery.core.model.birth_settings import BirthSettings
from recovery.core.model.earlier_failures import FailureMark, Handled
from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.folded_incidents import FoldedIncidents
from recovery.core.model.group_size import AvoidedNode, ElasticState
from recovery.core.model.group_totals import BudgetState, Totals
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.model.suspect_log import SuspectLog

OLDEST_SCHEMA_VERSION = 1
SCHEMA_VERSION = 6
"""2 added suspensions, backoff and requests; 3 rules, classes of causes, fencing and nodes that are replaced; 4 writes
reasons as codes beside their messages; 5 has the phase Resuming; 6 has sizes and birth settings. `core.model.ledger_v3`
reads the versions before 4.
"""
WITHOUT_SIZES = 5
"""The version of a ledger that has the phase Resuming and no birth settings, no elastic size and no attempt that came
with version 6: those a controller of version 5 would drop, or could not read."""
WITHOUT_RESUMING = 4
"""The version of a ledger whose incident has never been in Resuming. A controller that knows only 4 cannot read that
phase, and can read all else: so the others are labelled 4, and it holds only the groups whose ledger has that phase."""


class Phase(StrEnum):
    """The phase of an incident. Phases are contiguous. Healthy is the phase between incidents."""

    HEALTHY = "Healthy"
    DETECTED = "Detected"
    DECIDED = "Decided"
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
    """Who ended the incident, for statistics: the controller, a user, or no one while it was held."""

    AUTOMATIC = "automatic"
    """The controller, or the platform, without a person."""
    MANUAL = "manual"
    """A person asked for a restart or a retry in it."""
    HELD = "held"
    """It was in phase Held at some time, no matter what ended that."""


class AttemptAction(StrEnum):
    """RecreateGroup: the controller recreates the group. ReplaceNode: it quarantines the suspect's node first.
    AvoidNode: it excludes the suspect's node for this group only. Shrink: the group comes back with fewer nodes. Grow:
    with more. RecreateJobSet: the controller recreates a JobSet that had failed for good. Adopted: the platform
    restarts the group. None: the loss is left to the platform, because its own policy or a rule decides so, or because
    the Job replaces the member."""

    RECREATE_GROUP = "RecreateGroup"
    REPLACE_NODE = "ReplaceNode"
    AVOID_NODE = "AvoidNode"
    SHRINK = "Shrink"
    GROW = "Grow"
    RECREATE_JOB_SET = "RecreateJobSet"
    ADOPTED = "Adopted"
    NONE = "None"


RESIZES = frozenset({AttemptAction.SHRINK, AttemptAction.GROW})
"""Attempts after which the group has another number of nodes."""
JOB_TRIGGERS = frozenset({AttemptAction.RECREATE_GROUP, AttemptAction.REPLACE_NODE, AttemptAction.AVOID_NODE}) | RESIZES
"""Attempts that delete the child Jobs."""


class MessageRelation(StrEnum):
    """What the message of an incident says, beside what its latest attempt was made for."""

    ATTEMPT = "Attempt"
    """That, and nothing else: nothing was said since."""
    MORE = "More"
    """That, and more."""
    ELSE = "Else"
    """Something else."""


class Target(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the trigger is aimed at. A UID dies only once, which is what makes the trigger harmless when repeated."""

    job_set_uid: str = msgspec.field(name="jobSetUID", default="")
    job_uids: tuple[str, ...] = msgspec.field(name="jobUIDs", default=())
    from_restarts: int = 0
    """`status.restarts` of the JobSet at that time."""


class Attempt(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One attempt to bring the group back."""

    number: int
    """Within its incident, from 1."""
    epoch: int
    """The ledger's epoch from this attempt on."""
    action: AttemptAction
    started_at: datetime
    reason: Reason
    """Why it was made."""
    message: str = ""
    """The same as a sentence."""
    then: str = ""
    """What the controller reported when it left a further loss to the platform. Empty: there was none."""
    job_set_uid: str = msgspec.field(name="jobSetUID", default="")
    """RecreateJobSet: the JobSet that the controller deletes. While it is also the target, the new one does not exist
    yet."""
    nodes: tuple[str, ...] = ()
    """ReplaceNode: the nodes that are quarantined for it."""

    @property
    def whole_message(self) -> str:
        return f"{self.message}; then {self.then}" if self.then else self.message


class Suspension(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Our own suspension of the workload: in the ledger before it is asked for, and out of it before it is ended."""

    until: datetime | None = None
    """When the controller resumes the workload. None: at no set time (`onExhausted: Suspend`)."""
    landed: bool = False
    """The controller has seen the suspension in force. If it has ended since, another client ended it, and the
    controller does not renew it."""


class Withheld(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A restart that is decided and waits for its backoff while the job is not suspended: its pods keep their GPUs."""

    until: datetime
    """When the restart is made, unless the group has recovered by itself."""
    lost_at: datetime
    """When the first member was lost. Members that have run since before then still wait for that member."""


class Held(msgspec.Struct, frozen=True):
    """The verdict for which an incident is held, whatever the budget."""

    reason: Reason
    message: str


class Considered(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was considered and not done."""

    action: str
    """RecreateGroup, ReplaceNode or FailJob."""
    reason: Reason
    """Why it was not done."""
    message: str = ""
    """The same as a sentence."""
    node: str = ""
    """ReplaceNode: which. Empty: none is known."""

    @property
    def key(self) -> tuple[str, str, Reason]:
        """The same thing is considered again, whatever the figures in its message."""
        return self.action, self.node, self.reason


class Suspect(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The pods that failed first."""

    pod: str
    node: str = ""
    """Empty: it had none yet."""
    index: int | None = None
    """The completion index within its Job."""
    exit_code: int | None = None
    """None: no exit was seen."""


class PhaseSpan(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One phase as it passed."""

    phase: Phase
    started_at: datetime
    ended_at: datetime | None = None
    """None: it lasts."""
    idle_gpu_seconds: float = 0.0
    """0 while it lasts: a span is counted when it ends."""
    released: bool = False
    """A suspension by the controller had freed the GPUs of the group: the GPU-seconds count as released, not as idle. A
    phase in which that changes has a span for each."""
    released_gpu_seconds: float = 0.0
    """Beside idle ones only in the oldest span, which may be several merged into one."""
    gpus: int | None = None
    """GPUs of the group in it, where an attempt has changed the size of the group. None: as many as when the incident
    opened."""


class Closing(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The end of an incident."""

    outcome: Outcome
    outcome_reason: Reason
    """Why it ended that way."""
    ended_at: datetime
    source: str = ""
    """What shows the recovery: `progress`, `joined-probe` or `ready`. Empty: the incident did not get that far."""
    verified: bool = False
    """The training has confirmed it. Ready only shows that all ranks run."""


class Incident(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One disruption from its first evidence to verified recovery."""

    id: str
    """Names the incident, the same after any crash."""
    number: int
    """Counts the incidents of the group, from 1."""
    started_at: datetime
    """When the failure happened, as far as the evidence dates it."""
    detected_at: datetime
    disruption_class: str = msgspec.field(name="class")
    """What kind of loss it was."""
    cause: str
    """What was lost first, in one word."""
    mode: str
    """Observe or Enforce, as it was when the incident opened."""
    pinned: PinnedPolicy = msgspec.field(name="terms")
    fingerprint: str = ""
    """Distinguishes its failure: class, cause, signature, rank. Never parsed. Empty: an older version opened it."""
    opened_by: str = ""
    """Key of the evidence that opened it."""
    target: Target = Target()
    """The objects that the latest restart deletes, or would delete."""
    gpus: int = 0
    """GPUs of the whole group: all of them idle while one member is missing."""
    ranks: int = 0
    """Members of the group, as the latest attempt that has resized it left them."""
    suspects: tuple[Suspect, ...] = ()
    suspect_log: SuspectLog | None = None
    """The last output of the first suspect, for people. No decision reads it. None: nothing was restarted, it has not
    been read yet, or the controller may not read logs."""
    evidence: tuple[str, ...] = ()
    """What was seen, in words."""
    attempts: tuple[Attempt, ...] = ()
    restarts: int = 0
    """Restarts in the incident, by the controller or adopted, including those of attempts that have been dropped."""
    handling: IncidentHandling = IncidentHandling.AUTOMATIC
    """Who has handled the incident so far."""
    phases: tuple[PhaseSpan, ...] = ()
    """Contiguous, from the failure on. The last one has no end while it lasts."""
    charged: bool = False
    """It was charged to the budget."""
    suspension: Suspension | None = None
    """None: the controller does not suspend the workload, and ends a suspension that has its annotation."""
    withheld: Withheld | None = None
    """None: no restart is withheld. Only in phase Backoff."""
    resumed_by_others: bool = False
    """Another client has ended a suspension by the controller: this incident does not suspend the workload again."""
    probe_proven: bool = False
    """A member had joined by its probe when the incident opened, so the training script reports it. Only then does
    `timeouts.rendezvous` apply."""
    progress_at: datetime | None = None
    """The date of the progress that the training had shown when the incident opened; in Resuming, that of a report that
    only says that the new incarnation begins. None: it had shown none, and Resuming has no length."""
    forced: bool = False
    """A user forced the latest restart: neither mode Observe nor a pause of the job prevents it."""
    fail_job: bool = False
    """A rule or the exhausted budget says FailJob: the controller is failing the JobSet."""
    rule: str = ""
    """Name of the rule that decided last; empty: the default (`restart`) did."""
    would: str = ""
    """What Enforce would have done (RecreateGroup, ReplaceNode, FailJob, Hold), decided once, on the facts of then.
    Empty: it has not been decided, it would be left to Kubernetes, or mode is Enforce."""
    would_message: str = ""
    """The sentence for `would`: it stays when the platform restarts the group. Empty: there is none."""
    enforce_estimate: EnforceEstimate = EnforceEstimate()
    """Of a closed one: what `would` would have saved."""
    too_late: bool = False
    """The policy was switched to Enforce after the loss: the controller has reported that it leaves the loss to a
    user."""
    exhausted: Reason | None = None
    """BudgetExhausted or AttemptsExhausted, while it is held by its budget. None: it is not."""
    held_message: str = msgspec.field(name="held", default="")
    """The verdict for which the group is held, as a sentence. The hold ends with `recovery retry`, or when the JobSet
    has failed. Empty: it is not held, or only by its budget."""
    held_reason: Reason | None = None
    """The same as a code. None: it is not held, or only by its budget."""
    considered: tuple[Considered, ...] = msgspec.field(name="alternatives", default=())
    """What was considered and not done. Newest last."""
    storm: str = ""
    """Id of the storm that it is part of; empty: none."""
    storm_what: str = ""
    """That storm in words, as it was known at the latest verdict, or at the end; empty: none."""
    storm_latest_at: datetime | None = None
    """The latest loss of that storm known at that time. It identifies a storm that continues. None: no storm."""
    reason: Reason = Reason.MEMBER_LOST
    """Why the latest action was taken, or not taken."""
    message: str = ""
    """The sentence: what was seen, which rule or default decided, what was done, what comes next."""
    told: MessageRelation = msgspec.field(default_factory=lambda: MessageRelation.ATTEMPT)
    """How the message relates to the latest attempt. Without an attempt it has no meaning. Always written (a default
    from a factory is never omitted), so that its absence shows that an older CRD has dropped it."""
    closing: Closing | None = None
    """How it ended. None: it is open. It stays until its RecoveryIncident has been recorded."""

    @property
    def attempt(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    def gpus_in(self, span: PhaseSpan) -> int:
        """GPUs of the group in that phase of the incident."""
        return self.gpus if span.gpus is None else span.gpus

    @property
    def gpus_now(self) -> int:
        """GPUs of the group in the latest phase."""
        return self.gpus_in(self.phases[-1]) if self.phases else self.gpus

    @property
    def held(self) -> Held | None:
        """The verdict for which it is held. None: it is not held, or by its budget only."""
        # An older CRD drops `held_reason`; the reason of the incident was the same when it became held.
        return Held(self.held_reason or self.reason, self.held_message) if self.held_message else None


class ClosedIncident(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An incident in short, for `status.history`."""

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
    """Why its latest action was taken."""
    message: str = ""
    """The whole sentence."""
    source: str = ""
    """What shows the recovery: `progress`, `joined-probe` or `ready`. Empty: the incident did not get that far."""
    verified: bool = False
    handling: IncidentHandling = IncidentHandling.AUTOMATIC
    released_gpu_seconds: float = 0.0
    """GPU-seconds in which a suspension by the controller had freed the GPUs. They do not count as idle."""
    charged: bool = False
    """It was charged to the budget."""
    storm: str = ""
    """Id of the storm that it was part of; empty: none."""
    storm_latest_at: datetime | None = None
    """The latest loss of that storm that it knew of. None: no storm."""


class IncidentTotals(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one closed incident adds to the totals of the fleet (`core.fleet.totals`)."""

    workload_uid: str = msgspec.field(name="workloadUID")
    number: int
    """The number of the incident within its workload."""
    started_at: datetime
    """Names the incident together with the two above: a RecoveryGroup that was deleted counts from 1 again."""
    disruption_class: str = msgspec.field(name="class")
    outcome: Outcome
    handling: IncidentHandling = IncidentHandling.AUTOMATIC
    idle_gpu_seconds: dict[str, float] = {}
    """By phase."""
    released_gpu_seconds: float = 0.0
    restarts: int = 0
    enforce_estimate: EnforceEstimate = EnforceEstimate()


class RequestAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of a person's request (`core.incident.requests`). `at` shows whether a request is new."""

    verb: str
    """restart, retry or reset-budget."""
    at: datetime
    """When it was requested."""
    accepted: bool
    reason: Reason = Reason.UNKNOWN
    """What was done, or why the request was refused."""
    message: str = msgspec.field(name="answer", default_factory=str)
    """What was done, or why not. Always written (a default from a factory is never omitted): older CRDs require it."""


class LedgerCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A status condition as Kubernetes tools expect it."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: datetime
    observed_generation: int = 0


class Ledger(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`RecoveryGroup.status`."""

    schema_version: int = msgspec.field(default_factory=lambda: WITHOUT_RESUMING)
    """A controller that knows only smaller versions holds the group and reports that. Always written: a default from a
    factory is never omitted."""
    epoch: int = 0
    """Rises by one with each restart, by the controller or adopted from the platform."""
    phase: Phase = Phase.HEALTHY
    incident: Incident | None = None
    """The open incident, or the last one until it has been recorded. None: there is none."""
    totals: Totals = Totals()
    budget: BudgetState = BudgetState()
    attempts_in_row: int = 0
    """Restarts by the controller since the group last ran whole for `backoff.resetAfter`. Backoff counts them."""
    charged_in_row: int = 0
    """Restarts in a row since the same moment that are charged to the budget. A restart that is not charged, or that a
    user asked for, begins a new row. From the second on the recovery before it brought no progress, which the circuit
    breaker counts."""
    next_attempt_at: datetime | None = None
    """When the group is resumed, a withheld restart is made, or the budget's window lets the next attempt through.
    None: nothing is waited for."""
    requests: tuple[RequestAnswer, ...] = ()
    """The newest answer for each verb."""
    birth_revisions: int = 0
    """How many birth settings there have been: the revision of the latest."""
    birth_settings: BirthSettings | None = None
    """What the Jobs of the group are created with. None: what their template says."""
    avoided: tuple[AvoidedNode, ...] = ()
    """Nodes that the group avoids, at most 16. The API server learns of them from the birth settings."""
    elastic: ElasticState | None = None
    """None: the group has all the nodes it wants, or is not elastic."""
    handled: Handled = Handled()
    failures: tuple[FailureMark, ...] = ()
    """The latest failures, oldest first, at most 4."""
    history: tuple[ClosedIncident, ...] = ()
    """Newest first, at most 10."""
    uncounted: tuple[IncidentTotals, ...] = ()
    """Closed incidents that could not be added to the totals of the fleet when they were recorded, oldest first, at
    most 20. The controller adds them as soon as the API server accepts the write."""
    folds: tuple[FoldedIncidents, ...] = ()
    """Incidents under Observe whose record later ones of the same kind share, at most 8."""
    conditions: tuple[LedgerCondition, ...] = ()
    cause: str = ""
    """For the printer column: the cause of the open incident, or of the last one."""
    action: str = ""
    """For the printer column: the action that it needed."""
    idle_gpus: int = msgspec.field(name="idleGPUs", default=0)
    """For the printer column: GPUs that idle because of the open incident."""
    reason: Reason | None = None
    """The latest reason. None: nothing has been decided yet."""
    message: str = ""
    """The latest sentence."""

    @property
    def holds_gpus_idle(self) -> bool:
        """An incident is open, and it is not one whose GPUs our own suspension has released."""
        found = self.incident
        return found is not None and found.closing is None and not (found.phases and found.phases[-1].released)

    @property
    def current_incident(self) -> Incident:
        """The incident, where the caller knows that there is one; else it is a programmer's error."""
        assert self.incident is not None, "no incident is open"
        return self.incident

    def with_incident(self, **changes: object) -> "Ledger":
        """The ledger with these fields of its incident changed."""
        return msgspec.structs.replace(self, incident=msgspec.structs.replace(self.current_incident, **changes))
