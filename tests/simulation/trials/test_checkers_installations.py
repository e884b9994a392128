"""The invariant of several installations, with cases that break it and nearly break it."""

import pytest

from recovery.core.model.ledger import Ledger
from recovery.core.model.writer_lease import WriterLease
from recovery.sim.trials.checkers.installations import YoungerLeaseHolds
from tests.simulation.trials.checker_case import Case, at

OLDER = WriterLease("recovery-system", "lease-a", at(0), 15)
YOUNGER = WriterLease("ml-infra", "lease-b", at(10), 15)
AGAIN = WriterLease("recovery-system", "lease-c", at(600), 15)


class TestYoungerLeaseHolds:
    @pytest.mark.parametrize(
        ("first", "then", "later_seconds", "violations"),
        [
            pytest.param(OLDER, YOUNGER, 12.0, 1, id="the younger writes on"),
            pytest.param(OLDER, YOUNGER, 2.0, 0, id="it could not know yet"),
            pytest.param(OLDER, YOUNGER, 46.0, 0, id="the older has been silent for three durations"),
            pytest.param(YOUNGER, OLDER, 12.0, 0, id="the older writes"),
            pytest.param(OLDER, OLDER, 12.0, 0, id="one writes"),
            pytest.param(OLDER, AGAIN, 12.0, 0, id="its Lease was created again"),
            pytest.param(YOUNGER, AGAIN, 12.0, 1, id="a Lease that was created again is younger"),
            pytest.param(OLDER, None, 12.0, 0, id="no election"),
        ],
    )
    def test_the_younger_holds_while_the_older_writes(
        self, first: WriterLease, then: WriterLease | None, later_seconds: float, violations: int
    ) -> None:
        case = Case(YoungerLeaseHolds)
        case.now = 1000.0
        case.ledger(Ledger(epoch=1, writer=first))
        case.now += later_seconds
        case.ledger(Ledger(epoch=2, writer=then))
        assert len(case.found) == violations
