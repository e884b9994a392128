"""The metrics of the agents' endpoint."""

from datetime import timedelta

from recovery.core.model.facts import GroupKey
from recovery.telemetry.catalogue.label_values import AGENT_RESULTS
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import BEGIN, Scrape

REPORTS = "recovery_agent_reports_total"
EXPIRY = "recovery_agent_certificate_expiry_timestamp_seconds"


def test_without_the_endpoint_there_are_no_series_of_it(metrics: Telemetry) -> None:
    assert "recovery_agent" not in Scrape(metrics).text


def test_every_result_is_there_at_0(metrics: Telemetry) -> None:
    metrics.agents()
    scrape = Scrape(metrics)
    assert [scrape.value(REPORTS, result=result) for result in AGENT_RESULTS] == [0] * len(AGENT_RESULTS)
    assert scrape.value("recovery_agent_jobs") == 0
    assert scrape.value(EXPIRY) is None


def test_a_job_counts_once_however_often_it_reports(metrics: Telemetry) -> None:
    agents = metrics.agents()
    for name in ("a", "b", "a"):
        agents.answered(GroupKey("team", name), 0.02)
    agents.refused("standby")
    scrape = Scrape(metrics)
    assert scrape.value("recovery_agent_jobs") == 2
    assert scrape.value(REPORTS, result="accepted") == 3
    assert scrape.value(REPORTS, result="standby") == 1
    assert scrape.value("recovery_agent_report_seconds_count") == 3


def test_the_expiry_is_told_once_there_is_a_certificate(metrics: Telemetry) -> None:
    agents = metrics.agents()
    agents.follow(lambda: BEGIN + timedelta(days=9))
    assert Scrape(metrics).value(EXPIRY) == (BEGIN + timedelta(days=9)).timestamp()
