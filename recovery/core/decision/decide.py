"""decide(snapshot, ledger, policy, now) -> Plan: what one reconcile of one group calls for. Pure and total.

The order of the questions is essential: is the job ours to watch; is this a failure or a baseline; have the user's own
policies already decided; may we act; does the budget allow it. Only the last answer deletes something, and only on
facts read live. Deciding twice on the same facts changes nothing the second time.

This module decides between incidents and dispatches. `advance` handles an open incident.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.decision import (
    backoff,
    black_holes,
    capacity_wait,
    crash_loop,
    growth,
    manual,
    recreating,
    resizing,
    standing,
    suspensions,
)
from recovery.core.decision.advance import decide_opened, in_incident
from recovery.core.decision.deleted_group import is_about_the_jobset, trainer_creates
from recovery.core.decision.judged import as_judged
from recovery.core.decision.terminal_jobset import failed
from recovery.core.diagnosis import group_conditions, matching, not_started
from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, LossKind, gather
from recovery.core.diagnosis.finish_overdue import (
    LostWhileFinishing,
    left_to_finish,
    lost_while_finishing,
    overdue,
)
from recovery.core.diagnosis.freshness import STALE_AFTER, baseline, fresh
from recovery.core.fleet.storm import seen_at_the_end
from recovery.core.incident import budget, fencing, lifecycle, phases, proofs, requests
from recovery.core.incident.closed_incident import totals_of
from recovery.core.incident.folding import folds_with
from recovery.core.incident.preconditions import paused, unread, unwatched
from recovery.core.incident.standing import meeting_of
from recovery.core.model.durations import in_words
from recovery.core.model.facts import JobSetFacts, Snapshot
from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.model.reason import Explanation, Reason, all_of, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.model.standing import Standing
from recovery.core.model.step import StepType
from recovery.core.plan import suspension
from recovery.core.plan.actions import (
    ChangeFleet,
    CountIncidents,
    DeleteJobSet,
    FailJobSet,
    ForceDeletePods,
    Plan,
    ReadLive,
    RecordIncident,
    ResumeWorkload,
    SuspendWorkload,
)
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.kubernetes_events import events
from recovery.core.plan.parts import answer, message_of
from recovery.core.plan.status_conditions import budget_has_news, proof_has_news, summarise
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError

_SETTLED_STEPS = frozenset({StepType.WITHHELD, StepType.HELD})
"""Steps in which a restart is put off. The other steps follow from attempts, or from phases."""
_ON_LIVE_FACTS_ONLY = (SuspendWorkload, ResumeWorkload, DeleteJobSet, FailJobSet, ForceDeletePods, ChangeFleet)
"""Actions that a lagging cache could ask for although another client has already done or undone the same."""


def decide(snapshot: Snapshot, ledger: Ledger, policy: Policy | PolicyError | None, now: datetime) -> Plan:
    """One reconcile. `policy` None: none applies; PolicyError: the one that applies cannot be read."""
    workload = snapshot.workload
    if workload is None:
        return answer(ledger, unread(snapshot) or because(Reason.WORKLOAD_GONE))
    snapshot = as_judged(snapshot, ledger, policy, now)
    context = ReconcileContext(snapshot, workload, policy, now, ledger.epoch)
    if ledger.incident is not None and ledger.incident.closing is not None:
        plan = _record(context, ledger)
    else:
        plan = _asked(context, ledger) or _restrained(context, ledger) or _unasked(context, ledger)
    plan = suspensions.recorded(snapshot, ledger, _accounted(context, ledger, _in_time(context, plan)))
    if any(isinstance(action, ReadLive) for action in plan.actions) or (
        not snapshot.live
        and (
            _settled(plan.ledger) != _settled(ledger)
            or any(isinstance(action, _ON_LIVE_FACTS_ONLY) for action in plan.actions)
        )
    ):
        return Plan(ledger, plan.reason, plan.message, actions=(ReadLive(),))
    observed = _observed(context, plan)
    proven = proofs.found(plan.ledger, snapshot, policy, now)
    news = (
        _observed_anything_new(ledger, observed)
        or budget_has_news(ledger, policy, now)
        or proof_has_news(ledger, proven)
    )
    if plan.ledger == ledger and ledger.incident is None and not news:
        return plan
    after = summarise(plan.ledger, workload, now, observed, policy, proven)
    return msgspec.structs.replace(plan, ledger=after, actions=(*plan.actions, *events(ledger, after)))


def _accounted(context: ReconcileContext, before: Ledger, plan: Plan) -> Plan:
    """The plan with its accounts: what the end of an incident proves, the GPU time that is released now, and what the
    fleet's totals still lack.

    The totals wait for the end of an open incident, because no recovery waits for statistics.
    """
    plan = standing.followed(context, before, plan)
    after = proofs.noted(before, plan.ledger, context.snapshot, context.policy, context.now)
    after = phases.mark_released(after, context.snapshot, context.now)
    if not after.uncounted or before.incident is not None or after.incident is not None:
        return msgspec.structs.replace(plan, ledger=after)
    count = CountIncidents(after.uncounted)
    return msgspec.structs.replace(
        plan, ledger=msgspec.structs.replace(after, uncounted=()), first=(*plan.first, count)
    )


def _observed(context: ReconcileContext, plan: Plan) -> tuple[group_conditions.GroupCondition, ...]:
    """The conditions that hold. Those of the pods are written only while an incident is open, the one for an earlier
    loss only between incidents. Those for an object that cannot be read, for pods without a Job, for a crash loop and
    for a failed job that trains again are written at any time."""
    open_, unreadable = plan.ledger.incident, group_conditions.undecodable(context.snapshot)
    shown: tuple[group_conditions.GroupCondition, ...] = ()
    if open_ is not None:
        timeout = _finish_timeout(open_)
        shown = group_conditions.conditions_of(context.snapshot, timeout, context.now)
        late = overdue(context.snapshot, plan.ledger.handled, timeout)
        if late is not None:
            message = message_of(late)
            shown = (*shown, group_conditions.GroupCondition(group_conditions.FINISH_OVERDUE, late.reason, message))
    elif plan.reason is Reason.BASELINE:
        shown = (group_conditions.GroupCondition(group_conditions.EARLIER_LOSS, plan.reason, plan.message),)
    left, loop = group_conditions.orphaned(context.snapshot), crash_loop.condition(context, plan.ledger)
    again = group_conditions.trains_again(context.snapshot, plan.ledger.handled.terminal_jobset_uid)
    return (*shown, *(each for each in (left, loop, again, unreadable) if each is not None))


def _observed_anything_new(ledger: Ledger, observed: tuple[group_conditions.GroupCondition, ...]) -> bool:
    """The ledger's conditions differ from what is observed between incidents. No ledger is created just for them."""
    types = {
        group_conditions.UNDECODABLE,
        group_conditions.EARLIER_LOSS,
        group_conditions.ORPHANED_PODS,
        group_conditions.TRAINS_AGAIN,
        group_conditions.CRASH_LOOP,
    }
    said = {
        group_conditions.GroupCondition(each.type, each.reason, each.message)
        for each in ledger.conditions
        if each.type in types and each.status == "True"
    }
    return ledger != Ledger() and said != {each for each in observed if each.type in types}


