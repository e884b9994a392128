"""A JobSet that is terminally Failed: it is left as it is, or recreated if the policy says so.

Only Trainer recreates a JobSet, so a JobSet that a user created stays as it is. The new one has another UID. Until it
exists, the incident waits for it.
"""

import msgspec

from recovery.core.decision import backoff
from recovery.core.decision.after_restart import not_carried_out
from recovery.core.decision.guards import Move, Question, first_stop, native_decision
from recovery.core.decision.hold import fail_job, failed_because
from recovery.core.decision.judging import enforced_now, nothing_done, seen_then, would_words
from recovery.core.decision.on_the_way import say_after_a_while
from recovery.core.diagnosis.evidence import LossKind, gather
from recovery.core.diagnosis.freshness import fresh
from recovery.core.incident import attempt_limits, drills, lifecycle, phases, sizes
from recovery.core.incident.preconditions import barred, stale
from recovery.core.model.facts import JobSetFacts
from recovery.core.model.ledger import AttemptAction, Ledger, Outcome, Phase, Target
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan import suspension
from recovery.core.plan.actions import DeleteJobSet, Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import as_before, attempt, close, say
from recovery.core.policy.spec import Mode, OnTerminalFailure

_MADE_ANEW_BY_TRAINER = "TrainJob"


def failed(context: ReconcileContext, jobset: JobSetFacts, ledger: Ledger) -> Plan:
    """The JobSet is terminally Failed: by the user's own policy, or because nothing was left to restart it."""
    snapshot, now = context.snapshot, context.now
    condition = jobset.condition("Failed")
    # A failed Job removes its pods, and with them the proof that it has trained. Here its failure counts without that.
    jobs = tuple(item for item in gather(snapshot) if item.kind is LossKind.JOB_FAILING)
    detail = (condition.message or condition.reason) if condition is not None else "Failed"
    detail = "; ".join((detail, *(item.text for item in jobs)))
    open_ = ledger.current_incident
    late = fresh(snapshot, gather(snapshot), since=open_.started_at, handled=ledger.handled, now=now)
    decided = native_decision(context, ledger, (*lifecycle.present(snapshot, ledger), *late, *jobs), ())
    at = condition.since if condition is not None and condition.since is not None else now
    ended_at = phases.within_second(at, now)
    if open_.step.fails_job:
        kept = fail_job(context, ledger)
        if kept:
            return as_before(ledger, actions=kept)
        why = explained(Sentence.JOB_SET_WAS_FAILED, failed_because(ledger), jobset=jobset.name)
        return close(ledger, Outcome.FAILED, why, ended_at)
    if decided is not None:
        why = because(Reason.NATIVE_POLICY, jobset=jobset.name, decided=decided)
        return close(ledger, Outcome.FAILED, why, ended_at)
    gave_up = because(Reason.PLATFORM_GAVE_UP, jobset=jobset.name, detail=detail)
    wanted = open_.pinned.on_terminal_failure == OnTerminalFailure.RECREATE_JOB_SET and lifecycle.decides(open_.pinned)
    if not wanted or (open_.mode == Mode.OBSERVE and enforced_now(context)):
        why = explained(Sentence.LEFT_AS_IT_IS, gave_up.reason, gave_up=gave_up)
        return close(ledger, Outcome.FAILED, why, ended_at)
    unseen = stale(snapshot)
    if unseen is not None:  # that passes, but a record that the JobSet was not recreated would stay
        return say(ledger, nothing_done(gave_up, unseen))
    refused = _not_made_again(context, ledger)
    if refused is not None:
        why = explained(Sentence.NOT_RECREATED, gave_up.reason, gave_up=gave_up, refused=refused)
        return close(ledger, Outcome.FAILED, why, ended_at)
    if open_.mode == Mode.OBSERVE:
        would = explained(Sentence.WOULD_RECREATE_JOB_SET, gave_up.reason, jobset=jobset.name)
        why = seen_then(gave_up, would_words(context, ledger, would))
        return close(ledger, Outcome.FAILED, why, ended_at)
    if ledger.epoch != context.epoch:  # this reconcile has adopted a restart already
        return as_before(ledger, requeue_at=now)
    return _recreate(context, jobset, ledger, gave_up)


