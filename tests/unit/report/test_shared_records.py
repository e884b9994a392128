"""A record that several incidents share counts each of them in every sum."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.folded_incidents import FoldedIncidents, FoldedNode, NumberRange
from recovery.core.model.incident_record import IncidentRecord
from recovery.core.model.ledger import Outcome, Phase
from recovery.report.formats import ReportFormat
from recovery.report.rendering import rendered
from recovery.report.reports import FleetReport, fleet_report, job_report
from tests.unit.report.records import BEGAN, LLM, NOW, attempt, found, phase, record

WEEK = timedelta(days=7)
ESTIMATE = EnforceEstimate(restarts=4, idle_gpu_seconds=600.0, platform_idle_gpu_seconds=7800.0)


def shared(*numbers: tuple[int, int], ended: timedelta = timedelta(minutes=-5), uid: str = "uid-1") -> IncidentRecord:
    """A record of crashes under Observe, each 20 s long, half of them on each of two nodes."""
    first = record(
        outcome=Outcome.OBSERVED,
        uid=uid,
        id=f"1f458b22-{numbers[0][0]}",
        number=numbers[0][0],
        mode="Observe",
        attempts=(),
        phases=(phase(Phase.DETECTED, 0, 2), phase(Phase.DECIDED, 2, 20)),
        would="RecreateGroup",
    )
    count = sum(last - first_ + 1 for first_, last in numbers)
    lost = 20.0 * 64 * count
    fold = FoldedIncidents(
        fingerprint="Killed/Exit137//llm-5",
        numbers=tuple(NumberRange(*each) for each in numbers),
        count=count,
        started_at=BEGAN,
        latest_started_at=NOW + ended - timedelta(seconds=20),
        latest_evidence="pod-5/node/9",
        ended_at=NOW + ended,
        duration_seconds=20.0 * count,
        idle_gpu_seconds={"Detected": lost / 10, "Decided": lost * 9 / 10},
        restarts=0,
        would={"RecreateGroup": count},
        enforce_estimate=ESTIMATE,
        nodes={"gpu-5": FoldedNode(count // 2, lost / 2), "gpu-6": FoldedNode(count - count // 2, lost / 2)},
    )
    return msgspec.structs.replace(first, fold=fold)


def fleet(*records: IncidentRecord, since: timedelta = WEEK) -> FleetReport:
    return fleet_report(None, found(*records), since, NOW)


def test_every_count_of_a_report_counts_each_incident() -> None:
    report = fleet(shared((1, 10)), record(id="1f458b22-11", number=11))
    totals = report.totals
    assert (totals.incidents, totals.by_outcome) == (11, {"Observed": 10, "Recovered": 1})
    assert (totals.by_class, totals.by_handling) == ({"Killed": 11}, {"automatic": 11})
    assert (report.worst_jobs[0].incidents, report.worst_jobs[0].restarts) == (11, 1)
    assert {each.node: each.incidents for each in report.worst_nodes} == {"gpu-5": 6, "gpu-6": 5}
    assert report.coverage.missing_records == 0


def test_gpu_seconds_are_those_of_all_of_them_however_they_are_split() -> None:
    totals = fleet(shared((1, 10))).totals
    whole = 10 * 20.0 * 64
    assert totals.idle_gpu_seconds == whole
    assert totals.idle_gpu_seconds_by_phase == {"Decided": whole * 0.9, "Detected": whole * 0.1}
    assert sum(totals.idle_gpu_seconds_by_badput.values()) == whole
    assert totals.idle_gpu_seconds_by_class == {"Killed": whole}


@pytest.mark.parametrize(
    ("numbers", "missing"), [(((1, 3), (5, 5)), 0), (((1, 2), (6, 6)), 2)], ids=["whole", "3 and 5 are missing"]
)
def test_numbers_that_share_a_record_are_no_gap_and_others_between_them_are(
    numbers: tuple[tuple[int, int], ...], missing: int
) -> None:
    report = fleet(shared(*numbers), record(id="1f458b22-4", number=4))
    assert report.coverage.missing_records == missing


def test_an_incident_that_its_ledger_still_holds_is_not_counted_beside_the_record_that_it_shares() -> None:
    """The record is written before the ledger forgets the incident."""
    of_ledger = record(
        outcome=Outcome.OBSERVED, id="1f458b22-3", number=3, started_at=BEGAN + timedelta(minutes=10), mode="Observe"
    )
    assert fleet(shared((1, 3)), of_ledger).totals.incidents == 3
    assert fleet(shared((1, 2)), of_ledger).totals.incidents == 3
    other_job = record(uid="uid-2", id="2f458b22-3", number=3, started_at=BEGAN + timedelta(minutes=10))
    assert fleet(shared((1, 3)), other_job).totals.incidents == 4


def test_it_belongs_to_the_window_in_which_the_latest_of_them_ended() -> None:
    assert fleet(shared((1, 10)), since=timedelta(minutes=10)).totals.incidents == 10
    assert fleet(shared((1, 10)), since=timedelta(minutes=2)).totals.incidents == 0


def test_the_reports_say_what_enforce_would_have_done() -> None:
    totals = fleet(shared((1, 4))).totals
    assert (totals.with_enforce.restarts, totals.with_enforce.saved_gpu_seconds) == (4, 7200.0)
    for report in (fleet(shared((1, 4))), job_report(LLM, found(shared((1, 4))), NOW)):
        text = rendered(report, ReportFormat.MD)
        words = " ".join(text.split())
        assert "Enforce would have made 4 restarts and saved 2.00 GPU-hours (estimated). Where the platform" in words


def test_without_incidents_under_observe_nothing_is_said_of_enforce() -> None:
    enforced = record(attempts=(attempt(),))
    assert "With Enforce" not in rendered(fleet(enforced), ReportFormat.MD)


def test_the_record_is_found_by_the_id_of_each_of_them() -> None:
    made = shared((1, 3), (5, 5))
    assert [made.has_id(f"1f458b22-{number}") for number in range(7)] == [False, True, True, True, False, True, False]
    assert not made.has_id("ffffffff-2")
    assert not made.has_id("1f458b22-x")
