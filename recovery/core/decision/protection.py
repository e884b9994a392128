"""Whether a job is protected: does the controller restart its group when it loses a member now, and if not, why not.

A job that runs and is not protected hangs after a loss until a person acts. The answer is about the next loss. For a
loss that has an incident, the incident's phase is the answer, unless that incident waits for a person too.
"""

from datetime import datetime
from typing import Self

import msgspec

from recovery.core.diagnosis import not_started
from recovery.core.diagnosis.finish_overdue import left_to_finish
from recovery.core.diagnosis.group_conditions import POD_KEPT_RUNNING, UNDECODABLE, undecodable
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.diagnosis.training_container import SelectedBy, select
from recovery.core.incident import attempt_limits, budget, fencing, lifecycle
from recovery.core.incident.preconditions import ended, needs_force, paused
from recovery.core.model.annotations import PAUSED_ANNOTATION, POLICY_ANNOTATION
from recovery.core.model.config import why_opened
from recovery.core.model.facts import Snapshot, WorkloadFacts
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.core.model.reason import Explanation
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.plan.suspension import in_force
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError, Restart

_RESTARTING = frozenset(set(RuleAction) - {RuleAction.FAIL_JOB, RuleAction.IGNORE})


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
        or _by_standing(workload, _ledger_of(recovery_group), policy)
        or _by_policy(workload, policy)
        or _by_silent_node(workload, snapshot, _ledger_of(recovery_group), policy, now)
    )
    if found is None and recovery_group is not None:
        found = _by_incident(workload, recovery_group.ledger, now)
    if found is None:
        found = _by_budget(workload, _ledger_of(recovery_group), policy, now)
    if found is None and snapshot is not None:
        found = _by_container(workload, snapshot)
    if found is None:
        reason = _before_start(snapshot, _ledger_of(recovery_group)) or ProtectionReason.PROTECTED
        under_way = _ledger_of(recovery_group).current_incident.id if _is_open(_ledger_of(recovery_group)) else ""
        found = Protection(reason, workload.kind, workload.name, incident=under_way)
    return msgspec.structs.replace(found, policy=policy.title)


def _unneeded(
    workload: WorkloadFacts, snapshot: Snapshot | None, recovery_group: LedgerObject | None
) -> ProtectionReason | None:
    """Why the job has nothing to lose, or nothing that a restart would save. None: it has something."""
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
    if snapshot is not None and left_to_finish(snapshot, _ledger_of(recovery_group).handled) is not None:
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
        detail=recovery_group.ledger.message,
    )


def _by_objects(workload: WorkloadFacts, snapshot: Snapshot | None, ledger: Ledger) -> Protection | None:
    """An object cannot be read. A listing reads no pods of a group that is all Ready, so the controller's condition
    counts as well."""
    read = undecodable(snapshot) if snapshot is not None else None
    said = next((c.message for c in ledger.conditions if (c.type, c.status) == (UNDECODABLE, "True")), "")
    detail = read.message if read is not None else said
    return (
        Protection(ProtectionReason.OBJECT_UNDECODABLE, workload.kind, workload.name, detail=detail) if detail else None
    )


def _by_standing(workload: WorkloadFacts, ledger: Ledger, policy: Policy) -> Protection | None:
    """The group hangs already. This goes before what the policy says: even an enforcing policy repairs it no more."""
    broken = ledger.broken
    if broken is None or _is_open(ledger) or policy.global_pause is not None:
        return None  # a global pause refuses even a forced restart, so it comes first
    return Protection(
        ProtectionReason.BROKEN,
        workload.kind,
        workload.name,
        incident=broken.incident,
        detail=broken.message,
        since=broken.since,
        forced=needs_force(workload, policy),
    )


def _by_silent_node(
    workload: WorkloadFacts, snapshot: Snapshot | None, ledger: Ledger, policy: Policy, now: datetime
) -> Protection | None:
    """A group that has run whole has ranks on a node that does not answer. They may train, or the others may hang."""
    if snapshot is None or _is_open(ledger) or _before_start(snapshot, ledger) is not None:
        return None
    fates = fencing.fates_of_nodes(snapshot, policy, now).values()
    silent = next((fate.why for fate in fates if fate.dead_since is None), None)
    if silent is None:
        return None
    return Protection(ProtectionReason.NODE_SILENT, workload.kind, workload.name, detail=silent)


