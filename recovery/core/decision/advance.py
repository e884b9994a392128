"""Handles an open incident, from the first verdict until all ranks are Ready again or nothing more can be done.

Level-triggered: every reconcile starts from the facts, so a crash may come after any of our writes.
`after_restart` takes over once the group has been taken down.
"""

from datetime import datetime

import msgspec

from recovery.core.decision import backoff
from recovery.core.decision import verdict as verdicts
from recovery.core.decision.after_restart import after_restart
from recovery.core.decision.before_restart import judge, kept_by_breaker, seen_then
from recovery.core.decision.deleted_group import adopt_deletion, adopt_next_jobset, is_about_the_jobset, trainer_creates
from recovery.core.decision.hold import fail_job, no_hold
from recovery.core.decision.resuming import completed, may_end_at, settling_until, whole_again
from recovery.core.decision.teardown import claimed_jobs, free_the_dead, left_alone
from recovery.core.decision.terminal_jobset import awaits_new_jobset, failed, made_again
from recovery.core.decision.verdict import Call
from recovery.core.diagnosis.evidence import Evidence, gather
from recovery.core.diagnosis.finish_overdue import left_to_finish
from recovery.core.diagnosis.freshness import fresh
from recovery.core.diagnosis.membership import failing, group_runs_whole, member_jobs, restarts_of
from recovery.core.incident import lifecycle, phases
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.incident.evidence_counts import first_seen
from recovery.core.incident.preconditions import barred, ended, suspended
from recovery.core.incident.standing import hangs, meeting_of
from recovery.core.model.facts import JobSetFacts, Snapshot
from recovery.core.model.ledger import AttemptAction, Incident, Ledger, Outcome, Phase, Target
from recovery.core.model.reason import Explanation, Reason, Sentence, because, explained
from recovery.core.model.rules import RuleAction
from recovery.core.model.standing import Standing
from recovery.core.model.step import Step, StepType
from recovery.core.plan import suspension
from recovery.core.plan.actions import Plan, ResumeWorkload, SuspendWorkload
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.steps import answer, as_before, attempt, close, message_of, say, say_as_attempted
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError, Restart


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
        return after_restart(context, _adopt(context, context.snapshot.jobset, opened))
    plan = judge(context, opened)
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
        return after_restart(context, _adopt(context, jobset, ledger))
    if _fails_already(context, ledger):
        return as_before(ledger, actions=fail_job(context, ledger))
    if lifecycle.restarted(ledger):
        return after_restart(context, ledger)
    if jobset.suspended and not context.workload.suspended:
        return answer(ledger, because(Reason.TRAINER_RESUMES, jobset=jobset.name))
    return _before_restart(context, ledger)


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
    a rule says so or leaves them to Kubernetes, or the scheduler preempts pods."""
    open_ = ledger.current_incident
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


# --- before any restart --------------------------------------------------------------------------------------------


def _before_restart(context: ReconcileContext, ledger: Ledger) -> Plan:
    """Nothing has been restarted yet: the group was left alone on purpose, is held, or must not be restarted now."""
    snapshot, now = context.snapshot, context.now
    open_ = ledger.current_incident
    more = fresh(snapshot, gather(snapshot), since=_evidence_since(context, open_), handled=ledger.handled, now=now)
    enforced = _enforced_since(open_, context.policy, more)
    if enforced is not None:
        return close(ledger, Outcome.OBSERVED, enforced, now)
    news, aside = tuple(item for item in more if not item.inferred), lifecycle.still_aside(ledger)
    if more:
        ledger = lifecycle.more_evidence(ledger, more)
    if aside and news:
        ledger = ledger.with_incident(step=Step(StepType.ASIDE, undecided=True))
    done = left_to_finish(snapshot, ledger.handled)
    if done is not None:
        return close(ledger, Outcome.SUPERSEDED, left_alone(done), now)
    waits_until = None
    put_off = _is_put_off(context, ledger)
    if group_runs_whole(snapshot) and not put_off:
        waits_until = settling_until(context, ledger)
        if waits_until is None:
            return whole_again(context, ledger)
        if ledger.current_incident.step.withheld:
            # The loss has ended by itself. A backoff that is shorter than this wait must not bring the restart now.
            return _runs_again(ledger, waits_until)
    if aside and not news:
        # Not judged again: standing aside is meant to bring a replacement, and the evidence for that decision may be
        # gone with the pod.
        plan = as_before(ledger, actions=free_the_dead(context, ledger))
    else:
        plan = judge(context, ledger, news if aside else ())
        if put_off and lifecycle.still_aside(plan.ledger) and group_runs_whole(snapshot):
            # The loss that put the end off has just been left to the platform, and nothing else may change.
            waits_until = now
    if plan.requeue_at is not None and waits_until is not None:
        waits_until = min(waits_until, plan.requeue_at)
    return msgspec.structs.replace(plan, requeue_at=waits_until or plan.requeue_at)


def _evidence_since(context: ReconcileContext, open_: Incident) -> datetime:
    """Evidence may come in late and be older than what opened the incident, but not older than the policy that did. A
    policy that has changed since does not make the incident's own evidence too old."""
    policy = context.policy
    if isinstance(policy, Policy) and policy.since <= open_.detected_at:
        return policy.since
    return open_.started_at