def _finish_timeout(open_: Incident) -> timedelta:
    return timedelta(seconds=open_.pinned.finish_timeout_seconds)


def _in_time(context: ReconcileContext, plan: Plan) -> Plan:
    """The plan, requeued in time for what changes by time alone: a silent node counts as dead, the `for` of a rule or
    the budget window ends, a condition of the pods changes."""
    if not isinstance(context.policy, Policy):
        return plan
    fates = fencing.fates_of_nodes(context.snapshot, context.policy, context.now)
    fault_at = matching.next_node_fault_at(context.policy.rules, context.snapshot, context.now)
    open_ = plan.ledger.incident
    kept_at = (
        group_conditions.next_change_at(context.snapshot, _finish_timeout(open_), context.now)
        if open_ is not None
        else None
    )
    moments = (
        *(fate.changes_at for fate in fates.values()),
        fault_at,
        kept_at,
        _budget_frees_at(context.policy, plan.ledger, context.now),
        crash_loop.ends_at(context, plan.ledger),
        proofs.expires_at(plan.ledger, context.policy, context.now),
        plan.requeue_at,
    )
    requeue_at = min((moment for moment in moments if moment is not None), default=None)
    return msgspec.structs.replace(plan, requeue_at=requeue_at)


def _budget_frees_at(policy: Policy, ledger: Ledger, now: datetime) -> datetime | None:
    """When the condition BudgetExhausted ends between incidents. None: it does not hold, or no time ends it."""
    if ledger.incident is not None or not ledger.totals.incidents:
        return None
    return budget.frees_at(ledger.budget, policy.budget_limit, policy.budget_window, now)


