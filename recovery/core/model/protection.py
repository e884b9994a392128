"""Whether a job is protected, as a record: the code of the answer, and what its sentence names."""

from datetime import datetime
from enum import StrEnum

import msgspec

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.core.model.reason import Explanation


class ProtectionReason(StrEnum):
    """The answer as a code. Where several hold, the first of this list is given."""

    DELETING = "Deleting"
    """The job is being deleted."""
    FINISHED = "Finished"
    """The job is complete."""
    JOB_SET_FAILED = "JobSetFailed"
    """The job has failed for good, and no incident is open that brings it back."""
    SUSPENDED = "Suspended"
    """A user or Kueue keeps the job suspended, so it has no pods to lose."""
    FINISHING = "Finishing"
    """A member has succeeded. The controller never restarts such a group, because that discards its result."""
    NO_POLICY = "NoPolicy"
    """No policy selects the job, or the policy that its annotation names does not exist."""
    POLICY_UNUSABLE = "PolicyUnusable"
    """The policy that applies, or the RecoveryConfig, has a wrong field."""
    LEDGER_UNREADABLE = "LedgerUnreadable"
    """This version cannot read the job's RecoveryGroup, and decides nothing without it."""
    OBJECT_UNDECODABLE = "ObjectUndecodable"
    """An object of the job cannot be read, and the controller does nothing about the others."""
    OBSERVE = "Observe"
    """The policy is in mode Observe."""
    BREAKER_OPEN = "BreakerOpen"
    """The policy is in mode Enforce, and the open circuit breaker makes every policy observe."""
    PAUSED_BY_ANNOTATION = "PausedByAnnotation"
    """The job is paused."""
    PAUSED_GLOBALLY = "PausedGlobally"
    """The RecoveryConfig pauses all recoveries, or cannot be read."""
    RESTART_NONE = "RestartNone"
    """The policy sets `restart: None`, and has no rule that matches every loss."""
    RULE_IGNORES_ALL = "RuleIgnoresAll"
    """The first rule of the policy that matches every loss has the action Ignore."""
    HELD = "Held"
    """An incident is Held, by its budget or by its verdict."""
    INCIDENT_OBSERVED = "IncidentObserved"
    """An incident opened while the policy did not act. The controller takes no action in it, whatever the policy says
    now."""
    POD_KEPT_RUNNING = "PodKeptRunning"
    """The Job's own policy decides on a failed pod, and another container keeps that pod Running."""
    NO_CONTROLLER = "NoController"
    """No controller leads, so nothing restarts the group. A command finds that, no controller does."""
    BUDGET_EXHAUSTED = "BudgetExhausted"
    """The budget allows no further recovery now, so the next loss is Held."""
    TRAINING_CONTAINER_UNKNOWN = "TrainingContainerUnknown"
    """No rule selects the training container of a Job, so the exits of its containers are no losses."""
    NO_JOB_SET = "NoJobSet"
    """The job has no JobSet, or it is being deleted."""
    NOT_STARTED = "NotStarted"
    """The group has not run whole. Its Jobs replace a lost member until then."""
    PROTECTED = "Protected"
    """A loss starts a recovery."""

    @property
    def needs_attention(self) -> bool:
        """A loss leaves the job hanging until a person acts. False: it is protected, or needs no protection now."""
        return self in UNPROTECTED or self is ProtectionReason.NO_CONTROLLER


UNPROTECTED = (
    ProtectionReason.NO_POLICY,
    ProtectionReason.POLICY_UNUSABLE,
    ProtectionReason.LEDGER_UNREADABLE,
    ProtectionReason.OBJECT_UNDECODABLE,
    ProtectionReason.OBSERVE,
    ProtectionReason.BREAKER_OPEN,
    ProtectionReason.PAUSED_BY_ANNOTATION,
    ProtectionReason.PAUSED_GLOBALLY,
    ProtectionReason.RESTART_NONE,
    ProtectionReason.RULE_IGNORES_ALL,
    ProtectionReason.HELD,
    ProtectionReason.INCIDENT_OBSERVED,
    ProtectionReason.POD_KEPT_RUNNING,
    ProtectionReason.BUDGET_EXHAUSTED,
    ProtectionReason.TRAINING_CONTAINER_UNKNOWN,
)
"""The reasons that need attention: those of the metric `unprotected_jobs`. Each is a "no" of `recovery status`, which
has one more: a controller cannot report that none leads."""


class Protection(msgspec.Struct, frozen=True):
    """The answer for one job, with what its sentence names."""

    reason: ProtectionReason
    kind: str
    """TrainJob or JobSet."""
    job: str
    """Name of the workload."""
    policy: str = ""
    """Kind and name of the policy that applies. NoPolicy: the name that the job's annotation asks for. Empty: none."""
    rule: str = ""
    """RuleIgnoresAll: name of the rule."""
    incident: str = ""
    """Held, IncidentObserved, PodKeptRunning, Protected: id of the incident. Empty: none is open."""
    child_job: str = ""
    """TrainingContainerUnknown: name of the Job."""
    recovery_group: str = ""
    """LedgerUnreadable: name of the RecoveryGroup."""
    schema_version: int = SCHEMA_VERSION
    """LedgerUnreadable: as found in the RecoveryGroup."""
    why: Explanation | None = None
    """BreakerOpen, PausedGlobally: why it is so. None: `detail` says it."""
    detail: str = ""
    """What a person or the API says about it: the reason of a pause, the error in a field, the verdict of a Hold, the
    object that cannot be read, the Lease that no controller renews.
    Empty: nothing, or the Hold is the budget's."""
    until: datetime | None = None
    """Held, BudgetExhausted: when the budget's window allows the next recovery. None: time alone does not."""
    free_rules: tuple[str, ...] = ()
    """BudgetExhausted: names of rules that restart the group all the same, because they charge nothing."""
    free_preemptions: bool = False
    """BudgetExhausted: the policy restarts the group all the same after a preemption that no rule matches."""

    @property
    def protected(self) -> bool | None:
        """None: the job needs no protection now."""
        if self.reason is ProtectionReason.PROTECTED:
            return True
        return False if self.reason.needs_attention else None
