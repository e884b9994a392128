"""The report of a job and of the fleet: which incidents count, their sums, and what is not covered."""

from datetime import timedelta
from typing import Any

import pytest

from recovery.core.model.facts import GroupKey
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import ClosedIncident, IncidentHandling, Ledger, Outcome, Phase, Suspect
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Broken
from recovery.report.broken_time import BrokenTime, broken_time_of
from recovery.report.group_totals import totals_of
from recovery.report.incident_account import account_of
from recovery.report.reports import WORST_MAX, FleetReport, RecordsFound, fleet_report, job_report
from tests.unit.report.records import BEGAN, GPUS, LLM, NOW, attempt, found, phase, record, recorded

OTHER = GroupKey("team-b", "vision")
WEEK = timedelta(days=7)


def fleet(records: RecordsFound, namespace: str | None = None) -> FleetReport:
    return fleet_report(namespace, records, WEEK, NOW)


def days_ago(days: float, number: int = 1, **changes: Any) -> dict[str, Any]:
    at = NOW - timedelta(days=days)
    return {"started_at": at, "detected_at": at, "number": number, "id": f"x-{number}", **changes}


def test_a_job_has_its_own_incidents_the_newest_first() -> None:
    report = job_report(LLM, found(record(**days_ago(2, 1)), record(OTHER), record(**days_ago(1, 2))), NOW)
    assert [each.number for each in report.incidents] == [2, 1]
    assert (report.workload_kind, report.totals.incidents) == ("TrainJob", 2)


def test_a_job_of_the_same_name_in_another_namespace_is_another_job() -> None:
    assert job_report(LLM, found(record(GroupKey("team-b", "llm"))), NOW).incidents == ()


def test_an_incident_that_is_recorded_and_still_in_the_ledger_counts_once_as_recorded() -> None:
    report = job_report(LLM, found(record(outcome=None), record()), NOW)
    assert [each.outcome for each in report.incidents] == [Outcome.RECOVERED]
    assert job_report(LLM, found(record(), record(outcome=None)), NOW).incidents == report.incidents


def test_an_incident_counts_for_the_fleet_if_it_ended_in_the_window_or_is_open() -> None:
    report = fleet(
        found(
            record(**days_ago(8, 1)),
            record(**days_ago(7 + 1 / 86400, 2)),
            record(OTHER, outcome=None, phases=(), **days_ago(30, 3)),
        )
    )
    assert {each.id for each in report.incidents} == {"x-2", "x-3"}
    assert report.totals.open_incidents == 1


def test_gpu_seconds_by_phase_by_class_and_by_badput_have_one_sum() -> None:
    totals = fleet(found(*recorded(), record(**days_ago(1, 7)))).totals
    assert totals.idle_gpu_seconds > 20 * GPUS
    for split in (
        totals.idle_gpu_seconds_by_phase,
        totals.idle_gpu_seconds_by_class,
        totals.idle_gpu_seconds_by_badput,
    ):
        assert sum(split.values()) == pytest.approx(totals.idle_gpu_seconds)
    for counts in (totals.by_class, totals.by_outcome, totals.by_handling):
        assert sum(counts.values()) == totals.incidents


def test_time_to_recovery_is_told_for_each_handling_by_itself() -> None:
    recovered = [account_of(record(seconds=seconds), NOW) for seconds in range(1, 101)]
    held = account_of(record(seconds=9000, handling=IncidentHandling.HELD), NOW)
    failed = account_of(record(seconds=5000, outcome=Outcome.FAILED), NOW)
    times = {each.handling: each for each in totals_of([*recovered, held, failed]).recovery_times}
    automatic = times[IncidentHandling.AUTOMATIC]
    assert (automatic.recovered, automatic.mean_seconds, automatic.median_seconds) == (100, 50.5, 50.5)
    assert automatic.p95_seconds == 95
    assert times[IncidentHandling.HELD].mean_seconds == 9000
    assert times[IncidentHandling.MANUAL].mean_seconds is None


def test_the_worst_jobs_are_those_that_lost_most() -> None:
    report = fleet(found(record(), record(OTHER, phases=(phase(Phase.HELD, 0, 100),), seconds=100)))
    assert [(each.job, each.idle_gpu_seconds) for each in report.worst_jobs] == [
        ("vision", 100 * GPUS),
        ("llm", 20 * GPUS),
    ]
    many = [record(GroupKey("team-a", f"job-{number}")) for number in range(WORST_MAX + 1)]
    assert len(fleet(found(*many)).worst_jobs) == WORST_MAX


def ledger(**changes: Any) -> LedgerObject:
    """The ledger of the job `llm`, whose group was Broken for 100 GPU-seconds after its incidents."""
    booked = Totals(
        incidents=1, idle_gpu_seconds={"Broken": 100.0}, idle_gpu_seconds_by_class={"Killed": {"Broken": 100.0}}
    )
    fields = {"totals": booked, **changes}
    return LedgerObject("llm", "team-a", "group-1", "7", "uid-1", "llm", Ledger(**fields))


def hung(group: LedgerObject) -> BrokenTime:
    time = broken_time_of(group, NOW)
    assert time is not None
    return time