def _asked(context: ReconcileContext, ledger: Ledger) -> Plan | None:
    """The answer to a person's pending request. None: there is none, no usable policy applies to this job, or the job
    is being deleted and its ledger is gone already: an answer would create another one."""
    is_gone = context.workload.deleting_since is not None and ledger == Ledger()
    if not isinstance(context.policy, Policy) or is_gone:
        return None
    for verb, request in requests.pending(context.workload, ledger):
        return manual.answer(context, context.policy, ledger, verb, request)
    return None


def _restrained(context: ReconcileContext, ledger: Ledger) -> Plan | None:
    """The plan that decides nothing, because an object of the group cannot be read. None: all can be read."""
    why = unread(context.snapshot)
    return answer(ledger, why) if why is not None else None


def _unasked(context: ReconcileContext, ledger: Ledger) -> Plan:
    """What the group calls for by itself: no person has asked for anything, and every object can be read."""
    plan = _between_incidents(context, ledger) if ledger.incident is None else in_incident(context, ledger)
    return capacity_wait.with_limits(context, plan)


def _settled(ledger: Ledger) -> tuple[object, ...]:
    """The parts of the ledger that a cache may never change: losses, attempts, a hold, an end; not phases and messages.

    A cache that lags may show as suspended a job that was resumed since, as whole a group that has just lost a member,
    or no Job where there is one. Closing an incident on that would lose its recovery, and adopting would double it.
    """
    found = ledger.incident
    settled = (
        (
            found.id,
            found.attempts,
            found.target,
            found.suspension,
            found.step if found.step.type in _SETTLED_STEPS else None,
            found.would,
            found.closing,
        )
        if found is not None
        else None
    )
    size = ledger.elastic
    return (
        settled,
        ledger.epoch,
        ledger.handled,
        ledger.requests,
        ledger.uncounted,
        ledger.phase is Phase.HELD,
        ledger.birth_settings,
        ledger.broken,
        (size.nodes, size.wanted_nodes, size.failed_growths) if size is not None else None,
    )


def _between_incidents(context: ReconcileContext, ledger: Ledger) -> Plan:
    snapshot, workload, policy = context.snapshot, context.workload, context.policy
    mark = suspension.marked_by(workload)
    if mark is not None:
        # No one else would end it, whatever became of its incident and whatever the policy says now.
        why = because(Reason.SUSPENSION_OVER, incident=mark, kind=workload.kind)
        return answer(ledger, why, actions=suspension.resume(workload))
    if not isinstance(policy, Policy):
        return answer(resizing.settled(context, ledger), _unusable(policy))
    alone = unwatched(snapshot, workload)
    if alone is not None and not _is_deleted(context, ledger, policy, alone):
        return answer(resizing.at_an_end(ledger, workload, context.now), alone)
    pause = _paused(context, ledger, policy)
    if pause is not None:
        return answer(resizing.settled(context, ledger), pause)
    if snapshot.jobset is not None and snapshot.jobset.terminal_state == "Failed":
        return _already_failed(context, snapshot.jobset, ledger, policy)
    return _by_losses(context, ledger, policy)


def _is_deleted(context: ReconcileContext, ledger: Ledger, policy: Policy, alone: Explanation) -> bool:
    """A client has deleted the JobSet of a group that trained. Its Jobs, which go with it, show that."""
    snapshot, now = context.snapshot, context.now
    if not is_about_the_jobset(alone) or not trainer_creates(context.workload, now):
        return False
    lost = fresh(snapshot, gather(snapshot), since=policy.since, handled=ledger.handled, now=now)
    return lifecycle.is_deletion(lost)


def _paused(context: ReconcileContext, ledger: Ledger, policy: Policy) -> Explanation | None:
    """Why a pause keeps an incident from opening, and which loss opens one when it ends. None: there is no pause."""
    by_annotation, globally = paused(context.workload), policy.global_pause
    if not by_annotation and globally is None:
        return None
    snapshot, after = context.snapshot, in_words(STALE_AFTER)
    lost = fresh(snapshot, gather(snapshot), since=policy.since, handled=ledger.handled, now=context.now)
    loss, more = (lost[0].text, len(lost) - 1) if lost else ("", 0)
    if by_annotation or globally is None:
        return explained(Sentence.PAUSED_UNTIL_RESUMED, Reason.JOB_PAUSED, loss=loss, more=more, after=after)
    return explained(Sentence.PAUSED_UNTIL_THEN, Reason.GLOBAL_PAUSE, pause=globally, loss=loss, more=more, after=after)


