"""The invariant of claimed progress, with cases that break it and nearly break it."""

import msgspec

from recovery.core.model.ledger import Ledger, Outcome
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.progress import ProgressIsNew
from tests.simulation.trials.checker_case import Case, closed, opened, restarted


def ends(source: str) -> Ledger:
    """Job job-1 was deleted at 1000, and the incident ends at 1020."""
    ledger = closed(restarted(opened(1000), 1000), 1020, Outcome.RECOVERED)
    assert ledger.incident is not None
    assert ledger.incident.closing is not None
    return ledger.with_incident(closing=msgspec.structs.replace(ledger.incident.closing, source=source))


def test_an_end_by_progress_without_a_report_is_found() -> None:
    case = Case(ProgressIsNew)
    case.ledger(ends("progress"))
    assert "no new incarnation has reported any" in case.found[0]


def test_a_report_of_the_incarnation_that_was_taken_down_is_none() -> None:
    case = Case(ProgressIsNew)
    case.trace(EventKind.REPORTED, "job-1")
    case.ledger(ends("progress"))
    assert "no new incarnation has reported any" in case.found[0]


def test_a_report_of_the_new_incarnation_is_one() -> None:
    case = Case(ProgressIsNew)
    case.trace(EventKind.REPORTED, "job-2")
    case.ledger(ends("progress"))
    assert case.found == []


def test_an_end_that_claims_no_progress_needs_none() -> None:
    case = Case(ProgressIsNew)
    case.ledger(ends("ready"))
    assert case.found == []
