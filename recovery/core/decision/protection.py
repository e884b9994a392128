"""Whether a job is protected: does the controller restart its group when it loses a member now, and if not, why not.

A job that runs and is not protected hangs after a loss until a person acts. The answer is about the next loss. What
happens about a loss that has an incident is the incident's phase, unless that incident waits for a person as well.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from recovery.core.diagnosis import not_started
from recovery.core.diagnosis.finishing import finishing
from recovery.core.diagnosis.group_conditions import POD_KEPT_RUNNING, UNDECODABLE, undecodable
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.diagnosis.training_container import SelectedBy, select
from recovery.core.incident import attempt_limits, budget, lifecycle
from recovery.core.incident.preconditions import ended, paused
from recovery.core.model.annotations import PAUSED_ANNOTATION, POLICY_ANNOTATION, TRAINING_CONTAINER_ANNOTATION
from recovery.core.model.config import CONFIG_NAME
from recovery.core.model.facts import Snapshot, WorkloadFacts
from recovery.core.model.ledger import SCHEMA_VERSION, Ledger, LedgerObject, Phase
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.plan.suspension import in_force
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError, Restart


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
        return self in UNPROTECTED


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
"""The reasons that need attention: those of the metric `unprotected_jobs`, and each "no" of `recovery status`."""


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
    """Held, IncidentObserved, PodKeptRunning: id of the incident."""
    child_job: str = ""
    """TrainingContainerUnknown: name of the Job."""
    recovery_group: str = ""
    """LedgerUnreadable: name of the RecoveryGroup."""
    schema_version: int = SCHEMA_VERSION
    """LedgerUnreadable: as found in the RecoveryGroup."""
    detail: str = ""
    """What a person or the API says about it: the reason of a pause, the error in a field, the verdict of a Hold, the
    object that cannot be read.
    Empty: nothing, or the Hold is the budget's."""
    until: datetime | None = None
    """Held, BudgetExhausted: when the budget's window allows the next recovery. None: time alone does not."""

    @property
    def protected(self) -> bool | None:
        """None: the job needs no protection now."""
        if self.reason is ProtectionReason.PROTECTED:
            return True
        return False if self.reason.needs_attention else None


def protection(
    workload: WorkloadFacts,
    snapshot: Snapshot | None,
    recovery_group: LedgerObject | None,
    policy: Policy | PolicyError | None,
    now: datetime,
) -> Protection:
    """The answer for one job.

    `snapshot` None: JobSet, Jobs and pods were not read, and the group counts as one that runs whole. `recovery_group`
    None: there never was an incident. `policy` None: none applies; PolicyError: the one that applies cannot be used.
    """
    unneeded = _unneeded(workload, snapshot, recovery_group)
    if unneeded is not None:
        return Protection(unneeded, workload.kind, workload.name)
    if policy is None:
        named = workload.annotations.get(POLICY_ANNOTATION, "")
        return Protection(ProtectionReason.NO_POLICY, workload.kind, workload.name, policy=named)
    if isinstance(policy, PolicyError):
        return Protection(ProtectionReason.POLICY_UNUSABLE, workload.kind, workload.name, detail=str(policy))
    found = (
        _by_ledger_format(workload, recovery_group)
        or _by_objects(workload, snapshot, _ledger_of(recovery_group))
        or _by_policy(workload, policy)
    )
    if found is None and recovery_group is not None:
        found = _by_incident(workload, recovery_group.ledger, now)
    if found is None:
        found = _by_budget(workload, _ledger_of(recovery_group), policy, now)
    if found is None and snapshot is not None:
        found = _by_container(workload, snapshot)
    if found is None:
        reason = _before_start(snapshot, _ledger_of(recovery_group)) or ProtectionReason.PROTECTED
        found = Protection(reason, workload.kind, workload.name)
    return msgspec.structs.replace(found, policy=policy.title)


