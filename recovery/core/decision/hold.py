"""Holding a group: what happens when its budget or a verdict allows no attempt now."""

import msgspec

from recovery.core.decision.resuming import may_end_at
from recovery.core.diagnosis.finishing import finishing
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import phases
from recovery.core.incident.attempt_limits import Refusal
from recovery.core.incident.preconditions import barred
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Explanation, Reason, explained
from recovery.core.model.sentence import Sentence
from recovery.core.model.step import BY_BUDGET, Step, StepType
from recovery.core.model.waits import Suspension
from recovery.core.plan import suspension
from recovery.core.plan.actions import Action, FailJobSet, JobRef, Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import message_of, say
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import OnExhausted


def hold_back(context: ReconcileContext, ledger: Ledger, found: Explanation, refusal: Refusal) -> Plan:
    """No attempt may be made now. `budget.onExhausted` is carried out once, when the group becomes Held."""
    held, decides_again_at = ledger, refusal.frees_at
    if ledger.phase is not Phase.HELD:
        # Only once: a person who has since resumed the job has decided otherwise.
        held = phases.enter(ledger, Phase.HELD, context.now)
        held = _exhausted(context, held, refusal) if refusal.exhausted else _held_for_good(held, refusal)
        moments = (refusal.frees_at, may_end_at(context, held))
        decides_again_at = min((moment for moment in moments if moment is not None), default=None)
    elif not refusal.exhausted and ledger.current_incident.step.verdict is None:
        held = _held_for_good(held, refusal)
    held = msgspec.structs.replace(held, next_attempt_at=refusal.frees_at)
    then = _consequence(context, held, refusal.why.reason)
    why = explained(
        Sentence.HELD, refusal.why.reason, found=found, why=refusal.why, then=then if then is not None else ""
    )
    plan = say(held, why, requeue_at=decides_again_at)
    actions = (*suspension.suspend(held, context.workload), *fail_job(context, plan.ledger))
    return msgspec.structs.replace(plan, actions=actions)


def _exhausted(context: ReconcileContext, ledger: Ledger, refusal: Refusal) -> Ledger:
    """Apply what `onExhausted` asks for beyond holding, as far as it is allowed. A backoff or a force ends here."""
    held = Step(StepType.HELD, reason=refusal.why.reason)
    ledger = ledger.with_incident(suspension=None, step=held)
    open_ = ledger.current_incident
    match open_.pinned.on_exhausted:
        case OnExhausted.SUSPEND if suspension.refused(context, open_) is None:
            return suspension.want(ledger, Suspension())
        case OnExhausted.FAIL_JOB if isinstance(context.policy, Policy) and context.policy.may_fail_jobs:
            return ledger.with_incident(step=msgspec.structs.replace(held, fails_job=True))
    return ledger


def _held_for_good(ledger: Ledger, refusal: Refusal) -> Ledger:
    """Hold by verdict, not by budget, until a person asks for `retry`. A backoff or a force ends here."""
    why = refusal.why
    held = Step(StepType.HELD, reason=why.reason, message=message_of(why), fails_job=refusal.fail_job)
    return ledger.with_incident(suspension=None, step=held)


def _consequence(context: ReconcileContext, ledger: Ledger, reason: Reason) -> Explanation | None:
    """What becomes of the group while it is held. None: it stays as it is."""
    open_ = ledger.current_incident
    if open_.suspension is not None:
        return explained(Sentence.HELD_SUSPENDED, reason)
    if open_.step.verdict is not None:
        return explained(Sentence.HELD_FAILING if open_.step.fails_job else Sentence.HELD_UNTIL_RETRY, reason)
    if open_.step.fails_job:
        return explained(Sentence.HELD_FAILING_BY_BUDGET, reason)
    match open_.pinned.on_exhausted:
        case OnExhausted.SUSPEND if (not_ours := suspension.refused(context, open_)) is not None:
            return explained(Sentence.HELD_NOT_SUSPENDED, not_ours.reason, why=not_ours)
        case OnExhausted.FAIL_JOB:
            return explained(Sentence.HELD_NOT_FAILED, reason)
    return None


def fail_job(context: ReconcileContext, ledger: Ledger) -> tuple[Action, ...]:
    """The action that makes the JobSet fail for good, as long as the ledger says so and the JobSet has not ended.

    One that the platform fails first ends only when its TTL is removed: else Trainer would train it again. A suspended
    job waits for its resumption, because Trainer writes the TTL of its JobSet again as long as it is suspended.

    The documented way is a Job's deadline: the Job fails by it, and a JobSet without a failurePolicy fails with any of
    its Jobs. A failurePolicy might restart the JobSet instead, so in that case the JobSet's own status is written.
    """
    open_, jobset = ledger.current_incident, context.snapshot.jobset
    if not open_.step.fails_job or jobset is None or (jobset.terminal_state and jobset.ttl_seconds is None):
        return ()
    if context.workload.suspended or finishing(context.snapshot) is not None:
        return ()
    if barred(context.workload, context.policy) is not None:
        return ()
    if not (isinstance(context.policy, Policy) and context.policy.may_fail_jobs):  # RecoveryConfig may revoke it
        return ()
    jobs = member_jobs(context.snapshot)
    victim = JobRef(jobs[0].name, jobs[0].uid) if jobs and jobset.failure_policy is None else None
    return (FailJobSet(ledger.epoch, jobset.name, jobset.uid, failed_because(ledger), open_.message, victim),)


def failed_because(ledger: Ledger) -> Reason:
    """Why the controller makes the JobSet fail: a rule says so, or `onExhausted` of an exhausted budget."""
    reason = ledger.current_incident.step.reason
    return reason if reason in BY_BUDGET else Reason.FAIL_JOB_RULE


def no_hold(ledger: Ledger) -> Ledger:
    """The ledger without the suspension that a hold asked for, which has no end time."""
    wanted = ledger.current_incident.suspension
    return ledger if wanted is None or wanted.until is not None else ledger.with_incident(suspension=None)