def _by_losses(context: ReconcileContext, ledger: Ledger, policy: Policy) -> Plan:
    """What the losses of a group call for, where no one has asked to leave the group alone."""
    snapshot, now = context.snapshot, context.now
    seen = gather(snapshot)
    evidence = fresh(snapshot, seen, since=policy.since, handled=ledger.handled, now=now)
    finishing = lost_while_finishing(snapshot, ledger, since=policy.since, now=now)
    if finishing is not None and now - finishing.waits_since >= policy.finish_timeout:
        return _finish_is_overdue(context, ledger, policy, finishing)
    if not evidence:
        earlier = standing.still_broken(context, ledger) or _earlier_loss(context, ledger, policy, seen)
        why = earlier or because(Reason.NO_FAILURE, signs=_signs(seen))
        plan = _no_failure(context, ledger, policy, why)
        return plan if finishing is None else _at_latest(plan, finishing.waits_since + policy.finish_timeout)
    done = left_to_finish(snapshot, ledger.handled)
    if done is not None:  # a cache that says so is right: nothing takes a success back
        timeout = in_words(policy.finish_timeout)
        why = explained(Sentence.LOST_BUT_FINISHING, done.reason, evidence=evidence[0].text, done=done, timeout=timeout)
        until = finishing.waits_since + policy.finish_timeout if finishing is not None else None
        return answer(ledger, why, requeue_at=until)
    met_at = phases.last_ready(snapshot) if backoff.all_met_after(snapshot, ledger, evidence) else None
    opened = lifecycle.open_incident(
        ledger,
        snapshot,
        policy,
        classify(evidence, snapshot),
        now,
        # Before now, if the group has trained since: there was no leader meanwhile, and training is not idle time.
        decided_at=phases.within_second(met_at, now) if met_at is not None else None,
    )
    return decide_opened(context, opened)


def _signs(seen: tuple[Evidence, ...]) -> int:
    """How many signs of a restart are ignored. A Job that is gone is none: each restart deletes the Jobs."""
    return sum(item.kind is not LossKind.JOB_DELETED for item in seen)


def _earlier_loss(
    context: ReconcileContext, ledger: Ledger, policy: Policy, seen: tuple[Evidence, ...]
) -> Explanation | None:
    """A loss about which nothing is done because of its age. None: there is none, or no rank can hang because of it."""
    snapshot, job = context.snapshot, context.workload.name
    losses = baseline(snapshot, seen, since=policy.since, handled=ledger.handled, now=context.now)
    if losses and meeting_of(snapshot, ledger).standing is not Standing.MET:
        return because(Reason.BASELINE, loss=losses[0].text, more=len(losses) - 1, job=job)
    return None


def _finish_is_overdue(
    context: ReconcileContext, ledger: Ledger, policy: Policy, finishing: LostWhileFinishing
) -> Plan:
    """Open an incident that a person decides on. Until now it was right to leave the group alone."""
    disruption = classify(finishing.losses, context.snapshot)
    opened = lifecycle.open_incident(
        ledger, context.snapshot, policy, disruption, context.now, decided_at=finishing.lost_at
    )
    handled = msgspec.structs.replace(opened.handled, keys=(*opened.handled.keys, finishing.key))
    return decide_opened(context, msgspec.structs.replace(opened, handled=handled))


def _at_latest(plan: Plan, moment: datetime) -> Plan:
    requeue_at = moment if plan.requeue_at is None else min(plan.requeue_at, moment)
    return msgspec.structs.replace(plan, requeue_at=requeue_at)


