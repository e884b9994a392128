"""After a restart, by us or by the platform: the group is seen through until all ranks are Ready again.

What may go wrong on the way: the trigger was lost, the Job gets no pods or cannot place them, they do not all start, or
a member is lost again. Each has its answer here, and none of them waits in silence.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.decision import backoff, black_holes, fleet_changes
from recovery.core.decision import verdict as verdicts
from recovery.core.decision.before_restart import (
    carry_out,
    native_decision,
    nothing_done,
    records,
    seen_then,
    stands_aside,
    waits_for,
)
from recovery.core.decision.hold import fail_job, hold_back
from recovery.core.decision.resuming import deadline_of, settling_until, whole_again
from recovery.core.decision.teardown import free_the_dead, left_alone, pod_deletes, takedown
from recovery.core.decision.verdict import Call, Verdict
from recovery.core.diagnosis import not_started
from recovery.core.diagnosis.evidence import STALE_AFTER, Evidence, LossKind, fresh, gather
from recovery.core.diagnosis.finish_overdue import left_to_finish
from recovery.core.diagnosis.finishing import all_done, finishing, last_begun
from recovery.core.diagnosis.membership import group_runs_whole, member_jobs, place, pods_of, stands_still
from recovery.core.diagnosis.resized import resized
from recovery.core.diagnosis.trained import began_at
from recovery.core.incident import attempt_limits, fencing, lifecycle, phases
from recovery.core.incident.attempt_limits import Refusal, restart_of
from recovery.core.incident.preconditions import barred, no_trigger, paused
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.ledger import Attempt, AttemptAction, Incident, Ledger, Outcome, Phase, Told
from recovery.core.model.reason import Explanation, Reason, Sentence, all_of, as_said, because, told
from recovery.core.plan import suspension
from recovery.core.plan.actions import Plan, ReadLive, TouchJob
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.steps import (
    as_before,
    attempt,
    close,
    say,
    say_as_attempted,
    say_more,
    say_of_attempt,
    stand_aside,
)
from recovery.core.policy.resolved import Policy

TOUCH_AFTER = timedelta(seconds=60)
"""A Job without pods for this long is touched, so that its controller syncs it again (k/k 131917, 132042)."""
GIVE_UP_AFTER = timedelta(seconds=120)
"""A Job without pods for this long is given up: a new attempt."""
SAY_AFTER = timedelta(seconds=30)
"""Waiting for capacity, or for pods that are refused, is reported after this long, and reconciled again."""
_PODS_SEEN_IN = timedelta(seconds=5)
"""A cache that shows a Job shows its first pods so soon after that, or there are none."""
_MAX_QUOTE = 300


def after_restart(context: ReconcileContext, ledger: Ledger) -> Plan:
    """The group was restarted, by us or by the platform: see it through until all ranks are Ready again."""
    open_ = ledger.current_incident
    restart = restart_of(ledger)
    assert restart is not None, "asked only of incidents with a restart"
    ours = restart.action in attempt_limits.OURS
    found = phases.position(context.snapshot, open_.target, open_.ranks)
    if found is Phase.DECIDED and ours:
        return _reissue(context, ledger, restart)
    lost = _lost_since(context.snapshot, ledger, context.now)
    withheld = open_.withheld
    if withheld is not None and backoff.recovered_by_itself(context.snapshot, withheld, seen=bool(lost)):
        return whole_again(context, lifecycle.more_evidence(ledger, lost))
    if lost and lifecycle.acts(ledger):
        again = _breaks_the_group(context, ledger, lost)
        earlier = tuple(
            item for item in lifecycle.present(context.snapshot, ledger) if item.job_uid not in open_.target.job_uids
        )
        decided = native_decision(context, ledger, earlier, again)
        if again and decided is None and ledger.phase is not Phase.HELD:
            return _lost_again(context, ledger, again)
        if decided is not None or withheld is None:
            ledger = _left_to_platform(context, ledger, lost, decided)
    withheld = ledger.current_incident.withheld
    if withheld is not None and backoff.lives_on(context.snapshot, withheld):
        since = told(Sentence.LOST_AGAIN_SINCE, Reason.MEMBER_LOST_AGAIN, evidence=open_.evidence[-1])
        return _try_again(context, ledger, since, lost)
    runs = _runs(context, ledger, found)
    if runs is not None:
        return runs
    if ledger.phase is Phase.HELD:
        return _held(context, ledger)
    if found is Phase.SCHEDULING and ledger.phase in phases.GOING_DOWN and _pods_may_be_unseen(context):
        return as_before(ledger, actions=(ReadLive(),))
    waits = found is Phase.SCHEDULING and ledger.phase is Phase.STARTING and _without_capacity(context.snapshot)
    # Waiting for capacity does not count as starting, though all pods had a node before one of them was replaced. Nor
    # was an old pod torn down while its node did not answer, though its Job was deleted before.
    undated = waits or (found is Phase.TEARING_DOWN and ledger.phase is Phase.FENCING)
    reached_at = context.now if undated else phases.reached_at(context.snapshot, open_.target, found, context.now)
    ledger = phases.enter(ledger, found if waits else phases.later(found, ledger.phase), reached_at)
    if found in phases.GOING_DOWN or found is Phase.BACKOFF:
        return _watch(context, ledger, found, ours=ours)
    return _watch_for_black_holes(context, ledger, found, ours=ours)


def _pods_may_be_unseen(context: ReconcileContext) -> bool:
    """The old group is gone, and of the new one no Job is there, or one that is not new has no pods.

    The pods of the new group date the phase, and a controller that was held up reads them late.
    """
    snapshot = context.snapshot
    if snapshot.live:
        return False
    jobs = member_jobs(snapshot)
    empty = (job for job in jobs if not stands_still(job) and not pods_of(snapshot, job))
    return not jobs or any(context.now - began_at(job) > _PODS_SEEN_IN for job in empty)


def _runs(context: ReconcileContext, ledger: Ledger, found: Phase) -> Plan | None:
    """The new group is complete, or has trained to its end already. None: not yet."""
    if found is Phase.HEALTHY:
        waits_until = settling_until(context, ledger) if ledger.phase is Phase.HELD else None
        if waits_until is None:
            return whole_again(context, ledger)
        return as_before(ledger, requeue_at=waits_until)
    done = finishing(context.snapshot) if found not in phases.GOING_DOWN and all_done(context.snapshot) else None
    return None if done is None else close(ledger, Outcome.SUPERSEDED, left_alone(done), _trained_since(context))


def _trained_since(context: ReconcileContext) -> datetime:
    """When a group that is done by now ran again, as far as that is known."""
    begun_at = last_begun(context.snapshot)
    return context.now if begun_at is None else phases.within_second(begun_at, context.now)


def _watch_for_black_holes(context: ReconcileContext, ledger: Ledger, found: Phase, *, ours: bool) -> Plan:
    """The group is starting: what a node does to it while the others run is held against that node.

    Only a node that is taken away for it calls for another restart, so that there are no more of them than nodes the
    caps admit; where it may not be, `timeouts.start` goes on as ever.
    """
    open_ = ledger.current_incident
    # A person insisted on the restart that was made, not on what may come of it for nodes.
    if not lifecycle.acts(ledger) or barred(context.workload, context.policy) is not None:
        return _watch(context, ledger, found, ours=ours)
    asked = black_holes.in_incident(context, ledger)
    if asked.replace is not None:
        hole, verdict = asked.replace
        # What was refused on live facts need not be asked again by each reconcile from the cache.
        refused = any((each.action, each.node) == (verdict.call, hole.node) for each in open_.considered)
        if context.snapshot.live or not refused:
            wish = fleet_changes.admitted(context, ledger, verdict)
            if wish.call is Call.REPLACE_NODE and attempt_limits.refused(ledger, context.now) is None:
                seen = told(Sentence.HOLE_SEEN, Reason.NODE_SWALLOWS_PODS, what=hole.why)
                return _try_again(context, ledger, seen, verdict=wish)
            ledger = lifecycle.consider(ledger, records(wish))
    plan = _watch(context, ledger, found, ours=ours)
    moments = [moment for moment in (plan.requeue_at, asked.requeue_at) if moment is not None]
    plan = msgspec.structs.replace(
        plan, actions=(*asked.actions(ledger.epoch), *plan.actions), requeue_at=min(moments, default=None)
    )
    # What ended, held or restarted the group in this very reconcile is told instead.
    if not asked.told or plan.ledger.epoch != ledger.epoch or plan.ledger.phase is not ledger.phase:
        return plan
    if open_.attempt is None:
        return plan
    ledger = say_of_attempt(plan.ledger, all_of(asked.told))
    return as_before(ledger, actions=plan.actions, requeue_at=plan.requeue_at)


def _watch(context: ReconcileContext, ledger: Ledger, found: Phase, *, ours: bool) -> Plan:
    """The group is on its way: each phase has what may go wrong in it."""
    if found in phases.GOING_DOWN:
        return _watch_the_teardown(context, ledger, ours=ours)
    if found is Phase.BACKOFF:
        return _watch_the_backoff(context, ledger)
    if ledger.phase is Phase.SCHEDULING:
        return _watch_the_scheduling(context, ledger)
    if ledger.phase is Phase.STARTING:
        return _watch_the_start(context, ledger)
    if ledger.phase is Phase.RESUMING:
        return _watch_the_resuming(context, ledger)
    return _watch_the_rendezvous(context, ledger)


def _reissue(context: ReconcileContext, ledger: Ledger, restart: Attempt) -> Plan:
    """The ledger has the target, but a target Job lives on: the trigger was lost, refused as stale, or never sent."""
    snapshot, open_ = context.snapshot, ledger.current_incident
    if group_runs_whole(snapshot) and context.now - restart.started_at > STALE_AFTER:
        why = told(Sentence.READY_MEANWHILE, Reason.RUNS_WHOLE_AGAIN, ranks=open_.ranks)
        return close(ledger, Outcome.SUPERSEDED, why, context.now)
    stale_at = restart.started_at + STALE_AFTER
    bar = barred(context.workload, context.policy, forced=open_.forced or _finishes(context, ledger))
    if bar is not None:
        return say(ledger, not_carried_out(open_, bar), requeue_at=stale_at if stale_at > context.now else None)
    if not snapshot.live:
        return as_before(ledger, actions=(ReadLive(),))
    done = left_to_finish(snapshot, ledger.handled)
    if done is not None:
        return close(ledger, Outcome.SUPERSEDED, left_alone(done), context.now)
    late = fresh(snapshot, gather(snapshot), since=open_.started_at, handled=ledger.handled, now=context.now)
    decided = native_decision(context, ledger, (*lifecycle.present(snapshot, ledger), *late), ())
    if decided is not None:
        # From all of it: a suspension would hold up what the user's own policy has decided.
        found = because(Reason.MEMBER_LOST, evidence=open_.evidence[0])
        return say(suspension.want(ledger, None), stands_aside(found, decided))
    changed = resized(snapshot) if restart.reason is not Reason.RESTARTED_BY_HAND else None
    if changed is not None:
        found = because(Reason.MEMBER_LOST, evidence=open_.evidence[0])
        return hold_back(context, ledger, found, Refusal(changed, None, exhausted=False))
    ledger = say_as_attempted(ledger, restart)
    return takedown(context, ledger)


def _finishes(context: ReconcileContext, ledger: Ledger) -> bool:
    """Part of the group is down for this attempt, and all that bars the rest is that the circuit breaker is open.

    The attempt itself may have opened it. A Job that is claimed has lost its pods; one that is gone has been deleted.
    """
    if not isinstance(context.policy, Policy) or context.policy.breaker is None or paused(context.workload):
        return False
    open_ = ledger.current_incident
    attempt_id = lifecycle.attempt_id(open_)
    alive = {job.uid: job for job in context.snapshot.jobs if job.deleting_since is None}
    return any(uid not in alive or alive[uid].torn_down_by == attempt_id for uid in open_.target.job_uids)


def not_carried_out(open_: Incident, bar: Explanation) -> Explanation:
    """A restart is decided, and may not be carried out now."""
    return told(Sentence.NOT_CARRIED_OUT, bar.reason, evidence=open_.evidence[0], bar=bar)


# --- members lost after the restart --------------------------------------------------------------------------------


def _lost_since(snapshot: Snapshot, ledger: Ledger, now: datetime) -> tuple[Evidence, ...]:
    """Losses in the group that came after the restart, not yet dealt with."""
    target = ledger.current_incident.target
    keys = frozenset(ledger.handled.keys)
    # A replacement of what was left to the platform is no loss of its own.
    aside = lifecycle.stood_aside(ledger)
    return tuple(
        item
        for item in gather(snapshot)
        if item.job_uid not in target.job_uids
        and item.key not in keys
        and not (aside and item.inferred)
        # A fault under a member that still starts waits until the group has run: nobody is lost yet.
        and (
            item.kind is not LossKind.NODE_FAULT
            or item in fresh(snapshot, (item,), since=None, handled=ledger.handled, now=now)
        )
    )


def _breaks_the_group(context: ReconcileContext, ledger: Ledger, lost: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """The losses that the Job does not repair by replacing a pod: the others hang, or the Job itself is failing."""
    hung = fresh(context.snapshot, lost, since=None, handled=ledger.handled, now=context.now)
    return tuple(item for item in lost if item in hung or item.kind is LossKind.JOB_FAILING)


def _left_to_platform(
    context: ReconcileContext, ledger: Ledger, lost: tuple[Evidence, ...], decided: Explanation | None
) -> Ledger:
    """Note losses that call for no trigger of ours: a held group, a native decision, or nobody hangs yet."""
    ledger = lifecycle.more_evidence(ledger, lost)
    if ledger.phase is not Phase.HELD:
        if decided is not None:
            found = because(Reason.MEMBER_LOST, evidence=lost[0].text)
            ledger = stand_aside(ledger, stands_aside(found, decided), context.now)
        else:
            why = because(Reason.MEMBER_REPLACED, evidence=lost[0].text)
            ledger = attempt(ledger, AttemptAction.NONE, ledger.current_incident.target, why, context.now)
    return ledger


def _lost_again(context: ReconcileContext, ledger: Ledger, lost: tuple[Evidence, ...]) -> Plan:
    """A member was lost after the new group had run at once, before the incident was over."""
    found = because(Reason.MEMBER_LOST_AGAIN, evidence=lost[0].text)
    pending = waits_for(context.snapshot, ledger)
    if pending is not None:
        return say(ledger, seen_then(found, pending))
    plan = _try_again(context, ledger, found, lost)
    # Standing aside earlier says nothing about this loss: only what this reconcile has added does.
    tried = plan.ledger.current_incident.attempts != ledger.current_incident.attempts
    acted = tried or plan.ledger.phase is Phase.HELD
    if not acted:
        return plan  # not acted upon yet: the evidence stays fresh
    return msgspec.structs.replace(plan, ledger=lifecycle.more_evidence(plan.ledger, lost))


def _try_again(
    context: ReconcileContext,
    ledger: Ledger,
    found: Explanation,
    lost: tuple[Evidence, ...] = (),
    verdict: Verdict | None = None,
) -> Plan:
    """Another trigger within the incident, or what the rules say about what was lost since. Charged only if none was,
    but never more of them than the budget allows. `lost` empty: nothing was, it took too long. `verdict` None: it is
    still to be found.
    """
    # A person insisted on the restart that was made, not on another.
    bar = no_trigger(context.snapshot, context.workload, context.policy)
    if bar is not None:
        since = _lost_since(context.snapshot, ledger, context.now)
        if backoff.all_met_after(context.snapshot, since):
            return whole_again(context, lifecycle.more_evidence(ledger, since))
        return say(ledger, nothing_done(found, bar))
    if ledger.epoch != context.epoch:  # this reconcile has adopted a restart already
        return as_before(ledger, requeue_at=context.now)
    stuck = attempt_limits.refused(ledger, context.now) if attempt_limits.judged(ledger) else None
    if stuck is not None:
        return hold_back(context, ledger, found, stuck)
    done = left_to_finish(context.snapshot, ledger.handled)
    if done is not None:
        return close(ledger, Outcome.SUPERSEDED, left_alone(done), context.now)
    if verdict is None:
        verdict = verdicts.of(context, ledger, lost)
    return carry_out(context, ledger, found, verdict, attempt=len(attempt_limits.ours(ledger)) + 1, lost=lost)


def _held(context: ReconcileContext, ledger: Ledger) -> Plan:
    """Held after a restart, until the window lets the next attempt through."""
    open_ = ledger.current_incident
    lost = tuple(
        item for item in lifecycle.present(context.snapshot, ledger) if item.job_uid not in open_.target.job_uids
    )
    free = not attempt_limits.judged(ledger) and not verdicts.of(context, ledger, lost).charge
    refusal = attempt_limits.refused(ledger, context.now, free=free)
    if refusal is not None:
        return as_before(ledger, actions=fail_job(context, ledger), requeue_at=refusal.frees_at)
    if not member_jobs(context.snapshot):
        return as_before(ledger)  # somebody has just deleted the Job; its successor will be seen
    found = because(Reason.BUDGET_WINDOW_PASSED, evidence=open_.evidence[-1])
    return _try_again(context, ledger, found, lost)


# --- on the way to Ready -------------------------------------------------------------------------------------------


def _watch_the_teardown(context: ReconcileContext, ledger: Ledger, *, ours: bool) -> Plan:
    """Old pods that are still there: asked to go, where that is for us to do, and named when they take too long."""
    open_, snapshot = ledger.current_incident, context.snapshot
    may = ours and barred(context.workload, context.policy, forced=open_.forced) is None
    actions = pod_deletes(snapshot, ledger) if may else free_the_dead(context, ledger)
    left = [pod for pod in snapshot.pods if pod.job_uid in open_.target.job_uids and pod.gone_at is None]
    if not left:
        jobs = ", ".join(job.name for job in snapshot.jobs if job.uid in open_.target.job_uids)
        what = told(Sentence.WAITING_FOR_FINALIZER, Reason.WAITING_FOR_TEARDOWN, jobs=jobs)
        return say_after_a_while(context, ledger, what)
    unseen = next((pod for pod in left if phases.may_live_unseen(snapshot, pod)), None)
    if unseen is not None:
        return msgspec.structs.replace(_watch_the_fence(context, ledger, unseen), actions=actions)
    grace = max(pod.grace_seconds if pod.deletion_grace_seconds is None else pod.deletion_grace_seconds for pod in left)
    what = because(Reason.WAITING_FOR_TEARDOWN, pod=place(left[0]), more=len(left) - 1)
    plan = say_after_a_while(context, ledger, what, after=timedelta(seconds=grace) + SAY_AFTER)
    return msgspec.structs.replace(plan, actions=actions)


def _watch_the_fence(context: ReconcileContext, ledger: Ledger, pod: PodFacts) -> Plan:
    """An old pod on a node that does not answer: until it is proven dead, or taken for dead, or the node is back."""
    fate = fencing.fates_of_nodes(context.snapshot, context.policy, context.now).get(pod.node)
    what = because(Reason.FENCING, pod=place(pod), fate=fate.why if fate is not None else "its node does not answer")
    return as_before(say_of_attempt(ledger, what), requeue_at=fate.changes_at if fate is not None else None)


def say_after_a_while(
    context: ReconcileContext, ledger: Ledger, what: Explanation, *, after: timedelta = SAY_AFTER
) -> Plan:
    """No wait is silent: once the phase has lasted for `after`, the message says what it waits for."""
    open_ = ledger.current_incident
    if _has_said_more(ledger):
        return as_before(ledger)
    say_at = open_.phases[-1].started_at + after
    if context.now < say_at:
        return as_before(ledger, requeue_at=say_at)
    return as_before(say_more(ledger, what))


def _not_ready(snapshot: Snapshot) -> Explanation:
    """Who is waited for in Rendezvous: all run, not all are Ready."""
    late = [pod for job in member_jobs(snapshot) for pod in pods_of(snapshot, job) if pod.running and not pod.ready]
    who = place(min(late, key=lambda pod: (pod.index is None, pod.index, pod.name))) if late else "the last pod"
    return because(Reason.WAITING_FOR_READY, who=who, more=max(0, len(late) - 1))


def _has_said_more(ledger: Ledger) -> bool:
    """Something was added to what the attempt says. Once is enough: messages change with every node that comes."""
    open_ = ledger.current_incident
    return open_.attempt is not None and open_.told is not Told.ATTEMPT


def _watch_the_backoff(context: ReconcileContext, ledger: Ledger) -> Plan:
    """The old group is gone, the new one is suspended: until its time has come."""
    open_ = ledger.current_incident
    if open_.suspension is None:
        who = "Trainer" if context.workload.kind == "TrainJob" else "JobSet"
        return say_after_a_while(context, ledger, because(Reason.WAITING_FOR_RESUME, who=who))
    until = open_.suspension.until
    if until is None or context.now < until:
        return as_before(ledger, requeue_at=until)
    return as_before(suspension.want(ledger, None), actions=suspension.resume(context.workload))


def _watch_the_rendezvous(context: ReconcileContext, ledger: Ledger) -> Plan:
    """All run, not all are Ready. `timeouts.rendezvous` counts only where Ready says that a rank has joined."""
    open_ = ledger.current_incident
    timeout = timedelta(seconds=open_.pinned.rendezvous_timeout_seconds)
    what = _not_ready(context.snapshot)
    if not timeout or not lifecycle.acts(ledger) or not open_.probe_proven:
        return say_after_a_while(context, ledger, what)
    deadline = _under_way_since(context, ledger) + timeout
    if context.now >= deadline:
        seconds = int(timeout.total_seconds())
        found = because(Reason.RENDEZVOUS_TIMEOUT, seconds=seconds, what=what)
        return _try_again(context, ledger, found)
    plan = say_after_a_while(context, ledger, what)
    earlier = plan.requeue_at is not None and plan.requeue_at < deadline
    return plan if earlier else msgspec.structs.replace(plan, requeue_at=deadline)


def _watch_the_resuming(context: ReconcileContext, ledger: Ledger) -> Plan:
    """All had joined, and a member is not Ready any more. No timeout tears down what may train."""
    deadline = deadline_of(ledger)
    if context.now < deadline:
        return as_before(ledger, requeue_at=deadline)
    return as_before(say_of_attempt(ledger, _not_ready(context.snapshot)))


def _without_capacity(snapshot: Snapshot) -> list[tuple[PodFacts, str]]:
    """The members that no node has room for, and what the scheduler says."""
    return [
        (pod, condition.message or condition.reason)
        for job in member_jobs(snapshot)
        for pod in pods_of(snapshot, job)
        for condition in pod.conditions
        if condition.type == "PodScheduled" and not pod.node and pod.deleting_since is None
    ]


def _watch_the_scheduling(context: ReconcileContext, ledger: Ledger) -> Plan:
    """Not all pods have a node. Capacity may come, so nothing is torn down for it; but it is said what is missing."""
    open_ = ledger.current_incident
    jobs = member_jobs(context.snapshot)
    empty = [job for job in jobs if not job.suspended and not pods_of(context.snapshot, job)]
    if empty and lifecycle.acts(ledger) and barred(context.workload, context.policy, forced=open_.forced) is None:
        return _watch_for_pods(context, ledger, min(empty, key=lambda job: job.created_at))
    unplaced = _without_capacity(context.snapshot)
    if unplaced:
        pod, why = unplaced[0]
        what = because(Reason.WAITING_FOR_CAPACITY, pod=place(pod), why=why[:_MAX_QUOTE])
        return say_after_a_while(context, ledger, what)
    if not jobs:
        return say_after_a_while(context, ledger, told(Sentence.WAITING_FOR_JOB, Reason.WAITING_FOR_PODS))
    pods = [pod for job in jobs for pod in pods_of(context.snapshot, job)]
    placed = sum(bool(pod.node) for pod in pods)
    what = because(Reason.WAITING_FOR_PODS, count=len(pods), ranks=open_.ranks, placed=placed)
    return say_after_a_while(context, ledger, what)


def _watch_for_pods(context: ReconcileContext, ledger: Ledger, job: JobFacts) -> Plan:
    """The watchdog for a new Job that gets no pods; a Job whose pods are refused is only spoken of."""
    open_ = ledger.current_incident
    gone = [pod.gone_at for pod in context.snapshot.pods if pod.job_uid == job.uid and pod.gone_at is not None]
    # A Job that was just resumed says that it is suspended until its controller has seen it; one of several Jobs may
    # have been made long before the last old one was gone; and while nobody led, nobody touched it. What is about to
    # start must not be restarted for that time.
    before = phases.GOING_DOWN | {Phase.BACKOFF}
    ready = [span.ended_at for span in open_.phases if span.phase in before and span.ended_at is not None]
    since = max([began_at(job), *gone, *ready])
    waited = context.now - since
    if waited < TOUCH_AFTER:
        return as_before(ledger, requeue_at=since + TOUCH_AFTER)
    if not context.snapshot.live:
        return as_before(ledger, actions=(ReadLive(),))
    if job.failed_create:
        what = because(Reason.PODS_REFUSED, job=job.name, why=job.failed_create[:_MAX_QUOTE])
        return as_before(say_of_attempt(ledger, what), requeue_at=context.now + SAY_AFTER)
    if waited >= GIVE_UP_AFTER:
        found = because(Reason.JOB_WITHOUT_PODS, job=job.name, seconds=GIVE_UP_AFTER.seconds)
        return _try_again(context, ledger, found)
    value = lifecycle.attempt_id(open_)
    touch = () if job.touched == value else (TouchJob(ledger.epoch, job.name, job.uid, value),)
    return as_before(ledger, actions=touch, requeue_at=since + GIVE_UP_AFTER)


def _under_way_since(context: ReconcileContext, ledger: Ledger) -> datetime:
    """Since when the group has been in its phase, in its Jobs' present run.

    One that its user suspended and resumed while nobody led has only begun; a Job that has not seen that it was
    resumed has not even begun.
    """
    runs = (context.now if stands_still(job) else began_at(job) for job in member_jobs(context.snapshot))
    return max([ledger.current_incident.phases[-1].started_at, *runs])  # somebody may have deleted every Job


def _watch_the_start(context: ReconcileContext, ledger: Ledger) -> Plan:
    """`timeouts.start`: all pods have a node, yet not all run."""
    open_ = ledger.current_incident
    timeout = timedelta(seconds=open_.pinned.start_timeout_seconds)
    deadline = _under_way_since(context, ledger) + timeout
    if context.now < deadline or not lifecycle.acts(ledger):
        hindered = not_started.words(context.snapshot)
        what = as_said(Reason.WAITING_FOR_START, hindered)
        plan = say_after_a_while(context, ledger, what) if hindered else as_before(ledger)
        moments = [moment for moment in (plan.requeue_at, deadline) if moment is not None and moment > context.now]
        return msgspec.structs.replace(plan, requeue_at=min(moments, default=None))
    return _try_again(context, ledger, because(Reason.START_TIMEOUT, seconds=int(timeout.total_seconds())))