def _unneeded(
    workload: WorkloadFacts, snapshot: Snapshot | None, recovery_group: LedgerObject | None
) -> ProtectionReason | None:
    """Why the job has nothing to lose, or nothing that a restart saves. None: it has."""
    jobset = snapshot.jobset if snapshot is not None else None
    if workload.deleting_since is not None:
        return ProtectionReason.DELETING
    if ended(workload) is not None or (jobset is not None and jobset.terminal_state == "Completed"):
        return ProtectionReason.FINISHED
    failed = jobset.terminal_state == "Failed" if jobset is not None else workload.condition("Failed") is not None
    if failed and not _is_open(_ledger_of(recovery_group)):
        return ProtectionReason.JOB_SET_FAILED
    suspended = workload.suspended or (jobset is not None and jobset.suspended)
    if suspended and not in_force(workload):
        return ProtectionReason.SUSPENDED
    if snapshot is not None and finishing(snapshot) is not None:
        return ProtectionReason.FINISHING
    return None


def _by_ledger_format(workload: WorkloadFacts, recovery_group: LedgerObject | None) -> Protection | None:
    if recovery_group is None or recovery_group.readable:
        return None
    return Protection(
        ProtectionReason.LEDGER_UNREADABLE,
        workload.kind,
        workload.name,
        recovery_group=recovery_group.name,
        schema_version=recovery_group.schema_version,
        detail=recovery_group.ledger.reason,
    )


def _by_objects(workload: WorkloadFacts, snapshot: Snapshot | None, ledger: Ledger) -> Protection | None:
    """An object cannot be read. A listing reads no pods of a group that is all Ready; the controller's condition does
    say so."""
    read = undecodable(snapshot) if snapshot is not None else None
    said = next((c.message for c in ledger.conditions if (c.type, c.status) == (UNDECODABLE, "True")), "")
    detail = read.message if read is not None else said
    return (
        Protection(ProtectionReason.OBJECT_UNDECODABLE, workload.kind, workload.name, detail=detail) if detail else None
    )


def _by_policy(workload: WorkloadFacts, policy: Policy) -> Protection | None:
    """What a person has set that keeps the controller from acting on the job."""
    reason: ProtectionReason | None = None
    detail = rule = ""
    catch_all = _catch_all(policy)
    if policy.breaker:
        reason = ProtectionReason.BREAKER_OPEN
        detail = policy.fleet.breaker.reason if policy.fleet.breaker is not None else ""
    elif policy.mode is Mode.OBSERVE:
        reason = ProtectionReason.OBSERVE
    elif paused(workload):
        reason, said = ProtectionReason.PAUSED_BY_ANNOTATION, workload.annotations[PAUSED_ANNOTATION]
        detail = "" if said == "true" else said
    elif policy.global_pause:
        reason, detail = ProtectionReason.PAUSED_GLOBALLY, policy.global_pause
    elif catch_all is not None and catch_all.action is RuleAction.IGNORE:
        reason, rule = ProtectionReason.RULE_IGNORES_ALL, catch_all.name
    elif catch_all is None and policy.restart is Restart.NONE:
        reason = ProtectionReason.RESTART_NONE
    if reason is None:
        return None
    return Protection(reason, workload.kind, workload.name, rule=rule, detail=detail)


def _catch_all(policy: Policy) -> Rule | None:
    """The first rule that matches every loss: it takes the place of `restart`. None: there is none."""
    return next((rule for rule in policy.rules if rule.when == When()), None)


def _by_incident(workload: WorkloadFacts, ledger: Ledger, now: datetime) -> Protection | None:
    """The open incident waits for a person, or has no further attempt."""
    open_ = ledger.incident
    if open_ is None or open_.closing is not None:
        return None
    kept_running = next((c for c in ledger.conditions if (c.type, c.status) == (POD_KEPT_RUNNING, "True")), None)
    reason: ProtectionReason | None = None
    detail, until = open_.held, None
    if ledger.phase is Phase.HELD:
        reason, until = ProtectionReason.HELD, ledger.next_attempt_at
    elif not lifecycle.acts(ledger):
        reason = ProtectionReason.INCIDENT_OBSERVED
    elif kept_running is not None:
        reason, detail = ProtectionReason.POD_KEPT_RUNNING, kept_running.message
    elif (refusal := attempt_limits.refused(ledger, now)) is not None:
        reason, until = ProtectionReason.BUDGET_EXHAUSTED, refusal.frees_at
    if reason is None:
        return None
    return Protection(reason, workload.kind, workload.name, incident=open_.id, detail=detail, until=until)


