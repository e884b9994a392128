"""A reconcile of a group that was restarted, by us or by the platform: its questions, in the order of `table`.

The trigger may be lost, the Job may get no pods or no nodes for them, some pods may not start, or a member may be lost
again. Each case is handled here, and no wait is silent.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.decision import (
    avoidance,
    backoff,
    black_holes,
    fleet_changes,
    in_place,
    in_place_watch,
    leaving_out,
    resizing,
)
from recovery.core.decision.another_attempt import (
    breaks_the_group,
    held,
    left_to_platform,
    lost_again,
    lost_since,
    try_again,
)
from recovery.core.decision.guards import Guard, Move, Question, first_stop, native_decision
from recovery.core.decision.hold import hold_back
from recovery.core.decision.judging import (
    records,
    stands_aside,
)
from recovery.core.decision.on_the_way import (
    watch_the_backoff,
    watch_the_rendezvous,
    watch_the_resuming,
    watch_the_scheduling,
    watch_the_start,
    watch_the_teardown,
)
from recovery.core.decision.resuming import settling_until, whole_again
from recovery.core.decision.situation import Situation
from recovery.core.decision.teardown import left_alone, remaining_pods, takedown
from recovery.core.decision.verdict import Call
from recovery.core.diagnosis import resized
from recovery.core.diagnosis.evidence import gather
from recovery.core.diagnosis.finishing import all_done, finishing, last_begun
from recovery.core.diagnosis.freshness import STALE_AFTER, fresh
from recovery.core.diagnosis.membership import group_runs_whole, member_jobs, pods_of, stands_still
from recovery.core.diagnosis.trained import began_at
from recovery.core.diagnosis.unscheduled import unscheduled
from recovery.core.incident import attempt_limits, lifecycle, phases, sizes
from recovery.core.incident.attempt_limits import Refusal, restart_of
from recovery.core.incident.evidence_counts import first_seen
from recovery.core.incident.preconditions import barred, paused
from recovery.core.incident.standing import hangs, met_since
from recovery.core.model.ledger import Attempt, AttemptAction, Incident, Ledger, Outcome, Phase
from recovery.core.model.reason import Explanation, Reason, all_of, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan import suspension
from recovery.core.plan.actions import Plan, ReadLive
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import (
    as_before,
    close,
    say,
    say_as_attempted,
    say_of_attempt,
)
from recovery.core.policy.resolved import Policy

_PODS_SEEN_IN = timedelta(seconds=5)
"""A cache that shows a Job shows its first pods within this time, if it has any."""


def gathered(context: ReconcileContext, ledger: Ledger) -> Situation:
    """What is known before the first question."""
    open_ = ledger.current_incident
    without_added_ranks = resized.without_added_ranks(context.snapshot)
    if (
        without_added_ranks is not None
        and phases.position(without_added_ranks, open_.target, open_.ranks) is Phase.HEALTHY
    ):
        # Pods that a user has added since may wait for a node for hours while the others train.
        context = msgspec.structs.replace(context, snapshot=without_added_ranks)
    return Situation(context, ledger, _position(context, ledger), lost_since(context.snapshot, ledger, context.now))


def carried_out(situation: Situation) -> Plan | Situation:
    """A restart of ours that the ledger has decided is sent, as long as a target Job exists."""
    restart = _restart(situation)
    if situation.position is not Phase.DECIDED or not _is_ours(restart):
        return situation
    return _reissue(situation.context, situation.ledger, restart)


def size_followed(situation: Situation) -> Situation:
    """The ledger has the size of the new Job."""
    return msgspec.structs.replace(situation, ledger=resizing.followed(situation.context, situation.ledger))


def met_meanwhile(situation: Situation) -> Plan | Situation:
    """The ranks have met since the loss for which a restart is withheld."""
    if backoff.all_met_after(situation.context.snapshot, situation.ledger, situation.lost):
        return whole_again(situation.context, lifecycle.more_evidence(situation.ledger, situation.lost))
    return situation


def losses_handled(situation: Situation) -> Plan | Situation:
    """A loss after the restart calls for another one, or is left to the platform."""
    context, ledger, lost = situation.context, situation.ledger, situation.lost
    if not lost or not lifecycle.acts(ledger):
        return situation
    again = breaks_the_group(context, ledger, lost)
    target = situation.open_.target.job_uids
    earlier = tuple(item for item in lifecycle.present(context.snapshot, ledger) if item.job_uid not in target)
    decided = native_decision(context, ledger, earlier, again)
    if again and decided is None and ledger.phase is not Phase.HELD:
        return lost_again(context, ledger, again)
    if decided is None and situation.open_.step.withheld:
        return situation
    return msgspec.structs.replace(situation, ledger=left_to_platform(context, ledger, lost, decided))


def withheld_restart_made(situation: Situation) -> Plan | Situation:
    """The wait of a withheld restart is over, or goes on, as long as the Job that lost a member exists."""
    step = situation.open_.step
    if not step.withheld or not backoff.lost_job_exists(situation.context.snapshot, step):
        return situation
    since = explained(Sentence.LOST_AGAIN_SINCE, Reason.MEMBER_LOST_AGAIN, evidence=situation.open_.evidence[-1])
    return try_again(situation.context, situation.ledger, since, situation.lost)


def runs_again(situation: Situation) -> Plan | Situation:
    """The new group is complete, or has already trained to its end."""
    return _runs(situation.context, situation.ledger, situation.position) or situation


def held_on(situation: Situation) -> Plan:
    """The group stays held, or the budget allows the next attempt."""
    return held(situation.context, situation.ledger)


def watched(situation: Situation) -> Plan:
    """The phase that the facts show, and what may go wrong in it."""
    context, ledger, found = situation.context, situation.ledger, situation.position
    if found is Phase.SCHEDULING and _pods_may_be_unseen(context, ledger.phase):
        return as_before(ledger, actions=(ReadLive(),))
    waits = found is Phase.SCHEDULING and ledger.phase is Phase.STARTING and unscheduled(context.snapshot)
    # Waiting for capacity does not count as starting, even if all pods had a node before one of them was replaced. Nor
    # does the time in which an old pod's node does not answer count as teardown, even if its Job is deleted.
    undated = waits or (found is Phase.TEARING_DOWN and ledger.phase is Phase.FENCING)
    if in_place.under_way(ledger) is not None and context.snapshot.agent is None:
        return in_place_watch.watched(context, ledger)  # nothing dates how far the agents have come
    target = situation.open_.target
    reached_at = context.now if undated else phases.reached_at(context.snapshot, target, found, context.now)
    ledger = phases.enter(ledger, found if waits else phases.later(found, ledger.phase), reached_at)
    if in_place.under_way(ledger) is not None:
        return in_place_watch.watched(context, ledger)
    ours = _is_ours(_restart(situation))
    if found in phases.GOING_DOWN or found is Phase.BACKOFF:
        return _watch(context, ledger, found, ours=ours)
    without_agent = leaving_out.in_incident(context, ledger)
    if isinstance(without_agent, Plan):
        return without_agent
    return leaving_out.earlier(_watch_for_black_holes(context, ledger, found, ours=ours), without_agent)


def _restart(situation: Situation) -> Attempt:
    restart = restart_of(situation.ledger)
    assert restart is not None, "asked only of incidents with a restart"
    return restart


def _is_ours(restart: Attempt) -> bool:
    return restart.action in attempt_limits.OURS


def _position(context: ReconcileContext, ledger: Ledger) -> Phase:
    """The phase that the facts show. A group that is released waits in Backoff while its suspension is on its way."""
    open_ = ledger.current_incident
    found = phases.position(context.snapshot, open_.target, open_.ranks)
    found = in_place_watch.position(context, ledger, found)
    return Phase.BACKOFF if found is Phase.SCHEDULING and lifecycle.is_released(ledger) else found


def _pods_may_be_unseen(context: ReconcileContext, phase: Phase) -> bool:
    """The old group is gone, and the cache shows no new Job, or a Job that has no pods after `_PODS_SEEN_IN`. Or a
    backoff is over, and the cache shows a Job that is not resumed yet.

    The pods of the new group date the phase, and a delayed controller reads them late.
    """
    snapshot = context.snapshot
    jobs = member_jobs(snapshot)
    # A Job that is not resumed yet does not show since when it should run.
    if phase is Phase.BACKOFF:
        return not snapshot.live and any(map(stands_still, jobs))
    if snapshot.live or phase not in phases.GOING_DOWN:
        return False
    empty = (job for job in jobs if not stands_still(job) and not pods_of(snapshot, job))
    return not jobs or any(context.now - began_at(job) > _PODS_SEEN_IN for job in empty)


def _runs(context: ReconcileContext, ledger: Ledger, found: Phase) -> Plan | None:
    """The plan if the new group is complete, or has already trained to its end. None: neither."""
    if found is Phase.HEALTHY and ledger.phase is Phase.HELD and hangs(context.snapshot, ledger):
        return None
    if found is Phase.HEALTHY:
        waits_until = settling_until(context, ledger) if ledger.phase is Phase.HELD else None
        if waits_until is None:
            return whole_again(context, ledger)
        return as_before(ledger, requeue_at=waits_until)
    done = finishing(context.snapshot) if found not in phases.GOING_DOWN and all_done(context.snapshot) else None
    return None if done is None else close(ledger, Outcome.SUPERSEDED, left_alone(done), _trained_since(context))


def _trained_since(context: ReconcileContext) -> datetime:
    """When a group that has since finished ran again, as far as that is known."""
    begun_at = last_begun(context.snapshot)
    return context.now if begun_at is None else phases.within_second(begun_at, context.now)


def _watch_for_black_holes(context: ReconcileContext, ledger: Ledger, found: Phase, *, ours: bool) -> Plan:
    """Watch a starting group for nodes on which members are refused, fail or wait while others run elsewhere.

    A group that can avoid a node that refuses its pods is restarted for that. Otherwise only a node that is quarantined
    for this calls for another restart, so the caps on quarantines also limit these restarts. If the node may not be
    quarantined, `timeouts.start` applies as usual.
    """
    open_ = ledger.current_incident
    # A person forced the restart that was made, not its consequences for nodes.
    if not lifecycle.acts(ledger) or barred(context.workload, context.policy) is not None:
        return _watch(context, ledger, found, ours=ours)
    known = lifecycle.present(context.snapshot, ledger)
    lost = tuple(item for item in known if item.job_uid not in open_.target.job_uids)
    if native_decision(context, ledger, lost, lost) is not None:
        return _watch(context, ledger, found, ours=ours)
    away = avoidance.off_refusing(context, ledger)
    if away is not None and away[1].call is not Call.AVOID_NODE:
        ledger = lifecycle.consider(ledger, records(away[1]))
    elif away is not None and attempt_limits.refused(ledger, context.now) is None:
        return try_again(context, ledger, away[0], verdict=away[1])
    asked = black_holes.in_incident(context, ledger)
    if asked.replace is not None:
        hole, verdict = asked.replace
        # What was refused on live facts is not asked again by each reconcile from the cache.
        refused = any((each.action, each.node) == (verdict.call, hole.node) for each in open_.considered)
        if context.snapshot.live or not refused:
            wish = fleet_changes.admitted(context, ledger, verdict)
            if wish.call is Call.REPLACE_NODE and attempt_limits.refused(ledger, context.now) is None:
                seen = explained(Sentence.HOLE_SEEN, Reason.NODE_SWALLOWS_PODS, what=hole.why)
                return try_again(context, ledger, seen, verdict=wish)
            ledger = lifecycle.consider(ledger, records(wish))
    plan = _watch(context, ledger, found, ours=ours)
    moments = [moment for moment in (plan.requeue_at, asked.requeue_at) if moment is not None]
    plan = msgspec.structs.replace(
        plan, actions=(*asked.actions(ledger.epoch), *plan.actions), requeue_at=min(moments, default=None)
    )
    # If this reconcile has ended the incident, or held or restarted the group, that is reported instead.
    if not asked.explanations or plan.ledger.epoch != ledger.epoch or plan.ledger.phase is not ledger.phase:
        return plan
    if open_.attempt is None:
        return plan
    ledger = say_of_attempt(plan.ledger, all_of(asked.explanations))
    return as_before(ledger, actions=plan.actions, requeue_at=plan.requeue_at)


def _watch(context: ReconcileContext, ledger: Ledger, found: Phase, *, ours: bool) -> Plan:
    """Watch the group on its way back. Each phase has its own problems."""
    if found in phases.GOING_DOWN:
        return watch_the_teardown(context, ledger, ours=ours)
    if found is Phase.BACKOFF:
        return watch_the_backoff(context, ledger)
    if ledger.phase is Phase.SCHEDULING:
        return watch_the_scheduling(context, ledger)
    if ledger.phase is Phase.STARTING:
        return watch_the_start(context, ledger)
    if ledger.phase is Phase.RESUMING:
        return watch_the_resuming(context, ledger)
    return watch_the_rendezvous(context, ledger)


def _reissue(context: ReconcileContext, ledger: Ledger, restart: Attempt) -> Plan:
    """The ledger has the target, but a target Job still exists: the trigger was lost, refused as stale or not sent."""
    snapshot, open_ = context.snapshot, ledger.current_incident
    changed = sizes.undone_by_restart(ledger, snapshot) if restart.reason is not Reason.RESTARTED_BY_HAND else None
    if group_runs_whole(snapshot):
        needless = _needless(context, ledger, restart, changed)
        if needless is not None:
            return needless
    stale_at = restart.started_at + STALE_AFTER
    late = fresh(snapshot, gather(snapshot), since=open_.started_at, handled=ledger.handled, now=context.now)
    forced = open_.step.forced or _finishes(context, ledger, restart)
    known = (*lifecycle.present(snapshot, ledger), *late)
    stop = first_stop(Move.CARRY_OUT, Question(context, ledger, known, forced=forced, begun=True))
    if stop is not None and stop.guard is Guard.BARRED:
        requeue_at = stale_at if stale_at > context.now else None
        return say(ledger, not_carried_out(open_, stop.why), requeue_at=requeue_at)
    if stop is not None and stop.guard is Guard.NATIVE:
        # Stand aside in every way: a suspension too would hold up what the user's own policy has decided.
        return say(suspension.want(ledger, None), stands_aside(first_seen(open_), stop.why))
    if stop is not None:
        return close(ledger, Outcome.SUPERSEDED, left_alone(stop.why), context.now)
    if not snapshot.live:
        return as_before(ledger, actions=(ReadLive(),))
    by_pods = _down_by_pods(context, ledger, restart, changed)
    if by_pods is not None:
        return by_pods
    if changed is not None and not _is_begun(context, ledger):
        found = first_seen(open_)
        return hold_back(context, ledger, found, Refusal(changed, None, exhausted=False))
    ledger = say_as_attempted(ledger, restart)
    return takedown(context, ledger)


def _needless(context: ReconcileContext, ledger: Ledger, restart: Attempt, changed: Explanation | None) -> Plan | None:
    """The plan if the group runs whole again before the trigger was sent. None: the restart is still wanted."""
    open_ = ledger.current_incident
    is_stale = context.now - restart.started_at >= STALE_AFTER
    if ledger.phase is Phase.HELD:
        if (changed is None and not is_stale) or hangs(context.snapshot, ledger):
            return None
        # The incident ends like that of any other held group that runs whole again.
        waits_until = settling_until(context, ledger)
        return whole_again(context, ledger) if waits_until is None else as_before(ledger, requeue_at=waits_until)
    why = explained(Sentence.READY_MEANWHILE, Reason.RUNS_WHOLE_AGAIN, ranks=open_.ranks)
    if _met_meanwhile(context, ledger, restart):
        ended_at = phases.end_of_rendezvous(context.snapshot, open_.phases[-1].started_at, context.now)
        known = lifecycle.more_evidence(ledger, gather(context.snapshot))
        return close(known, Outcome.SUPERSEDED, why, ended_at)
    return close(ledger, Outcome.SUPERSEDED, why, context.now) if is_stale else None


def _met_meanwhile(context: ReconcileContext, ledger: Ledger, restart: Attempt) -> bool:
    """The restart has not begun, and all ranks have met since the last loss, so it would only cost progress.

    False if the restart has another purpose: a person asked for it, or it takes the group off a node or resizes it.
    """
    plain = restart.action is AttemptAction.RECREATE_GROUP and not restart.nodes and not ledger.avoided
    by_hand = restart.reason is Reason.RESTARTED_BY_HAND or ledger.current_incident.step.forced
    if not plain or by_hand or _is_begun(context, ledger):
        return False
    return backoff.all_met_after(context.snapshot, ledger, gather(context.snapshot))


def _finishes(context: ReconcileContext, ledger: Ledger, restart: Attempt) -> bool:
    """Only the open circuit breaker bars the rest of this attempt, which was decided and charged before it opened: part
    of the group is down for the attempt, or the note by which the attempt helped to open the breaker is written.
    """
    policy = context.policy
    if not isinstance(policy, Policy) or policy.breaker is None or paused(context.workload):
        return False
    note = (ledger.current_incident.id, restart.started_at)
    return _is_begun(context, ledger) or any((each.incident, each.at) == note for each in policy.fleet.futile)


def _is_begun(context: ReconcileContext, ledger: Ledger) -> bool:
    """Part of the group is down for this attempt. If it stayed so, the group would never train again.

    A claimed Job has lost its pods. A Job that is gone has been deleted.
    """
    open_ = ledger.current_incident
    attempt_id = lifecycle.attempt_id(open_)
    alive = {job.uid: job for job in context.snapshot.jobs if job.deleting_since is None}
    return any(uid not in alive or alive[uid].torn_down_by == attempt_id for uid in open_.target.job_uids)


def _down_by_pods(
    context: ReconcileContext, ledger: Ledger, restart: Attempt, changed: Explanation | None
) -> Plan | None:
    """The plan if the pods of all Jobs were deleted for this attempt, but the Jobs still exist and have enough retries
    to replace them. None: not so, it does not matter, or the attempt asks for another size or for other nodes.

    `changed`: the user's own size that deleting the Jobs would undo.
    """
    open_ = ledger.current_incident
    attempt_id, jobs = lifecycle.attempt_id(open_), {job.uid: job for job in member_jobs(context.snapshot)}
    claimed = (uid in jobs and jobs[uid].torn_down_by == attempt_id for uid in open_.target.job_uids)
    if restart.action is not AttemptAction.RECREATE_GROUP or not all(claimed):
        return None
    if met_since(context.snapshot, ledger, [restart.started_at]):
        # The Jobs were quicker than the controller: deleting them now would restart the group a second time.
        return whole_again(context, ledger)
    if changed is None:
        return None
    # The Jobs replace their pods by themselves, with the size that the user has given them since.
    left = remaining_pods(context.snapshot, ledger, restart)
    stale_at = restart.started_at + STALE_AFTER
    requeue_at = stale_at if stale_at > context.now else None
    return say(ledger, not_carried_out(open_, changed), actions=left, requeue_at=requeue_at)


def not_carried_out(open_: Incident, bar: Explanation) -> Explanation:
    """A restart is decided, but must not be carried out now."""
    return explained(Sentence.NOT_CARRIED_OUT, bar.reason, evidence=open_.evidence[0], bar=bar)