def _runs_again(ledger: Ledger, waits_until: datetime) -> Plan:
    """The group runs whole without the restart that waits. The incident ends at that time if it still does."""
    open_ = ledger.current_incident
    found = first_seen(open_)
    needless = explained(Sentence.READY_MEANWHILE, Reason.MEMBERS_RUN_AGAIN, ranks=open_.ranks)
    return say(ledger, seen_then(found, needless), requeue_at=waits_until)


def _is_put_off(context: ReconcileContext, ledger: Ledger) -> bool:
    """All ranks run again, and the incident stays open because a restart or a verdict is still to come."""
    found = meeting_of(context.snapshot, ledger)
    if found.leaves_at is not None or (ledger.phase is Phase.HELD and found.standing is Standing.BROKEN):
        return True
    if ledger.current_incident.step.withheld:
        return not backoff.all_met_after(context.snapshot, ledger, lifecycle.present(context.snapshot, ledger))
    return _restarts_once_started(context, ledger) or _verdict_is_due(context, ledger)


def _verdict_is_due(context: ReconcileContext, ledger: Ledger) -> bool:
    """All ranks run again, and the incident stays open for its verdict.

    The verdict may be put off, also under Observe, where the record must show it. It may be to make the JobSet fail.
    And after a restart in place the other ranks hang.
    """
    open_ = ledger.current_incident
    observes = open_.mode == Mode.OBSERVE
    if fail_job(context, ledger):
        return True
    if observes and not _would_is_due(context, open_):
        return False
    if not observes and (not lifecycle.acts(ledger) or ledger.phase is Phase.HELD):
        return False
    if barred(context.workload, context.policy, forced=observes) is not None:
        return False
    if lifecycle.still_aside(ledger):
        return False
    return bool(lifecycle.present(context.snapshot, ledger))


def _would_is_due(context: ReconcileContext, open_: Incident) -> bool:
    """Under Observe: the record still lacks what Enforce would have done, and the policy does not enforce yet."""
    enforced = isinstance(context.policy, Policy) and context.policy.mode is Mode.ENFORCE
    return lifecycle.decides(open_.pinned) and not enforced and not open_.would


def _restarts_once_started(context: ReconcileContext, ledger: Ledger) -> bool:
    """Under RecreateGroupAfterStart the restart was only put off until all members run.

    False if nothing shows the loss any more, because a suspended Job has begun another run or a node answers again.
    `judge` then restarts nothing, so an incident that waited for the restart would never end.
    """
    open_ = ledger.current_incident
    put_off = open_.pinned.restart == Restart.RECREATE_GROUP_AFTER_START and lifecycle.acts(ledger)
    may = barred(context.workload, context.policy) is None
    seen = bool(lifecycle.present(context.snapshot, ledger))
    return put_off and may and seen and ledger.phase is not Phase.HELD and not lifecycle.stood_aside(ledger)


def _enforced_since(
    open_: Incident, policy: Policy | PolicyError | None, more: tuple[Evidence, ...]
) -> Explanation | None:
    """Why new losses must not end in an incident that only observes: the policy enforces now. None: it does not, or
    nothing was lost since then."""
    if open_.mode != Mode.OBSERVE or not isinstance(policy, Policy) or policy.mode is not Mode.ENFORCE:
        return None
    if not any(item.at is not None and item.at >= policy.since for item in more):
        return None
    sentence = Sentence.SINCE_BREAKER_CLOSED if kept_by_breaker(open_, policy) else Sentence.SINCE_ENFORCED
    return explained(sentence, Reason.MODE_SWITCHED)
