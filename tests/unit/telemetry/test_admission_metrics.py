"""The metrics of the webhooks, of their serving certificate, and of permissions."""

import threading
from datetime import timedelta

from prometheus_client import generate_latest

from recovery.telemetry.catalogue.label_values import WEBHOOK_OUTCOMES
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import BEGIN, Scrape

REQUESTS = "recovery_admission_requests_total"
EXPIRY = "recovery_certificate_expiry_timestamp_seconds"


def test_without_admission_there_are_no_series_of_it(metrics: Telemetry) -> None:
    assert "admission" not in Scrape(metrics).text
    assert EXPIRY not in Scrape(metrics).text


def test_every_webhook_and_outcome_is_there_at_0(metrics: Telemetry) -> None:
    metrics.admission(["trainjobs", "prepare-trainjobs"])
    scrape = Scrape(metrics)
    for outcome in WEBHOOK_OUTCOMES:
        assert scrape.value(REQUESTS, webhook="trainjobs", outcome=outcome) == 0
    assert scrape.value("recovery_admission_up") == 0


def test_the_expiry_is_told_once_the_certificate_can_be_read(metrics: Telemetry) -> None:
    admission = metrics.admission([])
    assert Scrape(metrics).value(EXPIRY) is None
    admission.follow(lambda: True, lambda: BEGIN + timedelta(days=9))
    scrape = Scrape(metrics)
    assert scrape.value("recovery_admission_up") == 1
    assert scrape.value(EXPIRY) == (BEGIN + timedelta(days=9)).timestamp()


def test_reviews_in_other_threads_are_counted_while_it_is_scraped(metrics: Telemetry) -> None:
    admission = metrics.admission(["trainjobs"])

    def review() -> None:
        for _ in range(500):
            admission.reviewed("trainjobs", "allowed")

    threads = [threading.Thread(target=review) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        generate_latest(metrics.registry)
    for thread in threads:
        thread.join()
    assert Scrape(metrics).value(REQUESTS, webhook="trainjobs", outcome="allowed") == 2000


def test_each_missing_permission_is_a_series(metrics: Telemetry) -> None:
    assert "recovery_missing_permissions{" not in Scrape(metrics).text
    metrics.permissions_missing([("patch", "nodes"), ("get", "leases.coordination.k8s.io")])
    assert Scrape(metrics).value("recovery_missing_permissions", verb="patch", resource="nodes") == 1


def test_the_system_tells_of_the_process(metrics: Telemetry) -> None:
    metrics.follow_process()
    scrape = Scrape(metrics)
    assert (scrape.value("process_resident_memory_bytes") or 0) > 1_000_000
    assert (scrape.value("process_open_fds") or 0) > 0
