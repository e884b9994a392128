"""Whether an open incident may have another attempt now, by its budget."""

from datetime import datetime, timedelta

import msgspec

from recovery.core.incident import budget
from recovery.core.incident.lifecycle import MAX_ATTEMPTS
from recovery.core.model.ledger import Attempt, AttemptAction, Ledger

OURS = frozenset({AttemptAction.RECREATE_GROUP, AttemptAction.REPLACE_NODE, AttemptAction.RECREATE_JOB_SET})
"""What we have triggered ourselves."""


class Refusal(msgspec.Struct, frozen=True):
    """Why no attempt may be made now. `frees_at` None: no time will change it."""

    why: str
    frees_at: datetime | None
    exhausted: bool = True
    """The budget is, so that `budget.onExhausted` applies. False: the verdict says so."""
    fail_job: bool = False
    """The verdict is to make the JobSet fail."""


def restart_of(ledger: Ledger) -> Attempt | None:
    """The latest attempt that restarted the group. None: none has."""
    attempts = ledger.current_incident.attempts
    return next((a for a in reversed(attempts) if a.action is not AttemptAction.NONE), None)


def ours(ledger: Ledger) -> tuple[Attempt, ...]:
    """The attempts of the open incident that we triggered."""
    return tuple(attempt for attempt in ledger.current_incident.attempts if attempt.action in OURS)


def left(ledger: Ledger, now: datetime) -> int:
    """How many recoveries the budget has left."""
    terms = ledger.current_incident.terms
    return budget.remaining(ledger.budget, terms.budget_limit, _window(ledger), now)


def refused(ledger: Ledger, now: datetime, *, free: bool = False) -> Refusal | None:
    """Why the open incident may not have another attempt now. None: it may.

    `free`: it would cost no budget; only an incident that restarts its group without end is refused then.
    """
    open_ = ledger.current_incident
    if open_.held:
        return Refusal(open_.held, None, exhausted=False, fail_job=open_.fail_job)
    refusal = _by_budget(ledger, now, free=free)
    if refusal is None and open_.fail_job:
        return Refusal("it is being made to fail", None)
    return refusal


def judged(ledger: Ledger) -> bool:
    """The open incident has had its verdict: held until a person says `retry`, or its JobSet is being made to fail."""
    open_ = ledger.current_incident
    return bool(open_.held) or open_.fail_job


def _by_budget(ledger: Ledger, now: datetime, *, free: bool) -> Refusal | None:
    """An incident is charged once; but it gets no more attempts than the budget has charges, lest one restart its group
    for ever.
    """
    open_, window = ledger.current_incident, _window(ledger)
    limit, name = open_.terms.budget_limit, open_.terms.policy_name
    extent = f"{limit} recoveries within {words(window)}"
    if (
        not open_.charged and not free
    ):  # only the platform, or a person, has restarted it so far: this one would be charged
        if left(ledger, now) > 0:
            return None
        frees_at = budget.frees_at(ledger.budget, limit, window, now)
        return Refusal(f"the budget of policy {name} is exhausted ({extent})", frees_at)
    since = now - window
    if ledger.budget.reset_at is not None:
        since = max(since, ledger.budget.reset_at)
    made = [attempt.started_at for attempt in ours(ledger) if attempt.started_at > since]
    most = MAX_ATTEMPTS if free else min(limit, MAX_ATTEMPTS)
    if len(made) < most:
        return None
    why = f"{len(made)} attempts of this incident have failed and "
    if limit <= MAX_ATTEMPTS and not free:
        why += f"the budget of policy {name} ({extent}) allows no more"
    else:
        why += f"no incident gets more within {words(window)}, whatever the budget of policy {name} ({extent})"
    return Refusal(why, made[-most] + window if most else None)


def words(window: timedelta) -> str:
    """A duration as a policy writes it: 24h, 90m, 10s."""
    seconds = int(window.total_seconds())
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _window(ledger: Ledger) -> timedelta:
    return timedelta(seconds=ledger.current_incident.terms.budget_window_seconds)
