"""Handles an open incident, from the first verdict until all ranks are Ready again or nothing more can be done.

Level-triggered: every reconcile starts from the facts, so a crash may come after any of our writes.
`after_restart` takes over once the group has been taken down.
"""

from datetime import datetime

import msgspec

from recovery.core.decision import verdict as verdicts
from recovery.core.decision.deleted_group import adopt_deletion, adopt_next_jobset, is_about_the_jobset, trainer_creates
from recovery.core.decision.hold import fail_job, no_hold
from recovery.core.decision.in_place_watch import taken_in
from recovery.core.decision.judging import judge
from recovery.core.decision.resuming import completed, may_end_at
from recovery.core.decision.table import reconcile
from recovery.core.decision.teardown import claimed_jobs
from recovery.core.decision.terminal_jobset import awaits_new_jobset, failed, made_again
from recovery.core.decision.verdict import Call
from recovery.core.diagnosis.membership import failing, group_runs_whole, member_jobs, restarts_of
from recovery.core.incident import drills, lifecycle, phases
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.incident.evidence_counts import first_seen
from recovery.core.incident.preconditions import ended, suspended
from recovery.core.incident.standing import hangs
from recovery.core.model.facts import JobSetFacts, Snapshot
from recovery.core.model.ledger import AttemptAction, Ledger, Outcome, Phase, Target
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.rules import RuleAction
from recovery.core.model.sentence import Sentence
from recovery.core.plan import suspension
from recovery.core.plan.actions import Plan, ResumeWorkload, SuspendWorkload
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import answer, as_before, attempt, close, message_of, say_as_attempted


def in_incident(context: ReconcileContext, ledger: Ledger) -> Plan:
    """One reconcile of a group whose incident is open."""
    workload = context.workload
    over = ended(workload)
    if over is not None:
        superseded = close(ledger, Outcome.SUPERSEDED, over, _over_at(context, ledger))
        return completed(context, ledger, over) or superseded
    if workload.suspended and not suspension.in_force(workload) and not _fails_already(context, ledger):
        plan = close(ledger, Outcome.SUPERSEDED, suspended(workload), _over_at(context, ledger))
        return msgspec.structs.replace(plan, first=claimed_jobs(context, ledger))
    ledger, actions = suspension.settle(context, ledger)
    plan = _in_jobset(context, ledger)
    if any(isinstance(action, SuspendWorkload | ResumeWorkload) for action in plan.actions):
        return plan
    if plan.ledger.current_incident.suspension is None:  # a plan that ends the suspension must not ask for it
        actions = suspension.resume(workload)
    return msgspec.structs.replace(plan, actions=(*actions, *plan.actions))


def _fails_already(context: ReconcileContext, ledger: Ledger) -> bool:
    """The controller fails the job, and a Job is failing. Nothing takes this back, but a pod that cannot end may delay
    the JobSet's failure. A client that suspends the job meanwhile does not change it, nor do pods of the Job that exit
    with 0 when it deletes them. If these ended the incident, the failure would open another one, which would not say
    that the controller has caused it."""
    return ledger.current_incident.step.fails_job and any(map(failing, member_jobs(context.snapshot)))


def _over_at(context: ReconcileContext, ledger: Ledger) -> datetime:
    """When an incident that others cut short was over.

    A held incident stays open for a while after the group runs whole again (`settling_until`). No GPU is idle then.
    """
    if ledger.phase is Phase.HELD and group_runs_whole(context.snapshot) and not hangs(context.snapshot, ledger):
        held_since = ledger.current_incident.phases[-1].started_at
        return phases.end_of_rendezvous(context.snapshot, held_since, context.now)
    return context.now


def decide_opened(context: ReconcileContext, opened: Ledger) -> Plan:
    """The reconcile that opened the incident. It judges the loss, even if the group runs whole again by now."""
    if lifecycle.is_deletion(lifecycle.present(context.snapshot, opened)):
        return adopt_deletion(context, opened)
    assert context.snapshot.jobset is not None, "evidence comes from the Jobs of a JobSet"
    if _platform_restarts(context.snapshot, opened):
        return reconcile(context, _adopt(context, context.snapshot.jobset, opened))
    plan = taken_in(context, opened) or judge(context, opened)
    if plan.requeue_at is not None:
        return plan
    # If the replacements were quicker than the controller, no change of theirs brings the reconcile that may end it.
    return msgspec.structs.replace(plan, requeue_at=may_end_at(context, plan.ledger))


