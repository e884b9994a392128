"""Findings about restarts that follow each other too soon."""

import msgspec
import pytest

from recovery.core.model.ledger import AttemptAction, Ledger
from recovery.core.model.waits import Suspension
from recovery.sim.training.trace import EventKind, TraceRecord
from recovery.sim.trials.checkers.intervals import IntervalKept
from tests.simulation.trials.checker_case import Case, at, by_hand, closed, opened, restarted, with_incident

INTERVAL = 300.0
FIRST, MET = 1000.0, 1060.0


def lost(seconds: float, number: int = 1) -> Ledger:
    return opened(seconds, number=number, backoff_min_interval_seconds=INTERVAL)


def recovered(case: Case, *, met: bool = True) -> Ledger:
    """The ledger after a restart at FIRST, whose ranks have met at MET. `met` False: it was given up."""
    ledger = restarted(lost(FIRST), FIRST)
    case.now = FIRST
    case.ledger(ledger)
    if met:
        record = TraceRecord(at=at(MET), kind=EventKind.ROUND_FORMED, training="team-a/llm", job_uid="job-2", step=0)
        case.evidence.trace.add(record)
    case.now = MET
    ledger = closed(ledger, MET)
    case.ledger(ledger)
    return ledger


def again(case: Case, before: Ledger, seconds: float, *, until: float | None = None, hand: bool = False) -> list[str]:
    """A second loss, and its restart, suspended `until` then."""
    second = lost(seconds, number=2)
    second = msgspec.structs.replace(second, epoch=before.epoch)
    second = restarted(second, seconds)
    if until is not None:
        second = with_incident(second, suspension=Suspension(until=at(until)))
    case.now = seconds
    case.ledger(by_hand(second, seconds) if hand else second)
    return case.found


def test_a_restart_at_once_is_found() -> None:
    case = Case(IntervalKept)
    [found] = again(case, recovered(case), 1100.0)
    assert "sooner than 300 s after" in found


def test_a_suspension_until_then_is_right_and_one_from_the_restart_is_too_short() -> None:
    right, short = Case(IntervalKept), Case(IntervalKept)
    assert again(right, recovered(right), 1100.0, until=MET + INTERVAL) == []
    assert len(again(short, recovered(short), 1100.0, until=FIRST + INTERVAL)) == 1


def test_without_a_meeting_it_counts_from_the_restart() -> None:
    right, short = Case(IntervalKept), Case(IntervalKept)
    assert again(right, recovered(right, met=False), 1100.0, until=FIRST + INTERVAL) == []
    assert len(again(short, recovered(short, met=False), 1100.0, until=FIRST + INTERVAL - 10.0)) == 1


def test_after_the_interval_nothing_waits() -> None:
    case = Case(IntervalKept)
    assert again(case, recovered(case), MET + INTERVAL) == []


def test_a_person_does_not_wait() -> None:
    case = Case(IntervalKept)
    assert again(case, recovered(case), 1100.0, hand=True) == []


@pytest.mark.parametrize("action", [AttemptAction.ADOPTED, AttemptAction.SHRINK])
def test_neither_does_the_platform_nor_a_smaller_group(action: AttemptAction) -> None:
    case = Case(IntervalKept)
    before = recovered(case)
    case.now = 1100.0
    second = msgspec.structs.replace(lost(1100.0, number=2), epoch=before.epoch)
    case.ledger(restarted(second, 1100.0, action=action))
    assert case.found == []