def _by_budget(workload: WorkloadFacts, ledger: Ledger, policy: Policy, now: datetime) -> Protection | None:
    """Between incidents: the next one cannot be charged. An open incident has its own terms."""
    if _is_open(ledger) or budget.remaining(ledger.budget, policy.budget_limit, policy.budget_window, now) > 0:
        return None
    until = budget.frees_at(ledger.budget, policy.budget_limit, policy.budget_window, now)
    return Protection(ProtectionReason.BUDGET_EXHAUSTED, workload.kind, workload.name, until=until)


def _by_container(workload: WorkloadFacts, snapshot: Snapshot) -> Protection | None:
    """A lost pod starts a recovery, but a container that exits and starts again in place does not."""
    for job in member_jobs(snapshot):
        if select(job, workload).by is SelectedBy.UNKNOWN:
            reason = ProtectionReason.TRAINING_CONTAINER_UNKNOWN
            return Protection(reason, workload.kind, workload.name, child_job=job.name)
    return None


def _before_start(snapshot: Snapshot | None, ledger: Ledger) -> ProtectionReason | None:
    """There is no group yet that a loss leaves hanging. None: there is, or nothing was read of it."""
    if snapshot is None or _is_open(ledger):
        return None
    if snapshot.jobset is None or snapshot.jobset.deleting_since is not None:
        return ProtectionReason.NO_JOB_SET
    if not_started.lost_a_member(snapshot, ledger) or not_started.not_started(snapshot) is None:
        return None
    return ProtectionReason.NOT_STARTED


def _ledger_of(recovery_group: LedgerObject | None) -> Ledger:
    return recovery_group.ledger if recovery_group is not None and recovery_group.readable else Ledger()


def _is_open(ledger: Ledger) -> bool:
    return ledger.incident is not None and ledger.incident.closing is None


# --- in words ------------------------------------------------------------------------------------------------------

_NO_SUCH_POLICY = (
    f"The annotation {POLICY_ANNOTATION} names {{policy}}, and no policy has that name.",
    "Create that policy, or remove the annotation.",
)
_NEWER_LEDGER = (
    f"RecoveryGroup {{recovery_group}} has schemaVersion {{schema_version}}, and this version knows {SCHEMA_VERSION}.",
    "Run the controller version that wrote it.",
)

_HELD_BY_BUDGET = (
    "Incident {incident} is Held{until}, because the budget is exhausted.",
    "Run recovery retry {job} to restart the group.",
)

