"""How many recoveries a rolling window allows."""

from datetime import timedelta

import pytest

from recovery.core.incident.budget import charge, frees_at, in_window, remaining
from recovery.core.model.group_totals import BudgetState
from tests.unit.core.world import at

HOUR = timedelta(hours=1)


def charged(*seconds: float) -> BudgetState:
    return BudgetState(charges=tuple(at(second) for second in seconds))


@pytest.mark.parametrize(
    ("charges", "limit", "now", "left", "frees"),
    [
        ((), 3, 0, 3, None),
        ((0,), 3, 10, 2, None),
        ((0, 10, 20), 3, 30, 0, 3600),
        ((0, 10, 20), 3, 3599.9, 0, 3600),
        ((0, 10, 20), 3, 3600, 1, None),
        ((0, 10, 20), 1, 30, 0, 3620),
        ((0, 10, 20), 2, 30, 0, 3610),
        ((0, 10, 20), 0, 30, 0, None),
        ((50,), 1, 0, 0, 3650),
        ((20, 0, 10), 3, 30, 0, 3600),
    ],
)
def test_what_is_left_and_when_more_is(
    charges: tuple[float, ...], limit: int, now: float, left: int, frees: float | None
) -> None:
    state = charged(*charges)
    assert remaining(state, limit, HOUR, at(now)) == left
    assert frees_at(state, limit, HOUR, at(now)) == (None if frees is None else at(frees))
    if frees is not None:
        assert remaining(state, limit, HOUR, at(frees)) == 1


def test_a_charge_drops_what_the_window_has_passed() -> None:
    state = charge(charged(0, 3000), 3, HOUR, at(3700))
    assert state.charges == (at(3000), at(3700))
    assert (state.limit, state.remaining) == (3, 1)


def test_a_lowered_limit_leaves_nothing_less_than_nothing() -> None:
    assert charge(charged(0, 1, 2), 2, HOUR, at(3)).remaining == 0


def test_a_charge_from_the_future_counts() -> None:
    assert in_window(charged(50), HOUR, at(0)) == (at(50),)