def _not_made_again(context: ReconcileContext, ledger: Ledger) -> Explanation | None:
    if context.workload.kind != _MADE_ANEW_BY_TRAINER:
        return explained(Sentence.NO_ONE_RECREATES_IT, Reason.PLATFORM_GAVE_UP)
    # Neither the mode nor a paused job bars an incident that only observes. `failed` has asked whether facts are stale.
    observes = ledger.current_incident.mode == Mode.OBSERVE
    stop = first_stop(Move.NEW_JOB_SET, Question(context, ledger, forced=observes, begun=True))
    if stop is not None:
        return stop.why
    refusal = attempt_limits.refused(ledger, context.now, free=drills.not_repaired(ledger))
    if refusal is not None:
        return refusal.why
    # Birth settings apply only to the Jobs of the present JobSet.
    return sizes.undone_by_restart(msgspec.structs.replace(ledger, birth_settings=None), context.snapshot)


def _recreate(context: ReconcileContext, jobset: JobSetFacts, ledger: Ledger, gave_up: Explanation) -> Plan:
    name = ledger.current_incident.pinned.policy_name
    why = explained(Sentence.RECREATING_JOB_SET, gave_up.reason, gave_up=gave_up, policy=name)
    # Nothing of the job runs any more, so no exit can come in between.
    waits = backoff.withheld(context, ledger, why, (), hurry=None)
    if waits is not None:
        return waits
    by_drill = drills.not_repaired(ledger)
    ledger, why = backoff.taken(context, ledger, why, hurry=None, in_row=not by_drill)
    uids = tuple(job.uid for job in context.snapshot.jobs if job.jobset_uid == jobset.uid)
    target = Target(job_set_uid=jobset.uid, job_uids=uids, from_restarts=jobset.restarts)
    after = attempt(ledger, AttemptAction.RECREATE_JOB_SET, target, why, context.now, free_of_charge=by_drill)
    after = phases.enter(lifecycle.takes_jobset(after, jobset.uid), Phase.DECIDED, context.now)
    return as_before(after, actions=(*suspension.suspend(after, context.workload), _delete(jobset, after)))


def _delete(jobset: JobSetFacts, ledger: Ledger) -> DeleteJobSet:
    return DeleteJobSet(ledger.epoch, jobset.name, jobset.uid, jobset.resource_version)


def made_again(context: ReconcileContext, ledger: Ledger) -> Ledger | Plan:
    """Wait until the old JobSet is gone. A ledger: its successor exists, and is the target's JobSet now."""
    open_, jobset = ledger.current_incident, context.snapshot.jobset
    if jobset is None:
        gone = phases.enter(ledger, phases.later(_between_jobsets(context), ledger.phase), context.now)
        return say_after_a_while(context, gone, because(Reason.WAITING_FOR_JOB_SET))
    if jobset.uid != open_.target.job_set_uid:
        target = msgspec.structs.replace(open_.target, job_set_uid=jobset.uid, from_restarts=0)
        return ledger.with_incident(target=target)
    if jobset.deleting_since is not None:
        going = phases.enter(ledger, phases.later(Phase.TEARING_DOWN, ledger.phase), context.now)
        return say_after_a_while(
            context, going, explained(Sentence.WAITING_FOR_OLD_JOB_SET, Reason.WAITING_FOR_TEARDOWN, jobset=jobset.name)
        )
    if _is_adopted(ledger):
        return as_before(ledger)  # a cache that does not know yet that another client has deleted the JobSet
    bar = barred(context.workload, context.policy, forced=open_.step.forced)
    if bar is not None:
        return say(ledger, not_carried_out(open_, bar))
    return as_before(ledger, actions=(_delete(jobset, ledger),))


def _between_jobsets(context: ReconcileContext) -> Phase:
    return Phase.BACKOFF if context.workload.suspended else Phase.SCHEDULING


def awaits_new_jobset(ledger: Ledger) -> bool:
    """The latest restart deletes a failed JobSet, or another client has deleted the JobSet, and the ledger does not
    have its successor yet."""
    restart, target = attempt_limits.restart_of(ledger), ledger.current_incident.target
    return restart is not None and bool(restart.job_set_uid) and target.job_set_uid == restart.job_set_uid


def _is_adopted(ledger: Ledger) -> bool:
    restart = attempt_limits.restart_of(ledger)
    return restart is not None and restart.action is AttemptAction.ADOPTED
