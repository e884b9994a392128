"""The backoff before the next attempt in a row: we suspend the job, or else withhold the restart.

Of two delays the longer one counts: that of the attempts in a row, and `backoff.minInterval` since the last restart.

A suspension frees the GPUs meanwhile. If the job may not be suspended, because it has a deadline or Kueue owns the
suspension, the restart itself waits, but only while the platform cannot end the job meanwhile (`job_limits`).
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.evidence import Evidence, LossKind, happened_by
from recovery.core.diagnosis.membership import member_jobs
from recovery.core.incident import budget, last_restart, phases
from recovery.core.incident.standing import met_since
from recovery.core.model.durations import in_words
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Explanation, Reason, explained
from recovery.core.model.sentence import Sentence
from recovery.core.model.step import Step, StepType
from recovery.core.plan import suspension
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import say


class Earliest(msgspec.Struct, frozen=True):
    """The earliest moment of the next trigger."""

    at: datetime
    longest: timedelta
    """No wait is longer, even if a clock has jumped back."""
    since: datetime | None = None
    """The end of the last restart, if `backoff.minInterval` decides. None: the attempts in a row decide."""


def earliest(ledger: Ledger, now: datetime, *, in_a_row: bool = True) -> Earliest:
    """When the next trigger may come that no person asks for: after the delay of the attempts in a row, and not before
    `backoff.minInterval` after the end of the last restart. `in_a_row`: the delay counts, not only the interval."""
    pinned, number = ledger.current_incident.pinned, ledger.attempts_in_row + 1
    delay = budget.delay(pinned, number) if in_a_row else timedelta()
    interval, ended_at = timedelta(seconds=pinned.backoff_min_interval_seconds), last_restart.ended_at(ledger, now)
    left = interval if ended_at is None else min(interval, ended_at + interval - now)
    longest = max(delay, interval)
    if ended_at is None or left <= delay:
        return Earliest(now + delay, longest)
    return Earliest(now + left, longest, ended_at)


def _because_of(next_: Earliest, ledger: Ledger, in_a_row: Explanation) -> Explanation:
    """Why the next trigger waits. `in_a_row`: because of the attempts in a row."""
    if next_.since is None:
        return in_a_row
    interval = in_words(timedelta(seconds=ledger.current_incident.pinned.backoff_min_interval_seconds))
    ended = f"{next_.since:%Y-%m-%dT%H:%M:%SZ}"
    return explained(Sentence.SINCE_LAST_RESTART, in_a_row.reason, ended=ended, interval=interval)


def withheld(
    context: ReconcileContext, ledger: Ledger, why: Explanation, lost: tuple[Evidence, ...], hurry: Explanation | None
) -> Plan | None:
    """The plan that makes the restart wait for its backoff while the job keeps its pods. None: it does not wait.

    `lost`: what the restart is for. `hurry`: why it must not wait. None: it may.

    Each reconcile decides again, because a rule, the budget or one exit too many may end the wait.
    """
    open_ = ledger.current_incident
    not_ours = suspension.not_ours(context)
    had_time = hurry is not None and hurry.reason is Reason.TIME_TO_START
    if not_ours is None or open_.resumed_by_others or (hurry is not None and not had_time):
        return None
    if ledger.phase is Phase.HELD:
        return None
    # The phase dates a wait that has begun: a reconcile must not begin it again.
    waits_already = ledger.phase is Phase.BACKOFF
    began = open_.phases[-1].started_at if waits_already else context.now
    next_ = earliest(ledger, began, in_a_row=not had_time)
    waits = open_.step if open_.step.withheld else _begin(context, next_, lost)
    assert waits.until is not None, "a restart is withheld until a moment"
    # A clock that jumped back does not prolong the wait.
    if not timedelta() < waits.until - context.now <= next_.longest:
        return None
    ledger = phases.enter(ledger, Phase.BACKOFF, context.now)
    number, wait = ledger.attempts_in_row + 1, in_words(waits.until - began)
    in_a_row = explained(Sentence.IN_A_ROW_WAITS, why.reason, number=number, wait=wait)
    waiting = explained(
        Sentence.WITHHELD,
        why.reason,
        why=why,
        until=f"{waits.until:%Y-%m-%dT%H:%M:%SZ}",
        waits=_because_of(next_, ledger, in_a_row),
        not_ours=not_ours,
    )
    return say(ledger.with_incident(step=waits), waiting, requeue_at=waits.until)


def _begin(context: ReconcileContext, next_: Earliest, lost: tuple[Evidence, ...]) -> Step:
    # Dated by the clocks that also date Jobs and processes; ours may differ.
    lost_at = min((item.at for item in lost if item.at is not None), default=context.now)
    return Step(StepType.WITHHELD, until=next_.at, lost_at=lost_at)


def taken(
    context: ReconcileContext, ledger: Ledger, why: Explanation, hurry: Explanation | None, *, in_row: bool
) -> tuple[Ledger, Explanation]:
    """The restart is made now: the ledger with one more attempt in a row and the suspension for its backoff, and why.
    `hurry`: as in `withheld`. `in_row` False: the next restart does not wait longer because of this one."""
    next_, number = earliest(ledger, context.now), ledger.attempts_in_row + 1
    if in_row:
        ledger = msgspec.structs.replace(ledger, attempts_in_row=number)
    open_ = ledger.current_incident
    until, refused = next_.at, suspension.refused(context, open_)
    if until > context.now and refused is not None:
        if not open_.step.withheld:
            why = explained(Sentence.NO_BACKOFF, why.reason, why=why, refused=refused, hurry=hurry or "")
        elif hurry is not None:
            why = explained(Sentence.BACKOFF_ENDS_EARLY, why.reason, why=why, hurry=hurry)
        until = context.now
    elif until > context.now:
        in_a_row = explained(Sentence.IN_A_ROW, why.reason, number=number)
        waits, wait = _because_of(next_, ledger, in_a_row), in_words(until - context.now)
        why = explained(Sentence.STAYS_SUSPENDED, why.reason, why=why, wait=wait, waits=waits)
    return suspension.until(until, ledger, context.workload, begin=until > context.now), why


def lost_job_exists(snapshot: Snapshot, waits: Step) -> bool:
    """A Job that lost a member still exists. If none does, another client has restarted the group."""
    assert waits.lost_at is not None, "asked only of restarts that are withheld"
    return any(job.created_at <= waits.lost_at for job in member_jobs(snapshot))


def all_met_after(snapshot: Snapshot, ledger: Ledger, lost: tuple[Evidence, ...]) -> bool:
    """The group runs whole, and all ranks have met since the last of these losses: a restart would only cost progress.

    Also False if nothing shows when one happened, or if there are none. A restart that waits is for a loss that the
    ledger knows.
    """
    waits = ledger.incident is not None and ledger.incident.step.withheld
    # The rule about a faulty node wants the group off that node, however often its ranks meet there.
    if not (lost or waits) or any(item.kind is LossKind.NODE_FAULT for item in lost):
        return False
    return met_since(snapshot, ledger, [happened_by(snapshot, item) for item in lost])