def _by_policy(workload: WorkloadFacts, policy: Policy) -> Protection | None:
    """What a person has set that keeps the controller from acting on the job."""
    reason: ProtectionReason | None = None
    detail = rule = ""
    why: Explanation | None = None
    catch_all = _catch_all(policy)
    if policy.breaker is not None:
        reason = ProtectionReason.BREAKER_OPEN
        why = why_opened(policy.fleet.breaker) if policy.fleet.breaker is not None else None
    elif policy.mode is Mode.OBSERVE:
        reason = ProtectionReason.OBSERVE
    elif paused(workload):
        reason, said = ProtectionReason.PAUSED_BY_ANNOTATION, workload.annotations[PAUSED_ANNOTATION]
        detail = "" if said == "true" else said
    elif policy.global_pause is not None:
        reason, why = ProtectionReason.PAUSED_GLOBALLY, policy.global_pause
    elif catch_all is not None and catch_all.action is RuleAction.IGNORE:
        reason, rule = ProtectionReason.RULE_IGNORES_ALL, catch_all.name
    elif catch_all is None and policy.restart is Restart.NONE:
        reason = ProtectionReason.RESTART_NONE
    if reason is None:
        return None
    return Protection(reason, workload.kind, workload.name, rule=rule, detail=detail, why=why)


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
    detail, until = open_.step.message, None
    if ledger.phase is Phase.HELD:
        reason, until = ProtectionReason.HELD, ledger.next_attempt_at
    elif not lifecycle.acts(ledger):
        reason = ProtectionReason.INCIDENT_OBSERVED
    elif kept_running is not None:
        reason, detail = ProtectionReason.POD_KEPT_RUNNING, kept_running.message
    elif (refusal := attempt_limits.refused(ledger, now)) is not None:
        free = _Free.of(open_.pinned.rules, open_.pinned.restart)
        if attempt_limits.refused(ledger, now, free=True) is not None:
            free = _Free()
        found = Protection(ProtectionReason.BUDGET_EXHAUSTED, workload.kind, workload.name, incident=open_.id)
        return free.beside(msgspec.structs.replace(found, until=refusal.frees_at))
    if reason is None:
        return None
    return Protection(reason, workload.kind, workload.name, incident=open_.id, detail=detail, until=until)


class _Free(msgspec.Struct, frozen=True):
    """The losses after which the group is restarted even if the budget is exhausted, because they are not charged."""

    rules: tuple[str, ...] = ()
    """Names of the rules that decide on them."""
    preemptions: bool = False
    """Preemptions that no rule matches are among them."""
    all_losses: bool = False
    """No restart is charged: the first rule that matches every loss charges nothing, and neither do those before it."""

    @classmethod
    def of(cls, rules: tuple[Rule, ...], restart: str) -> Self:
        names: list[str] = []
        charges = False
        for rule in rules:
            if rule.action in _RESTARTING:
                charges = charges or rule.charge
                names += [] if rule.charge else [rule.name]
            if rule.when == When():
                free = rule.action in _RESTARTING and not rule.charge
                return cls(tuple(names), all_losses=free and not charges)
        return cls(tuple(names), preemptions=restart != Restart.NONE)

    def beside(self, exhausted: Protection) -> Protection | None:
        """The answer for an exhausted budget, with these exceptions. None: no answer, because every loss is one."""
        if self.all_losses:
            return None
        return msgspec.structs.replace(exhausted, free_rules=self.rules, free_preemptions=self.preemptions)


def _by_budget(workload: WorkloadFacts, ledger: Ledger, policy: Policy, now: datetime) -> Protection | None:
    """Between incidents: the budget cannot pay for the next one. An open incident has its own terms."""
    if _is_open(ledger) or budget.remaining(ledger.budget, policy.budget_limit, policy.budget_window, now) > 0:
        return None
    until = budget.frees_at(ledger.budget, policy.budget_limit, policy.budget_window, now)
    found = Protection(ProtectionReason.BUDGET_EXHAUSTED, workload.kind, workload.name, until=until)
    return _Free.of(policy.rules, policy.restart).beside(found)


def _by_container(workload: WorkloadFacts, snapshot: Snapshot) -> Protection | None:
    """A lost pod starts a recovery, but a container that exits and starts again in place does not."""
    for job in member_jobs(snapshot):
        if select(job, workload).by is SelectedBy.UNKNOWN:
            reason = ProtectionReason.TRAINING_CONTAINER_UNKNOWN
            return Protection(reason, workload.kind, workload.name, child_job=job.name)
    return None


def _before_start(snapshot: Snapshot | None, ledger: Ledger) -> ProtectionReason | None:
    """Why there is no group yet that a loss would leave hanging. None: there is one, or it was not read."""
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
