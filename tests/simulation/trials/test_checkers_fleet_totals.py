"""FleetTotalsFold: the fleet totals match the records that they count."""

from typing import Any

import msgspec

from recovery.core.fleet.totals import with_closed
from recovery.core.incident.closed_incident import totals_of, totals_of_broken
from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.fleet_ledger import FleetLedger, FleetTotals
from recovery.core.model.folded_incidents import FoldedIncidents, NumberRange
from recovery.core.model.ledger import Incident, IncidentTotals, Ledger
from recovery.core.model.standing import Broken
from recovery.ports import RECOVERY_CONFIGS, RECOVERY_GROUPS, RECOVERY_INCIDENTS
from recovery.sim.trials.checkers.fleet_totals import FleetTotalsFold
from tests.simulation.trials.checker_case import CONTROLLER, Case, at, closed, opened, restarted

ENDED = closed(restarted(opened(1000), 1000), 1100)


class FleetCase(Case):
    """A trial with a RecoveryConfig, and one job whose incident is recorded."""

    def __init__(self) -> None:
        super().__init__(FleetTotalsFold)
        self.put(RECOVERY_CONFIGS, "default", {"spec": {}}, uid="config")
        self.now = 1200
        self.ledger(ENDED)

    @property
    def incident(self) -> Incident:
        assert ENDED.incident is not None
        return ENDED.incident

    def recorded(self) -> None:
        assert self.incident.closing is not None
        reference = {"kind": "TrainJob", "name": "llm", "uid": "workload"}
        spec: dict[str, Any] = {"workloadRef": reference, "group": "llm"}
        spec |= msgspec.to_builtins(msgspec.structs.replace(self.incident, closing=None))
        spec |= msgspec.to_builtins(self.incident.closing)
        self.put(RECOVERY_INCIDENTS, "llm-1", {"spec": spec}, by=CONTROLLER)

    def forgotten(self) -> None:
        self.ledger(msgspec.structs.replace(ENDED, incident=None))

    def totals(self, totals: FleetTotals) -> None:
        self.put(RECOVERY_CONFIGS, "default", {"status": msgspec.to_builtins(FleetLedger(totals=totals))})

    def counted(self) -> FleetTotals:
        adds = totals_of("workload", self.incident)
        return with_closed(FleetTotals(), [adds], at(1200), may_return=lambda _: False)


def test_one_that_is_recorded_and_counted_is_right() -> None:
    case = FleetCase()
    case.recorded()
    case.totals(case.counted())
    case.forgotten()
    assert case.end() == []


def test_one_that_its_ledger_still_holds_is_still_to_be_counted() -> None:
    case = FleetCase()
    case.recorded()
    assert case.end() == []


def test_one_that_is_forgotten_and_not_counted_is_found() -> None:
    case = FleetCase()
    case.recorded()
    case.forgotten()
    assert case.end() == ["incident 1 of workload workload is not counted"]


def test_one_that_its_ledger_owes_is_still_to_be_counted() -> None:
    case = FleetCase()
    case.recorded()
    case.ledger(Ledger(uncounted=(totals_of("workload", case.incident),)))
    assert case.end() == []


def test_one_that_is_counted_and_not_recorded_is_found() -> None:
    case = FleetCase()
    case.totals(case.counted())
    assert "incident 1 of workload workload is counted and not recorded" in case.end()


def test_one_that_is_counted_again_once_its_mark_is_gone_is_found() -> None:
    case = FleetCase()
    case.recorded()
    totals = case.counted()
    case.totals(totals)
    case.totals(msgspec.structs.replace(totals, counted={}))
    case.totals(totals)
    assert case.found == ["incident 1 of workload workload is counted twice"]


def test_totals_that_say_more_than_the_records_are_found() -> None:
    case = FleetCase()
    case.recorded()
    case.totals(msgspec.structs.replace(case.counted(), restarts=2, released_gpu_seconds=7.0))
    case.forgotten()
    assert case.end() == ["restarts are 2, the records say 1", "7.0 GPU-seconds are released, 0.0 by the records"]


def test_the_time_in_which_a_group_hung_needs_no_record() -> None:
    case = FleetCase()
    case.recorded()
    hangs = Broken(at(1000), at(1100), "workload-1", case.incident.disruption_class, 8)
    hung = totals_of_broken("workload", hangs, 800.0)
    case.ledger(msgspec.structs.replace(ENDED, broken=hangs))
    case.totals(with_closed(case.counted(), [hung], at(1200), may_return=lambda _: False))
    case.forgotten()
    assert case.end() == []


def deleted_while_broken() -> FleetCase:
    case = FleetCase()
    case.recorded()
    case.totals(case.counted())
    case.ledger(msgspec.structs.replace(ENDED, incident=None, broken=LEFT))
    case.now = 1600
    case.drop(RECOVERY_GROUPS, "llm-workload")
    case.now = 1700
    return case


LEFT = Broken(at(1000), at(1100), "workload-1", "PodDeleted", 8)


def test_the_time_in_which_a_group_hung_when_its_job_was_deleted_is_counted() -> None:
    assert deleted_while_broken().end() == ["the time in which it hung from 08:18:20 on is not counted"]
    case = deleted_while_broken()
    hung = totals_of_broken("workload", LEFT, 4000.0)
    case.totals(with_closed(case.counted(), [hung], at(1600), may_return=lambda _: False))
    assert case.end() == []


# --- incidents that share a record -----------------------------------------------------------------------------------


def second_of(case: FleetCase) -> tuple[FoldedIncidents, IncidentTotals]:
    """A second incident like the first, and what it adds to the totals."""
    first = totals_of("workload", case.incident)
    assert case.incident.closing is not None
    fold = FoldedIncidents(
        fingerprint="PodDeleted/PodDeleted//llm-1",
        numbers=(NumberRange(1, 2),),
        count=2,
        started_at=case.incident.started_at,
        latest_started_at=at(1300),
        latest_evidence="pod-2/lost",
        ended_at=at(1400),
        idle_gpu_seconds={phase: 2 * seconds for phase, seconds in first.idle_gpu_seconds.items()},
        restarts=2 * first.restarts,
    )
    return fold, msgspec.structs.replace(first, number=2, started_at=at(1300))


def shared(case: FleetCase, fold: FoldedIncidents) -> None:
    case.put(RECOVERY_INCIDENTS, "llm-1", {"status": msgspec.to_builtins(fold)}, by=CONTROLLER)


def test_what_an_incident_adds_to_the_record_that_it_shares_is_what_it_adds_to_the_totals() -> None:
    case = FleetCase()
    case.recorded()
    fold, adds = second_of(case)
    shared(case, fold)
    totals = with_closed(case.counted(), [adds], at(1400), may_return=lambda _: True)
    case.totals(totals)
    case.forgotten()
    assert case.end() == []


def test_one_that_shares_a_record_and_is_not_counted_is_found() -> None:
    case = FleetCase()
    case.recorded()
    fold, _ = second_of(case)
    shared(case, fold)
    case.totals(case.counted())
    case.forgotten()
    assert case.end() == ["incident 2 of workload workload is not counted"]


def test_an_estimate_that_the_records_do_not_bear_out_is_found() -> None:
    case = FleetCase()
    case.recorded()
    case.totals(msgspec.structs.replace(case.counted(), enforce_estimate=EnforceEstimate(restarts=3)))
    case.forgotten()
    (found,) = case.end()
    assert found.startswith("Enforce is estimated as EnforceEstimate(restarts=3")
