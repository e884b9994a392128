"""Whether a job is protected, as a record: a code, and the details of its sentence."""

from datetime import datetime
from enum import StrEnum

import msgspec

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.core.model.reason import Explanation


class ProtectionReason(StrEnum):
    """The answer as a code. If several apply, the answer is the first in this order."""

    DELETING = "Deleting"
    """The job is being deleted."""
    FINISHED = "Finished"
    """The job is complete."""
    JOB_SET_FAILED = "JobSetFailed"
    """The job has failed permanently, and no open incident restores it."""
    SUSPENDED = "Suspended"
    """A user or Kueue keeps the job suspended, so it has no pods to lose."""
    FINISHING = "Finishing"
    """A member has succeeded. The controller never restarts such a group, because that would discard the result."""
    NO_POLICY = "NoPolicy"
    """No policy selects the job, or the policy that its annotation names does not exist."""
    POLICY_UNUSABLE = "PolicyUnusable"
    """The policy that applies, or the RecoveryConfig, has an invalid field."""
    LEDGER_UNREADABLE = "LedgerUnreadable"
    """This version cannot read the RecoveryGroup of the job, so the controller takes no action on the job."""
    OBJECT_UNDECODABLE = "ObjectUndecodable"
    """An object of the job cannot be read, so the controller takes no action on the job."""
    BROKEN = "Broken"
    """A rank ended, the others hang, and no incident is open that repairs the group."""
    OBSERVE = "Observe"
    """The policy is in mode Observe."""
    BREAKER_OPEN = "BreakerOpen"
    """The policy is in mode Enforce, but the circuit breaker is open, so every policy counts as mode Observe."""
    PAUSED_BY_ANNOTATION = "PausedByAnnotation"
    """The annotation on the job pauses it."""
    PAUSED_GLOBALLY = "PausedGlobally"
    """The RecoveryConfig pauses all recoveries, or cannot be read."""
    RESTART_NONE = "RestartNone"
    """The policy sets `restart: None`, and has no rule that matches every loss."""
    RULE_IGNORES_ALL = "RuleIgnoresAll"
    """The first rule of the policy that matches every loss has the action Ignore."""
    NODE_SILENT = "NodeSilent"
    """A node of the group does not answer, so it is not known whether the group trains. Nothing is restarted until the
    processes on the node count as dead."""
    HELD = "Held"
    """The open incident is Held, because of its budget or its verdict."""
    INCIDENT_OBSERVED = "IncidentObserved"
    """The incident opened while the policy was not in mode Enforce. The controller takes no action in it, even if the
    policy is in mode Enforce now."""
    POD_KEPT_RUNNING = "PodKeptRunning"
    """The Job's own policy decides on a failed pod, but another container keeps that pod Running."""
    NO_CONTROLLER = "NoController"
    """No controller is the leader, so nothing restarts the group. Only a command can report this."""
    BUDGET_EXHAUSTED = "BudgetExhausted"
    """The budget allows no further recovery now, so the incident of the next loss would be Held."""
    TRAINING_CONTAINER_UNKNOWN = "TrainingContainerUnknown"
    """No rule selects the training container of a Job, so exits of its containers do not count as losses."""
    NO_JOB_SET = "NoJobSet"
    """The job has no JobSet, or its JobSet is being deleted."""
    NOT_STARTED = "NotStarted"
    """The group has not run whole yet. Until then its Jobs replace lost members."""
    PROTECTED = "Protected"
    """The controller recovers the job after a loss."""

    @property
    def needs_attention(self) -> bool:
        """After a loss the job would hang until a person acts. False: it is protected, or needs no protection now."""
        return self in UNPROTECTED or self is ProtectionReason.NO_CONTROLLER


UNPROTECTED = (
    ProtectionReason.NO_POLICY,
    ProtectionReason.POLICY_UNUSABLE,
    ProtectionReason.LEDGER_UNREADABLE,
    ProtectionReason.OBJECT_UNDECODABLE,
    ProtectionReason.BROKEN,
    ProtectionReason.OBSERVE,
    ProtectionReason.BREAKER_OPEN,
    ProtectionReason.PAUSED_BY_ANNOTATION,
    ProtectionReason.PAUSED_GLOBALLY,
    ProtectionReason.RESTART_NONE,
    ProtectionReason.RULE_IGNORES_ALL,
    ProtectionReason.NODE_SILENT,
    ProtectionReason.HELD,
    ProtectionReason.INCIDENT_OBSERVED,
    ProtectionReason.POD_KEPT_RUNNING,
    ProtectionReason.BUDGET_EXHAUSTED,
    ProtectionReason.TRAINING_CONTAINER_UNKNOWN,
)
"""The reasons that need attention, which the metric `unprotected_jobs` has. `recovery status` answers "no" for each,
and for NoController, which no controller can report."""


class Protection(msgspec.Struct, frozen=True):
    """The answer for one job, with the details of its sentence."""

    reason: ProtectionReason
    kind: str
    """TrainJob or JobSet."""
    job: str
    """Name of the workload."""
    policy: str = ""
    """Kind and name of the policy that applies. NoPolicy: the name in the annotation of the job. Empty: none."""
    rule: str = ""
    """RuleIgnoresAll: name of the rule."""
    incident: str = ""
    """Held, IncidentObserved, PodKeptRunning, Protected: id of the incident. Empty: none is open. Broken: id of the
    incident that closed without repairing the group."""
    child_job: str = ""
    """TrainingContainerUnknown: name of the Job."""
    recovery_group: str = ""
    """LedgerUnreadable: name of the RecoveryGroup."""
    schema_version: int = SCHEMA_VERSION
    """LedgerUnreadable: as found in the RecoveryGroup."""
    why: Explanation | None = None
    """BreakerOpen, PausedGlobally: why the breaker is open, or why recoveries are paused. None: `detail` says why."""
    detail: str = ""
    """Details from a person or the API: the reason of a pause, the error in a field, the verdict of a Hold, the object
    that cannot be read, the node that does not answer, what broke the group, the Lease that no controller renews.
    Empty: no details, or the budget holds the incident."""
    since: datetime | None = None
    """Broken: when the first rank ended that the hanging ranks had met."""
    forced: bool = False
    """Broken: only a forced restart is accepted, because the policy only observes or the job is paused."""
    until: datetime | None = None
    """Held, BudgetExhausted: when the budget's window allows the next recovery. None: the window alone never allows
    it."""
    free_rules: tuple[str, ...] = ()
    """BudgetExhausted: names of rules that still restart the group, because they charge nothing."""
    free_preemptions: bool = False
    """BudgetExhausted: the policy still restarts the group after a preemption that no rule matches."""

    @property
    def protected(self) -> bool | None:
        """None: the job needs no protection now."""
        if self.reason is ProtectionReason.PROTECTED:
            return True
        return False if self.reason.needs_attention else None