_WORDS: Mapping[ProtectionReason, tuple[str, str]] = {
    ProtectionReason.DELETING: ("The {kind} is being deleted.", ""),
    ProtectionReason.FINISHED: ("The {kind} is complete.", ""),
    ProtectionReason.JOB_SET_FAILED: ("The {kind} has failed for good.", ""),
    ProtectionReason.SUSPENDED: ("The {kind} is suspended.", ""),
    ProtectionReason.FINISHING: ("A member has succeeded, so the training is finishing.", ""),
    ProtectionReason.NO_POLICY: (
        "No RecoveryPolicy and no ClusterRecoveryPolicy selects the job.",
        "Create a RecoveryPolicy whose spec.selector matches the labels of the job.",
    ),
    ProtectionReason.POLICY_UNUSABLE: ("The policy cannot be used: {detail}.", "Correct that field."),
    ProtectionReason.LEDGER_UNREADABLE: (
        "RecoveryGroup {recovery_group} cannot be read: {detail}.",
        "Correct its status, or delete it; its counts then begin at 0.",
    ),
    ProtectionReason.OBJECT_UNDECODABLE: (
        "{detail}, so the controller does nothing about the job.",
        "Correct that object, or delete it.",
    ),
    ProtectionReason.OBSERVE: ("{policy} only observes.", "Set spec.mode: Enforce to act."),
    ProtectionReason.BREAKER_OPEN: (
        "The circuit breaker is open{because}.",
        "Run recovery reset-breaker to close it.",
    ),
    ProtectionReason.PAUSED_BY_ANNOTATION: (
        f"The annotation {PAUSED_ANNOTATION} pauses the job{{because}}.",
        "Run recovery resume {job} to end the pause.",
    ),
    ProtectionReason.PAUSED_GLOBALLY: (
        "{detail}.",
        f"Set spec.paused: false in RecoveryConfig {CONFIG_NAME}, or correct it if it cannot be read.",
    ),
    ProtectionReason.RESTART_NONE: (
        "{policy} sets restart: None, so it leaves a lost member to Kubernetes.",
        "Set spec.restart: RecreateGroupOnPodRestart to act.",
    ),
    ProtectionReason.RULE_IGNORES_ALL: (
        "Rule {rule} of {policy} matches every loss and ignores it.",
        "Add a condition to the rule, or change its action.",
    ),
    ProtectionReason.HELD: (
        "Incident {incident} is Held{because}.",
        "Run recovery retry {job} to restart the group.",
    ),
    ProtectionReason.INCIDENT_OBSERVED: (
        "Incident {incident} opened while no policy acted, so the controller leaves it alone.",
        "Run recovery restart {job} if its ranks hang.",
    ),
    ProtectionReason.POD_KEPT_RUNNING: (
        "A failed pod stays Running{because}.",
        "End that container, or delete the pod.",
    ),
    ProtectionReason.BUDGET_EXHAUSTED: (
        "The budget of {policy} is exhausted{until}, so the controller holds the next loss.",
        "Run recovery reset-budget {job}, or raise spec.budget.limit.",
    ),
    ProtectionReason.TRAINING_CONTAINER_UNKNOWN: (
        "No rule selects the container of Job {child_job} that trains, so only the loss of a whole pod counts.",
        f"Name it in the annotation {TRAINING_CONTAINER_ANNOTATION} of the pod template or of the {{kind}}.",
    ),
    ProtectionReason.NO_JOB_SET: ("The {kind} has no JobSet.", ""),
    ProtectionReason.NOT_STARTED: (
        "The group has not run whole yet. Until then its Jobs replace a lost member.",
        "",
    ),
    ProtectionReason.PROTECTED: ("{policy} restarts the group when it loses a member.", ""),
}


def sentence(found: Protection) -> str:
    """Why the job is protected, is not, or needs no protection, for a person."""
    return _rendered(_words(found)[0], found)


def remedy(found: Protection) -> str:
    """What a person can do about it. Empty: nothing needs to be done."""
    return _rendered(_words(found)[1], found)


def _words(found: Protection) -> tuple[str, str]:
    if found.reason is ProtectionReason.NO_POLICY and found.policy:
        return _NO_SUCH_POLICY
    if found.reason is ProtectionReason.LEDGER_UNREADABLE and found.schema_version > SCHEMA_VERSION:
        return _NEWER_LEDGER
    if found.reason is ProtectionReason.HELD and not found.detail:
        return _HELD_BY_BUDGET
    return _WORDS[found.reason]


def _rendered(template: str, found: Protection) -> str:
    detail = found.detail.strip().removesuffix(".")
    return template.format(
        kind=found.kind,
        job=found.job,
        policy=found.policy,
        rule=found.rule,
        incident=found.incident,
        child_job=found.child_job,
        recovery_group=found.recovery_group,
        schema_version=found.schema_version,
        detail=detail,
        because=f": {detail}" if detail else "",
        until=f" until {found.until:%Y-%m-%d %H:%M:%S}Z" if found.until is not None else "",
    )
