"""The invariant of claimed progress, with cases that break it and nearly break it."""

import msgspec
import pytest

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
    assert "no ranks that met since its loss have reported any" in case.found[0]


def test_a_report_of_the_ranks_that_were_lost_is_none() -> None:
    case = Case(ProgressIsNew)
    case.now = 900
    case.trace(EventKind.ROUND_FORMED, "job-1")
    case.now = 1010
    case.trace(EventKind.ROUND_FORMED, "job-2")
    case.trace(EventKind.REPORTED, "job-1")
    case.ledger(ends("progress"))
    assert "no ranks that met since its loss have reported any" in case.found[0]


@pytest.mark.parametrize("job_uid", ["job-1", "job-2"])
def test_a_report_of_ranks_that_have_met_since_is_one(job_uid: str) -> None:
    """A Job may replace all of its ranks by itself."""
    case = Case(ProgressIsNew)
    case.now = 1010
    case.trace(EventKind.ROUND_FORMED, job_uid)
    case.trace(EventKind.REPORTED, job_uid)
    case.ledger(ends("progress"))
    assert case.found == []


def test_an_end_that_claims_no_progress_needs_none() -> None:
    case = Case(ProgressIsNew)
    case.ledger(ends("ready"))
    assert case.found == []
