"""Drills in reports: apart from the failures, and complete."""

import json
from datetime import timedelta
from typing import Any

import pytest

from recovery.core.model.drill import DrillRef
from recovery.core.model.incident_record import IncidentRecord
from recovery.core.model.ledger import Outcome
from recovery.report.broken_time import BrokenTime
from recovery.report.formats import ReportFormat
from recovery.report.rendering import rendered
from recovery.report.reports import FleetReport, JobReport, fleet_report, incident_report, job_report
from tests.unit.report.records import BEGAN, GPUS, LLM, NOW, found, record

WEEK = timedelta(days=7)
PAGES = [ReportFormat.MD, ReportFormat.HTML]


def of_drill(repeat: int = 1, **changes: Any) -> IncidentRecord:
    began = BEGAN + timedelta(minutes=repeat)
    ids: dict[str, Any] = {"id": f"1f458b22-{repeat + 1}", "number": repeat + 1, "started_at": began}
    return record(drill=DrillRef("lose-a-rank-x7k2p", "uid-drill", repeat), **(ids | changes))


def both(*records: IncidentRecord, **changes: Any) -> tuple[FleetReport, JobReport]:
    read = found(*records, **changes)
    return fleet_report(None, read, WEEK, NOW), job_report(LLM, read, NOW)


def test_no_figure_about_failures_contains_a_drill() -> None:
    drilled = [of_drill(1), of_drill(2, outcome=Outcome.HELD, charged=True, restarts=3)]
    (fleet, job), (fleet_before, job_before) = both(record(), *drilled), both(record())
    for totals, before in ((fleet.totals, fleet_before.totals), (job.totals, job_before.totals)):
        figures = {
            name: getattr(totals, name)
            for name in totals.__struct_fields__
            if name not in {"drill_incidents", "drill_idle_gpu_seconds"}
        }
        assert all(getattr(before, name) == value for name, value in figures.items())
    assert [each.id for each in fleet.incidents] == [each.id for each in job.incidents] == ["1f458b22-1"]
    [worst], [node] = fleet.worst_jobs, fleet.worst_nodes
    assert (worst.incidents, worst.idle_gpu_seconds) == (1, 20.0 * GPUS)
    assert (node.incidents, node.idle_gpu_seconds) == (1, 20.0 * GPUS)


def test_drills_are_listed_the_newest_first_with_what_they_cost() -> None:
    for report in both(record(), of_drill(1), of_drill(2, outcome=Outcome.HELD)):
        assert [(each.id, each.drill.name, each.drill.repeat, each.outcome) for each in report.drills] == [
            ("1f458b22-3", "lose-a-rank-x7k2p", 2, "Held"),
            ("1f458b22-2", "lose-a-rank-x7k2p", 1, "Recovered"),
        ]
        assert {each.idle_gpu_seconds for each in report.drills} == {20.0 * GPUS}
        assert (report.totals.drill_incidents, report.totals.drill_idle_gpu_seconds) == (2, 40.0 * GPUS)


def test_each_gpu_second_is_in_one_of_two_sums() -> None:
    """So is the time in which the group was Broken after a failure, and after a drill."""
    broken = BrokenTime(LLM, {"Killed": 100.0, "Drill": 30.0}, NOW)
    for report in both(record(), of_drill(), broken=(broken,)):
        assert report.totals.idle_gpu_seconds == 20.0 * GPUS + 100
        assert report.totals.drill_idle_gpu_seconds == 20.0 * GPUS + 30
        assert report.totals.idle_gpu_seconds_by_class == {"Killed": 20.0 * GPUS + 100}
    fleet, _ = both(record(), of_drill(), broken=(broken,))
    assert [each.idle_gpu_seconds for each in fleet.worst_jobs] == [20.0 * GPUS + 100]


def test_a_job_that_only_had_drills_is_not_among_the_worst() -> None:
    fleet, _ = both(of_drill(), broken=(BrokenTime(LLM, {"Drill": 30.0}, NOW),))
    assert (fleet.worst_jobs, fleet.worst_nodes, fleet.totals.incidents) == ((), (), 0)


def test_the_record_of_a_drill_is_no_gap_in_the_numbers() -> None:
    for report in both(record(), of_drill(1), record(id="1f458b22-3", number=3)):
        assert report.coverage.missing_records == 0


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_a_section_of_drills_and_a_line_beside_the_total(page: ReportFormat) -> None:
    for report in both(record(), of_drill()):
        text = rendered(report, page)
        assert "Incidents that drills have caused, the newest first" in text
        assert "lose-a-rank-x7k2p (repeat 1)" in text
        assert "Drills left another 0.356 GPU-hours idle, in 1 incident." in text


@pytest.mark.parametrize("page", PAGES)
def test_without_a_drill_there_is_no_word_about_them(page: ReportFormat) -> None:
    for report in both(record()):
        assert "drill" not in rendered(report, page).lower()


@pytest.mark.parametrize("page", PAGES)
def test_a_report_of_drills_alone_says_that_there_are_no_incidents(page: ReportFormat) -> None:
    for report in both(of_drill()):
        text = rendered(report, page)
        assert "There are no incidents." in text
        assert "lose-a-rank-x7k2p (repeat 1)" in text


def test_the_json_has_them_in_a_field_of_their_own() -> None:
    for report in both(record(), of_drill()):
        body = json.loads(rendered(report, ReportFormat.JSON))
        [drill] = body["drills"]
        assert drill["drill"] == {"name": "lose-a-rank-x7k2p", "repeat": 1}
        assert body["totals"]["drillIdleGpuSeconds"] == 20.0 * GPUS


@pytest.mark.parametrize("page", PAGES)
def test_the_report_of_its_incident_names_the_drill(page: ReportFormat) -> None:
    text = rendered(incident_report(of_drill(2), NOW), page)
    assert "Drill lose-a-rank-x7k2p (repeat 2) caused this incident." in text
