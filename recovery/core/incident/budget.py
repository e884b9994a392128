"""The budget: how many incidents may be charged within a rolling window, and the delay before the next attempt.

It refuses only the restarts of the controller. Where others restart the group more often than it allows, the group is
in a crash loop: the controller cannot hold them back, and reports it.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.model.group_totals import BudgetState
from recovery.core.model.pinned_policy import PinnedPolicy


def in_window(budget: BudgetState, window: timedelta, now: datetime) -> tuple[datetime, ...]:
    """The charges that still count. A charge from the future counts: the clock has jumped back."""
    return tuple(charge for charge in budget.charges if charge > now - window)


def remaining(budget: BudgetState, limit: int, window: timedelta, now: datetime) -> int:
    """How many more incidents may be charged now. Never negative, even after the limit was lowered."""
    return max(0, limit - len(in_window(budget, window, now)))


def charge(budget: BudgetState, limit: int, window: timedelta, now: datetime) -> BudgetState:
    """The state with one more charge."""
    charges = (*in_window(budget, window, now), now)
    left = max(0, limit - len(charges))
    return msgspec.structs.replace(budget, charges=charges, limit=limit, remaining=left)


def adopt(budget: BudgetState, limit: int, window: timedelta, now: datetime) -> BudgetState:
    """The state with one more restart by others. It is not charged."""
    adopted = [each for each in (*budget.adopted, now) if each > now - window]
    return msgspec.structs.replace(budget, adopted=tuple(adopted[-_no_loop(limit) - 1 :]))


def loops_until(budget: BudgetState, limit: int, window: timedelta, now: datetime) -> datetime | None:
    """Until when the group is in a crash loop, if nothing restarts it any more. None: it is in none.

    It is in one if others restart it, and the restarts in the window, ours included, are more than the budget allows.
    """
    adopted = [each for each in budget.adopted if each > now - window]
    restarts = sorted((*in_window(budget, window, now), *adopted))
    most = _no_loop(limit)
    if not adopted or len(restarts) <= most:
        return None
    return min(max(adopted), restarts[-most - 1]) + window


def _no_loop(limit: int) -> int:
    """How many restarts are no crash loop. One is none, even if the budget allows no restart."""
    return max(1, limit)


def reset(budget: BudgetState, now: datetime) -> BudgetState:
    """The state after a person's reset: no earlier charge and no earlier restart counts."""
    return msgspec.structs.replace(budget, charges=(), adopted=(), remaining=budget.limit, reset_at=now)


def frees_at(budget: BudgetState, limit: int, window: timedelta, now: datetime) -> datetime | None:
    """When an exhausted budget allows the next charge. None: never (the limit is 0), or it is not exhausted."""
    charges = sorted(in_window(budget, window, now))
    if limit == 0 or len(charges) < limit:
        return None
    return charges[len(charges) - limit] + window


def delay(pinned: PinnedPolicy, number: int) -> timedelta:
    """The backoff of the `number`-th attempt in a row: none for the first, then longer each time, up to a maximum."""
    if number < 2 or not pinned.backoff_initial_seconds:
        return timedelta()
    # Beyond this power every delay is at its maximum, and a much higher power would overflow a float.
    power = min(number - 2, 64)
    seconds = pinned.backoff_initial_seconds * pinned.backoff_factor**power
    return timedelta(seconds=min(pinned.backoff_max_seconds, seconds))
