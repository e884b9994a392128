"""The budget: how many incidents may be charged within a rolling window."""

from datetime import datetime, timedelta

from recovery.core.ledger import BudgetState


def in_window(budget: BudgetState, window: timedelta, now: datetime) -> tuple[datetime, ...]:
    """The charges that still count; a charge from the future (a clock that jumped back) counts."""
    return tuple(charge for charge in budget.charges if charge > now - window)


def remaining(budget: BudgetState, limit: int, window: timedelta, now: datetime) -> int:
    """How many more incidents may be charged now; never negative, even after the limit was lowered."""
    return max(0, limit - len(in_window(budget, window, now)))


def charge(budget: BudgetState, limit: int, window: timedelta, now: datetime) -> BudgetState:
    """The state with one charge more."""
    charges = (*in_window(budget, window, now), now)
    return BudgetState(charges=charges, limit=limit, remaining=max(0, limit - len(charges)))


def frees_at(budget: BudgetState, limit: int, window: timedelta, now: datetime) -> datetime | None:
    """When an exhausted budget allows the next charge; None: never (a limit of 0), or it is not exhausted."""
    charges = sorted(in_window(budget, window, now))
    if limit == 0 or len(charges) < limit:
        return None
    return charges[len(charges) - limit] + window