def closed_broken(days: float) -> ClosedIncident:
    at = NOW - timedelta(days=days)
    return ClosedIncident(
        id="x-1",
        outcome=Outcome.HELD,
        outcome_reason=Reason.LEFT_TO_KUBERNETES,
        disruption_class="Killed",
        cause="Exit137",
        started_at=at,
        ended_at=at,
        attempts=1,
        idle_gpu_seconds=0.0,
        reason=Reason.LEFT_TO_KUBERNETES,
        still_broken=True,
    )


def test_the_time_in_which_a_group_was_broken_is_in_the_sums_of_its_job_as_the_ledger_has_it() -> None:
    incidents, records = [record(**days_ago(1))], found(record(**days_ago(1)), broken=(hung(ledger()),))
    without = job_report(LLM, found(*incidents), NOW).totals
    report = job_report(LLM, records, NOW)
    totals = report.totals
    assert totals.idle_gpu_seconds == without.idle_gpu_seconds + 100.0
    assert totals.idle_gpu_seconds_by_phase["Broken"] == 100.0
    for split in (totals.idle_gpu_seconds_by_class, totals.idle_gpu_seconds_by_badput):
        assert sum(split.values()) == pytest.approx(totals.idle_gpu_seconds)
    assert (totals.incidents, totals.by_class) == (without.incidents, without.by_class)
    assert job_report(OTHER, records, NOW).totals.idle_gpu_seconds == 0.0


def test_while_it_is_broken_it_counts_up_to_now() -> None:
    since = NOW - timedelta(seconds=30)
    broken = Broken(since, since, "x-1", "PodDeleted", 8)
    assert hung(ledger(broken=broken)).idle_gpu_seconds == {"Killed": 100.0, "PodDeleted": 240.0}
    assert broken_time_of(ledger(totals=Totals()), NOW) is None


def test_it_counts_for_the_fleet_if_the_group_is_broken_or_its_incident_ended_in_the_window() -> None:
    long_ago = NOW - timedelta(days=30)
    broken = Broken(long_ago, NOW - timedelta(seconds=30), "x-1", "Killed", 8)
    for group, counts in (
        (ledger(broken=broken), 340.0),
        (ledger(history=(closed_broken(6),)), 100.0),
        (ledger(history=(closed_broken(8),)), 0.0),
        (ledger(), 0.0),
    ):
        report = fleet(found(broken=(hung(group),)))
        assert report.totals.idle_gpu_seconds == counts
        assert sum(each.idle_gpu_seconds for each in report.worst_jobs) == counts


def test_the_worst_nodes_are_those_of_suspects_and_of_replacements() -> None:
    both = (Suspect(pod="a", node="gpu-1"), Suspect(pod="b", node="gpu-1"), Suspect(pod="c", node="gpu-2"))
    records = (
        record(suspects=both, attempts=(attempt(nodes=("gpu-1",)),), **days_ago(1, 1)),
        record(suspects=(Suspect(pod="d", node="gpu-1"), Suspect(pod="e")), **days_ago(1, 2)),
    )
    nodes = fleet(found(*records)).worst_nodes
    assert [(each.node, each.incidents, each.replaced) for each in nodes] == [("gpu-1", 2, 1), ("gpu-2", 1, 0)]


def test_the_platforms_ways_are_summed_beside_what_the_same_incidents_cost() -> None:
    compared, other = record(**days_ago(1, 1)), record(outcome=Outcome.HELD, **days_ago(1, 2))
    [shipped, _] = fleet(found(compared, other)).totals.platform
    assert (shipped.incidents, shipped.measured_idle_gpu_seconds) == (1, 20 * GPUS)
    assert shipped.saved_gpu_seconds == shipped.idle_gpu_seconds - 20 * GPUS


def test_a_window_is_whole_if_records_reach_back_to_its_beginning() -> None:
    assert not fleet(found()).coverage.whole_window
    assert not fleet(found(record(**days_ago(3)))).coverage.whole_window
    older = fleet(found(record(**days_ago(3, 2)), record(**days_ago(9, 1))))
    assert older.coverage.whole_window
    assert older.coverage.oldest_record_at == NOW - timedelta(days=9)


def test_gaps_in_the_numbers_of_incidents_are_records_that_are_missing() -> None:
    kept = found(*(record(**days_ago(5 - number / 10, number)) for number in (1, 2, 5)))
    assert fleet(kept).coverage.missing_records == 2
    assert job_report(LLM, kept, NOW).coverage.missing_records == 2


def test_numbers_of_two_jobs_of_one_name_have_nothing_to_do_with_each_other() -> None:
    kept = found(record(**days_ago(5, 9)), record(uid="uid-2", **days_ago(4, 1)))
    assert fleet(kept).coverage.missing_records == 0


def test_a_gap_from_before_the_window_is_not_told_of() -> None:
    kept = found(record(**days_ago(20, 1)), record(**days_ago(19, 5)), record(**days_ago(1, 6)))
    assert fleet(kept).coverage.missing_records == 0


def test_what_could_not_be_read_is_told() -> None:
    coverage = fleet(found(unreadable=3, ledgers_read=False)).coverage
    assert (coverage.unreadable_records, coverage.open_incidents_read) == (3, False)


def test_an_empty_fleet_has_no_averages() -> None:
    report = fleet(found())
    assert (report.totals.incidents, report.worst_jobs, report.worst_nodes) == (0, (), ())
    assert report.window_start < BEGAN