def _in_jobset(context: ReconcileContext, ledger: Ledger) -> Plan:
    """The workload exists, and no one else has suspended it. Checks its JobSet first, then the group in it."""
    if awaits_new_jobset(ledger):
        seen = made_again(context, ledger)
        if isinstance(seen, Plan):
            return seen
        ledger = seen
    gone = _gone(context, ledger)
    if gone is not None and is_about_the_jobset(gone) and trainer_creates(context.workload, context.now):
        return adopt_next_jobset(context, ledger)
    if gone is not None:
        return completed(context, ledger, gone) or close(ledger, Outcome.SUPERSEDED, gone, context.now)
    jobset = context.snapshot.jobset
    assert jobset is not None, "one that is not there is gone"
    if jobset.terminal_state == "Failed":
        return failed(context, jobset, ledger)
    if _platform_restarts(context.snapshot, ledger):
        return reconcile(context, _adopt(context, jobset, ledger))
    if _fails_already(context, ledger):
        return as_before(ledger, actions=fail_job(context, ledger))
    if not lifecycle.restarted(ledger) and jobset.suspended and not context.workload.suspended:
        return answer(ledger, because(Reason.TRAINER_RESUMES, jobset=jobset.name))
    return reconcile(context, ledger)


def _gone(context: ReconcileContext, ledger: Ledger) -> Explanation | None:
    """Why the incident's JobSet cannot be restarted any more. None: it can."""
    jobset = context.snapshot.jobset
    if jobset is None:
        return because(Reason.NO_JOB_SET, kind=context.workload.kind)
    if jobset.uid != ledger.current_incident.target.job_set_uid:
        return because(Reason.JOB_SET_REPLACED)
    if jobset.deleting_since is not None:
        return because(Reason.JOB_SET_DELETED, what=f"JobSet {jobset.name}")
    if jobset.terminal_state == "Completed":
        return because(Reason.JOB_COMPLETE, what=f"JobSet {jobset.name}", state="Completed")
    return None


# --- restarts that are not ours ------------------------------------------------------------------------------------


def _platform_restarts(snapshot: Snapshot, ledger: Ledger) -> bool:
    """The JobSet counted a restart of its own, or another client deletes the Jobs before any trigger of ours."""
    target = ledger.current_incident.target
    if restarts_of(snapshot) > target.from_restarts:
        return True
    if lifecycle.restarted(ledger):
        return False
    living = {job.uid for job in snapshot.jobs if job.deleting_since is None}
    # If another client deletes only some of the Jobs, the ranks of the others hang, and only we restart those.
    return living.isdisjoint(target.job_uids)


def _adopt(context: ReconcileContext, jobset: JobSetFacts, ledger: Ledger) -> Ledger:
    """Record the platform's own restart as the attempt's action. Nothing more is deleted for it.

    If a trigger of ours is still under way, it takes down the same Jobs as the JobSet's restart, so the two are one
    restart. That restart is ours if our deletion has landed; otherwise it becomes the platform's.
    """
    before, restarts = ledger.current_incident, restarts_of(context.snapshot)
    outdated = [
        job.uid
        for job in context.snapshot.jobs
        if job.jobset_uid == jobset.uid and (job.deleting_since is not None or job.restart_attempt < restarts)
    ]
    target = Target(
        job_set_uid=jobset.uid,
        job_uids=tuple(dict.fromkeys((*before.target.job_uids, *outdated))),
        from_restarts=restarts,
    )
    by_jobset = restarts > before.target.from_restarts
    why = explained(
        Sentence.ADOPTED,
        Reason.PLATFORM_RESTART,
        # Under Observe an adopted restart does not undo what was said about the loss.
        said=before.would_message if before.would else first_seen(before),
        jobset=jobset.name if by_jobset else "",
    )
    under_way = restart_of(ledger)
    if under_way is None or ledger.phase not in phases.GOING_DOWN:
        free = _is_free(context, ledger)
        adopted = attempt(ledger, AttemptAction.ADOPTED, target, why, context.now, free_of_charge=free)
        # Whatever the phase was, the group goes down again. A hold is over, because another client restarted the group.
        return phases.enter(no_hold(adopted), Phase.DECIDED, _back_at(context, target))
    merged = ledger.with_incident(target=target)
    if phases.position(context.snapshot, before.target, before.ranks) is not Phase.DECIDED:
        return merged
    theirs = msgspec.structs.replace(
        under_way, action=AttemptAction.ADOPTED, reason=why.reason, message=message_of(why), then=""
    )
    attempts = tuple(theirs if each.number == under_way.number else each for each in before.attempts)
    return say_as_attempted(merged.with_incident(attempts=attempts), theirs)


def _is_free(context: ReconcileContext, ledger: Ledger) -> bool:
    """A restart of ours would not be charged for this loss. Such losses are no crash loop, whatever restarts the group:
    a drill caused them, a rule says so or leaves them to Kubernetes, or the scheduler preempts pods."""
    open_ = ledger.current_incident
    if drills.not_repaired(ledger):
        return True
    rule = next((rule for rule in open_.pinned.rules if rule.name == open_.rule), None)
    if rule is not None:
        return rule.action is RuleAction.IGNORE or not rule.charge
    verdict = verdicts.of(context, ledger, lifecycle.present(context.snapshot, ledger))
    return verdict.call is Call.IGNORE or not verdict.charge


def _back_at(context: ReconcileContext, target: Target) -> datetime:
    """The latest moment at which the platform can have restarted the group. A delayed controller sees that late."""
    made = (job.created_at for job in member_jobs(context.snapshot) if job.uid not in target.job_uids)
    first = min(made, default=None)
    return context.now if first is None else phases.within_second(first, context.now)
