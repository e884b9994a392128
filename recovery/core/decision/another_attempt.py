"""Further attempts within an incident, for any reason, such as a member that is lost again before it is over."""

from datetime import datetime

import msgspec

from recovery.core.decision import backoff
from recovery.core.decision import verdict as verdicts
from recovery.core.decision.guards import Guard, Move, Question, first_stop
from recovery.core.decision.hold import fail_job
from recovery.core.decision.judging import (
    carry_out,
    stands_aside,
    stopped,
)
from recovery.core.decision.resuming import whole_again
from recovery.core.decision.verdict import Verdict
from recovery.core.diagnosis.evidence import Evidence, LossKind, gather
from recovery.core.diagnosis.freshness import fresh, without_replaced
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.diagnosis.signature import EXITED
from recovery.core.diagnosis.unscheduled import unscheduled
from recovery.core.incident import attempt_limits, lifecycle
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import AttemptAction, Ledger, Phase
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import (
    as_before,
    attempt,
    stand_aside,
)


def lost_since(snapshot: Snapshot, ledger: Ledger, now: datetime) -> tuple[Evidence, ...]:
    """Losses in the group after the restart that are not dealt with yet."""
    target = ledger.current_incident.target
    keys = frozenset(ledger.handled.keys)
    # If a loss was left to the platform, the replacement of the pod is not another loss.
    aside = lifecycle.stood_aside(ledger)
    return tuple(
        item
        for item in gather(snapshot)
        if item.job_uid not in target.job_uids
        and item.key not in keys
        and not (aside and item.inferred)
        # The facts show how far a group has come whose Jobs were deleted again. Nothing has to be restarted for it.
        and item.kind is not LossKind.JOB_DELETED
        # A node fault under a member that is still starting waits until the group has run: no member is lost yet.
        and (
            item.kind is not LossKind.NODE_FAULT
            or item in fresh(snapshot, (item,), since=None, handled=ledger.handled, now=now)
        )
    )


def breaks_the_group(context: ReconcileContext, ledger: Ledger, lost: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """The losses that a replacement pod does not repair: the other ranks hang, or the Job itself is failing."""
    hung = fresh(context.snapshot, lost, since=None, handled=ledger.handled, now=context.now)
    return tuple(item for item in lost if item in hung or item.kind is LossKind.JOB_FAILING)


def left_to_platform(
    context: ReconcileContext, ledger: Ledger, lost: tuple[Evidence, ...], decided: Explanation | None
) -> Ledger:
    """Note losses that call for no trigger of ours: the group is held, a native policy decides, or no rank hangs.

    That ranks give up while another one waits for a node is no attempt of anyone (`capacity_wait`).
    """
    ledger = lifecycle.more_evidence(ledger, lost)
    if ledger.phase is not Phase.HELD:
        if decided is not None:
            found = because(Reason.MEMBER_LOST, evidence=lost[0].text)
            ledger = stand_aside(ledger, stands_aside(found, decided), context.now)
        elif not (unscheduled(context.snapshot) and all(item.kind in EXITED for item in lost)):
            why = because(Reason.MEMBER_REPLACED, evidence=lost[0].text)
            ledger = attempt(ledger, AttemptAction.NONE, ledger.current_incident.target, why, context.now)
    return ledger


def lost_again(context: ReconcileContext, ledger: Ledger, lost: tuple[Evidence, ...]) -> Plan:
    """A member was lost after all members of the new group had run together, but before the incident was over."""
    found = because(Reason.MEMBER_LOST_AGAIN, evidence=lost[0].text)
    plan = try_again(context, ledger, found, lost, move=Move.LOST_AGAIN)
    # An earlier decision to stand aside says nothing about this loss. Only what this reconcile has added does.
    tried = plan.ledger.current_incident.attempts != ledger.current_incident.attempts
    acted = tried or plan.ledger.phase is Phase.HELD
    if not acted:
        return plan  # not acted upon yet: the evidence stays fresh
    return msgspec.structs.replace(plan, ledger=lifecycle.more_evidence(plan.ledger, lost))


def try_again(
    context: ReconcileContext,
    ledger: Ledger,
    found: Explanation,
    lost: tuple[Evidence, ...] = (),
    verdict: Verdict | None = None,
    *,
    move: Move = Move.ANOTHER,
) -> Plan:
    """Another trigger within the incident, or what the rules say about the new losses.

    It is charged only if no earlier one was, but the budget limits how many there are. `lost` empty: nothing was lost,
    the group took too long. `verdict` None: it is found here.
    """
    if ledger.epoch != context.epoch:  # this reconcile has adopted a restart already
        return as_before(ledger, requeue_at=context.now)
    # A person forced the restart that was made, not another one.
    question = Question(context, ledger, lost)
    stop = first_stop(move, question)
    if stop is None and verdict is None:
        verdict = verdicts.of(context, ledger, lost)
        stop = first_stop(move, msgspec.structs.replace(question, verdict=verdict))
    if stop is not None and stop.guard is Guard.BARRED:
        since = lost_since(context.snapshot, ledger, context.now)
        if backoff.all_met_after(context.snapshot, ledger, since):
            return whole_again(context, lifecycle.more_evidence(ledger, since))
    if stop is not None:
        return stopped(question, found, stop)
    assert verdict is not None, "found above"
    return carry_out(context, ledger, found, verdict, attempt=len(attempt_limits.ours(ledger)) + 1, lost=lost)


def held(context: ReconcileContext, ledger: Ledger) -> Plan:
    """The group is held after a restart, until the budget window admits the next attempt."""
    open_ = ledger.current_incident
    later = tuple(
        item for item in lifecycle.present(context.snapshot, ledger) if item.job_uid not in open_.target.job_uids
    )
    # Pods that the Jobs replaced before the new group ran whole are not why it is held, and do not decide its charge.
    lost = without_replaced(context.snapshot, later)
    free = not attempt_limits.judged(ledger) and not verdicts.of(context, ledger, lost).charge
    refusal = attempt_limits.refused(ledger, context.now, free=free)
    if refusal is not None:
        return as_before(ledger, actions=fail_job(context, ledger), requeue_at=refusal.frees_at)
    if not member_jobs(context.snapshot):
        return as_before(ledger)  # another client has just deleted the Job; its successor will be seen
    found = because(Reason.BUDGET_WINDOW_PASSED, evidence=open_.evidence[-1])
    return try_again(context, ledger, found, lost)
