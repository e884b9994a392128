"""A reconcile of an incident in which no one has restarted the group: its questions, in the order of `table`.

The group was left alone on purpose, is held, is only observed, or must not be restarted now.
"""

from datetime import datetime

import msgspec

from recovery.core.decision import backoff
from recovery.core.decision.hold import fail_job
from recovery.core.decision.judging import judge, kept_by_breaker, observed, seen_then
from recovery.core.decision.resuming import settling_until, whole_again
from recovery.core.decision.situation import Situation
from recovery.core.decision.teardown import free_the_dead, left_alone
from recovery.core.diagnosis.evidence import Evidence, gather
from recovery.core.diagnosis.finish_overdue import left_to_finish
from recovery.core.diagnosis.freshness import fresh
from recovery.core.diagnosis.membership import group_runs_whole
from recovery.core.incident import lifecycle
from recovery.core.incident.evidence_counts import first_seen
from recovery.core.incident.preconditions import barred
from recovery.core.incident.standing import meeting_of
from recovery.core.model.ledger import Incident, Ledger, Outcome, Phase
from recovery.core.model.reason import Explanation, Reason, explained
from recovery.core.model.sentence import Sentence
from recovery.core.model.standing import Standing
from recovery.core.model.step import Step, StepType
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import as_before, close, say
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError, Restart


def gathered(context: ReconcileContext, ledger: Ledger) -> Situation:
    """What is known before the first question."""
    snapshot = context.snapshot
    since = _evidence_since(context, ledger.current_incident)
    lost = fresh(snapshot, gather(snapshot), since=since, handled=ledger.handled, now=context.now)
    return Situation(context, ledger, Phase.HEALTHY if group_runs_whole(snapshot) else Phase.DECIDED, lost)


def enforced_since(situation: Situation) -> Plan | Situation:
    """New losses end an incident that only observes, if the policy enforces by now."""
    why = _enforced_since(situation.open_, situation.context.policy, situation.lost)
    return situation if why is None else close(situation.ledger, Outcome.OBSERVED, why, situation.context.now)


def evidence_noted(situation: Situation) -> Situation:
    """The ledger has all evidence that can be seen. Once the controller has stood aside, what comes in since waits for
    a verdict of its own."""
    ledger = lifecycle.more_evidence(situation.ledger, situation.lost) if situation.lost else situation.ledger
    news = tuple(item for item in situation.lost if not item.inferred) if lifecycle.still_aside(ledger) else ()
    if news:
        ledger = ledger.with_incident(step=Step(StepType.ASIDE, undecided=True))
    return msgspec.structs.replace(situation, ledger=ledger, news=news)


def finishing(situation: Situation) -> Plan | Situation:
    """A training that finishes needs no restart."""
    context, ledger = situation.context, situation.ledger
    done = left_to_finish(context.snapshot, ledger.handled)
    return situation if done is None else close(ledger, Outcome.SUPERSEDED, left_alone(done), context.now)


def runs_whole(situation: Situation) -> Plan | Situation:
    """The incident of a group that runs whole ends, at once or in a while, unless a verdict is still to come."""
    context, ledger = situation.context, situation.ledger
    if situation.position is not Phase.HEALTHY or _is_put_off(context, ledger):
        return situation
    waits_until = settling_until(context, ledger)
    if waits_until is None:
        return whole_again(context, ledger)
    if situation.open_.step.withheld:
        # The loss has ended by itself. A backoff that is shorter than this wait must not bring the restart now.
        return _runs_again(ledger, waits_until)
    return msgspec.structs.replace(situation, waits_until=waits_until)


def still_aside(situation: Situation) -> Plan | Situation:
    """The loss was left to the platform, and no news came in.

    It is not judged again: standing aside is meant to bring a replacement, and the evidence for that decision may be
    gone with the pod.
    """
    if situation.open_.step.undecided:
        return situation
    plan = as_before(situation.ledger, actions=free_the_dead(situation.context, situation.ledger))
    return _in_time(situation, plan)


def observed_already(situation: Situation) -> Plan | Situation:
    """What Enforce would do is decided once."""
    return _in_time(situation, observed(situation.context, situation.ledger)) if situation.open_.would else situation


def judged(situation: Situation) -> Plan:
    """The verdict, and what it calls for."""
    plan = judge(situation.context, situation.ledger, situation.news)
    put_off = situation.position is Phase.HEALTHY and situation.waits_until is None
    if put_off and lifecycle.still_aside(plan.ledger):
        # The loss that put the end off has just been left to the platform, and nothing else may change.
        situation = msgspec.structs.replace(situation, waits_until=situation.context.now)
    return _in_time(situation, plan)


def _in_time(situation: Situation, plan: Plan) -> Plan:
    """The plan, which is decided again when the incident may end."""
    moments = (moment for moment in (plan.requeue_at, situation.waits_until) if moment is not None)
    return msgspec.structs.replace(plan, requeue_at=min(moments, default=None))


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
