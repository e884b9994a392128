"""Holding a group: no attempt may be made now, by its budget or by verdict, and what follows from that."""

import msgspec

from recovery.core.diagnosis.finishing import finishing
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import lifecycle, phases
from recovery.core.incident.attempt_limits import Refusal
from recovery.core.incident.preconditions import barred
from recovery.core.model.ledger import Ledger, Phase, Suspension
from recovery.core.plan import suspension
from recovery.core.plan.actions import Action, FailJobSet, JobRef, Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import OnExhausted


def hold_back(context: ReconcileContext, ledger: Ledger, found: str, refusal: Refusal) -> Plan:
    """No attempt may be made now: what `budget.onExhausted` says is done, once, when the group becomes Held."""
    held = ledger
    if ledger.phase is not Phase.HELD:
        # Only then: a person who has resumed it since has decided otherwise.
        held = phases.enter(ledger, Phase.HELD, context.now)
        held = _exhausted(context, held) if refusal.exhausted else _held_for_good(held, refusal)
    elif not refusal.exhausted and not ledger.current_incident.held:
        held = _held_for_good(held, refusal)
    held = msgspec.structs.replace(held, next_attempt_at=refusal.frees_at)
    reason = f"{found}; held, because {refusal.why}{_consequence(context, held)}"
    held = lifecycle.say(held, reason)
    actions = (*suspension.suspend(held, context.workload), *fail_job(context, held))
    return Plan(held, reason, actions=actions, requeue_at=refusal.frees_at)


def _exhausted(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """What `onExhausted` wants beyond holding, as far as it is allowed; a backoff or a force does not outlast it."""
    ledger = ledger.with_incident(suspension=None, forced=False)
    open_ = ledger.current_incident
    match open_.terms.on_exhausted:
        case OnExhausted.SUSPEND if suspension.refused(context, open_) is None:
            return suspension.want(ledger, Suspension())
        case OnExhausted.FAIL_JOB if isinstance(context.policy, Policy) and context.policy.may_fail_jobs:
            return ledger.with_incident(fail_job=True)
    return ledger


def _held_for_good(ledger: Ledger, refusal: Refusal) -> Ledger:
    """By verdict, not by budget: until a person says `retry`; a backoff or a force does not outlast it."""
    return ledger.with_incident(suspension=None, forced=False, held=refusal.why, fail_job=refusal.fail_job)


def _consequence(context: ReconcileContext, ledger: Ledger) -> str:
    open_ = ledger.current_incident
    if open_.suspension is not None:
        return "; suspended, so that its GPUs are free"
    if open_.fail_job and open_.held:
        return "; the JobSet is made to fail"
    if open_.held:
        return "; recovery retry ends that"
    if open_.fail_job:
        return "; the JobSet is made to fail (onExhausted: FailJob)"
    match open_.terms.on_exhausted:
        case OnExhausted.SUSPEND if (not_ours := suspension.refused(context, open_)) is not None:
            return f"; it is not suspended, because {not_ours}"
        case OnExhausted.FAIL_JOB:
            return "; it is not made to fail, because RecoveryConfig does not allow FailJob"
    return ""


def fail_job(context: ReconcileContext, ledger: Ledger) -> tuple[Action, ...]:
    """The deed that ends the JobSet, for as long as the ledger says so and it has not ended.

    A JobSet without a failurePolicy fails with any of its Jobs, and a Job fails by its deadline: the documented way. A
    failurePolicy might restart it instead, so there the JobSet's own status is written.
    """
    open_, jobset = ledger.current_incident, context.snapshot.jobset
    if not open_.fail_job or jobset is None or jobset.terminal_state or finishing(context.snapshot) is not None:
        return ()
    if barred(context.workload, context.policy) is not None:
        return ()
    if not (isinstance(context.policy, Policy) and context.policy.may_fail_jobs):  # RecoveryConfig may take it back
        return ()
    jobs = member_jobs(context.snapshot)
    victim = JobRef(jobs[0].name, jobs[0].uid) if jobs and jobset.failure_policy is None else None
    return (FailJobSet(ledger.epoch, jobset.name, jobset.uid, open_.reason, victim),)