def _no_failure(context: ReconcileContext, ledger: Ledger, policy: Policy, why: Explanation) -> Plan:
    """Nothing is lost yet, but a node may not answer, or a node fault may be about to count."""
    fates = fencing.fates_of_nodes(context.snapshot, policy, context.now)
    silent = next((fate for fate in fates.values() if fate.dead_since is None), None)
    moments = [fate.changes_at for fate in fates.values() if fate.changes_at is not None]
    fault_at = matching.next_node_fault_at(policy.rules, context.snapshot, context.now)
    requeue_at = min([*moments, *([fault_at] if fault_at is not None else [])], default=None)
    found = not_started.not_started(context.snapshot)
    asked = black_holes.Asked()
    if silent is not None:
        why = because(Reason.NODE_SILENT, fate=silent.why)
    elif found is not None:
        asked = black_holes.before_training(context, policy)
        if asked.explanations:
            why = explained(
                Sentence.NOT_STARTED_BY_NODE,
                Reason.NOT_STARTED,
                why=all_of(asked.explanations),
                incidents=ledger.totals.incidents,
            )
        elif found.words:
            why = because(Reason.NOT_STARTED, words=found.words, incidents=ledger.totals.incidents)
    requeue_at = min((each for each in (requeue_at, asked.requeue_at) if each is not None), default=None)
    backs_off = recreating.before_meeting(context, ledger, policy) if found is not None and silent is None else None
    if isinstance(backs_off, Plan):
        return backs_off
    rest = resizing.at_rest(context, ledger, policy)
    if rest.grows is not None and silent is None:
        return growth.begin(context, rest.ledger, policy, rest.grows)
    if rest.why is not None and found is None and silent is None:
        why = rest.why
    requeue_at = min((each for each in (requeue_at, rest.requeue_at, backs_off) if each is not None), default=None)
    settled = resizing.settled(context, rest.ledger)
    plan = answer(settled, why, actions=asked.actions(ledger.epoch), requeue_at=requeue_at)
    return msgspec.structs.replace(plan, not_started=found)


def _unusable(policy: PolicyError | None) -> Explanation:
    if policy is None:
        return because(Reason.NO_POLICY)
    return explained(Sentence.NO_USABLE_POLICY, Reason.POLICY_INVALID, error=str(policy))


def _already_failed(context: ReconcileContext, jobset: JobSetFacts, ledger: Ledger, policy: Policy) -> Plan:
    """A JobSet is found Failed. It is reported once, if it failed under this policy and within `STALE_AFTER`."""
    snapshot, now = context.snapshot, context.now
    condition = jobset.condition("Failed")
    if jobset.uid == ledger.handled.terminal_jobset_uid:
        return answer(ledger, because(Reason.JOB_SET_FAILED, jobset=jobset.name))
    at = condition.since if condition is not None else None
    enforced_since = policy.since.replace(microsecond=0)  # the API dates in whole seconds
    if condition is None or at is None or at < enforced_since or now - at > STALE_AFTER:
        return answer(ledger, explained(Sentence.FAILED_LONG_AGO, Reason.JOB_SET_FAILED, jobset=jobset.name))
    text = f"JobSet {jobset.name} is Failed: {condition.message or condition.reason}"
    evidence = fresh(snapshot, gather(snapshot), since=policy.since, handled=ledger.handled, now=now)
    # If the pods are gone, the Job still shows when it began to fail. The ranks have been idle since then.
    failing = (job.condition("FailureTarget") or job.condition("Failed") for job in snapshot.jobs)
    since = [each.since for each in failing if each is not None and each.since is not None]
    failed_at = at if evidence else min([at, *(each for each in since if each >= enforced_since)])
    end = Evidence(f"{jobset.uid}/failed", LossKind.JOB_SET_FAILED, text, "", at=failed_at)
    opened = lifecycle.open_incident(
        ledger, snapshot, policy, classify((*evidence, end), snapshot), now, decided_at=phases.within_second(at, now)
    )
    return failed(context, jobset, opened)


def _record(context: ReconcileContext, ledger: Ledger) -> Plan:
    ledger = seen_at_the_end(ledger, context.snapshot.fleet, context.now)
    closed = ledger.current_incident
    why = because(Reason.INCIDENT_RECORDED, incident=closed.id, message=closed.message)
    after = lifecycle.into_history(ledger, context.snapshot)
    folds, fold = folds_with(ledger, closed)
    requeue_at = context.now if _has_waited(context, after) else None
    plan = answer(after, why, requeue_at=requeue_at)
    # Both actions run before the ledger forgets the incident. A crash in between repeats them; both recognise that.
    count = CountIncidents((*ledger.uncounted, totals_of(context.workload.uid, closed)))
    return msgspec.structs.replace(
        plan,
        ledger=msgspec.structs.replace(after, uncounted=(), folds=folds),
        first=(RecordIncident(closed, fold), count),
    )


def _has_waited(context: ReconcileContext, ledger: Ledger) -> bool:
    """Something came in that had to wait for the end of the incident. It needs a reconcile although nothing changes."""
    marked, asked = suspension.marked_by(context.workload) is not None, requests.pending(context.workload, ledger)
    return marked or bool(asked) or any(item.key not in ledger.handled.keys for item in gather(context.snapshot))
