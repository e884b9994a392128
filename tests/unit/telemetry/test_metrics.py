"""What is observed as it happens: ended phases, recoveries, decisions, and the controller's own health."""

from datetime import UTC, datetime

import pytest

from recovery.controller.observer import ControllerObserver
from recovery.core.model.ledger import AttemptAction, Phase
from recovery.core.model.reason import Reason
from recovery.kube.observer import InformerObserver, RequestObserver
from recovery.ports import WatchEnd
from recovery.telemetry.event_loop_lag import measure_lag
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import KEY, Group, HeldStore, Scrape, SetClock

DECISIONS = "recovery_decisions_total"
SUPPRESSED = "recovery_actions_suppressed_total"

NAMES = {
    "build_info": "gauge",
    "job_info": "gauge",
    "job_progress_ratio": "gauge",
    "job_progress_timestamp_seconds": "gauge",
    "gpus_released": "gauge",
    "gpu_idle_by_class_seconds": "counter",
    "gpu_released_seconds": "counter",
    "incident_info": "gauge",
    "rendezvous_participants": "gauge",
    "fleet_incidents": "counter",
    "fleet_gpu_idle_seconds": "counter",
    "fleet_gpu_released_seconds": "counter",
    "fleet_group_restarts": "counter",
    "fleet_would_restart": "counter",
    "fleet_would_gpu_idle_seconds": "counter",
    "jobs": "gauge",
    "paused": "gauge",
    "nodes_quarantined_limit": "gauge",
    "missing_permissions": "gauge",
    "job_gpus": "gauge",
    "gpus_idle": "gauge",
    "gpus_not_started": "gauge",
    "group_nodes": "gauge",
    "group_nodes_wanted": "gauge",
    "group_reduced_start_timestamp_seconds": "gauge",
    "group_failed_growths": "gauge",
    "group_reduced_seconds": "counter",
    "gpu_gained_seconds": "counter",
    "unprotected_jobs": "gauge",
    "gpu_idle_seconds": "counter",
    "failures": "counter",
    "decisions": "counter",
    "actions_suppressed": "counter",
    "quarantine_refusals": "counter",
    "nodes_quarantined": "gauge",
    "node_suspicions": "gauge",
    "circuit_breaker_open": "gauge",
    "group_restarts": "counter",
    "phase_duration_seconds": "histogram",
    "incident_duration_seconds": "histogram",
    "rendezvous_duration_seconds": "histogram",
    "rendezvous_since_trigger_seconds": "histogram",
    "last_phase_duration_seconds": "gauge",
    "job_phase": "gauge",
    "job_standing": "gauge",
    "incident_start_timestamp_seconds": "gauge",
    "restart_budget_remaining": "gauge",
    "restart_budget_limit": "gauge",
    "job_crash_loop": "gauge",
    "proven_timestamp_seconds": "gauge",
    "proof_valid": "gauge",
    "reconcile_duration_seconds": "histogram",
    "reconcile_errors": "counter",
    "workqueue_depth": "gauge",
    "workqueue_queue_duration_seconds": "histogram",
    "leader": "gauge",
    "holds_for_another_controller": "gauge",
    "leader_transitions": "counter",
    "loss_wait_seconds": "histogram",
    "event_loop_lag_seconds": "histogram",
    "watch_restarts": "counter",
    "watch_last_event_timestamp_seconds": "gauge",
    "undecodable_objects": "gauge",
    "stale_watches": "gauge",
    "api_requests": "counter",
    "api_request_duration_seconds": "histogram",
}
"""The metrics of a process from its start, without those of admission and of the system."""


def test_it_is_what_controller_and_kube_report_to(metrics: Telemetry) -> None:
    observers: tuple[ControllerObserver, InformerObserver, RequestObserver] = (metrics, metrics, metrics)
    assert observers


def test_names_and_types_are_those_that_dashboards_rely_on(metrics: Telemetry) -> None:
    families = Scrape(metrics).families
    assert families == {f"recovery_{name}": kind for name, kind in NAMES.items()}


def test_no_series_tells_when_it_was_created(metrics: Telemetry, group: Group) -> None:
    group.fails()
    group.closes()
    assert "_created" not in Scrape(metrics).text


def test_no_histogram_and_no_metric_of_the_process_has_a_job_label(metrics: Telemetry, group: Group) -> None:
    group.fails()
    group.attempt()
    group.closes()
    histograms = [
        name for name, labels in Scrape(metrics).samples if name.endswith("_bucket") and "job_name" in dict(labels)
    ]
    assert histograms == []


def test_a_phase_is_observed_once_when_it_has_ended(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    def observed(phase: str) -> tuple[float | None, float | None]:
        scrape, name = Scrape(metrics), "recovery_phase_duration_seconds"
        labels = {"phase": phase, "scope": "group", "drill": "false"}
        return scrape.value(f"{name}_count", **labels), scrape.value(f"{name}_sum", **labels)

    assert observed("TearingDown") == (0, 0), "there before the first one, so that the first one is an increase"
    group.fails(ago=1.5)
    assert observed("Detected") == (1, 1.5)
    group.attempt()
    group.enters(Phase.TEARING_DOWN)
    clock.seconds = 4
    assert observed("TearingDown") == (0, 0)
    group.enters(Phase.SCHEDULING)
    assert observed("TearingDown") == (1, 4)
    group.closes()
    group.is_recorded()
    assert observed("TearingDown") == (1, 4)
    assert observed("Detected") == (1, 1.5)


def test_merged_phases_of_a_long_incident_are_not_observed_again(
    metrics: Telemetry, group: Group, clock: SetClock
) -> None:
    group.fails()
    for number in range(1, 200):
        clock.seconds = number
        group.enters(Phase.STARTING if number % 2 else Phase.SCHEDULING)
    counts = [
        Scrape(metrics).value("recovery_phase_duration_seconds_count", phase=phase, scope="group", drill="false") or 0
        for phase in ("Detected", "Decided", "Starting", "Scheduling")
    ]
    assert sum(counts) == 200


def test_a_recovery_is_observed_when_it_closes(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    group.fails(ago=2)
    group.attempt()
    clock.seconds = 40
    group.closes()
    group.is_recorded()
    scrape = Scrape(metrics)
    labels = {"failure_class": "Killed", "outcome": "Recovered", "handling": "automatic"}
    assert scrape.value("recovery_incident_duration_seconds_sum", **labels) == 42
    assert scrape.value("recovery_incident_duration_seconds_bucket", le="45.0", **labels) == 1
    assert scrape.value("recovery_incident_duration_seconds_bucket", le="30.0", **labels) == 0


def test_a_decision_is_counted_once(metrics: Telemetry, group: Group) -> None:
    group.fails()
    group.attempt()
    group.enters(Phase.TEARING_DOWN)
    group.attempt(reason=Reason.START_TIMEOUT)
    group.attempt(AttemptAction.NONE, reason=Reason.MEMBER_REPLACED)
    group.attempt(AttemptAction.ADOPTED, reason=Reason.PLATFORM_RESTART)
    group.closes()
    scrape = Scrape(metrics)

    def count(action: str, reason: str) -> float | None:
        return scrape.value(DECISIONS, action=action, reason=reason, mode="enforce")

    assert count("RecreateGroup", "DefaultRestart") == 1
    assert count("RecreateGroup", "StartTimeout") == 1
    assert count("None", "MemberReplaced") == 1
    assert count("Adopted", "PlatformRestart") == 1
    assert scrape.by(SUPPRESSED, "reason") == {}


def test_reconciles_and_the_queue(metrics: Telemetry) -> None:
    metrics.follow_queue(lambda: 3)
    metrics.queue_waited(0.2)
    metrics.reconcile_finished(KEY, 0.01, None)
    metrics.reconcile_finished(KEY, 0.02, "ConflictError")
    scrape = Scrape(metrics)
    assert scrape.value("recovery_workqueue_depth", name="group") == 3
    assert scrape.value("recovery_workqueue_queue_duration_seconds_sum", name="group") == 0.2
    assert scrape.value("recovery_reconcile_duration_seconds_count", controller="group") == 2
    assert scrape.value("recovery_reconcile_errors_total", controller="group") == 1


def test_requests_by_verb_resource_and_code(metrics: Telemetry) -> None:
    metrics.request_finished("patch", "recoverygroups/status", "200", 0.004)
    metrics.request_finished("patch", "recoverygroups/status", "409", 0.003)
    scrape = Scrape(metrics)
    labels = {"verb": "patch", "resource": "recoverygroups/status"}
    assert scrape.value("recovery_api_requests_total", code="409", **labels) == 1
    assert scrape.value("recovery_api_request_duration_seconds_bucket", le="0.005", **labels) == 2


def test_whether_this_process_leads(clock: SetClock) -> None:
    metrics = Telemetry(clock=clock, version="1.2.3")

    def standing() -> tuple[float | None, float | None]:
        scrape = Scrape(metrics)
        return scrape.value("recovery_leader"), scrape.value("recovery_leader_transitions_total")

    assert standing() == (0, 0)
    metrics.leadership_changed(leads=True)
    assert standing() == (1, 1)
    metrics.leadership_changed(leads=False)
    assert standing() == (0, 2)


def test_watches(clock: SetClock, metrics: Telemetry) -> None:
    metrics.watch_event("pods")
    metrics.watch_restarted("pods", WatchEnd.EXPIRED, "watch pods: too old resource version: 17 (4711)")
    metrics.watch_restarted("pods", WatchEnd.ENDED, "watch pods: the server ended the stream after 3 s")
    metrics.watch_restarted("pods", WatchEnd.UNREACHABLE, "watch pods: Cannot connect to host 10.0.0.1:443")
    scrape = Scrape(metrics)
    assert scrape.value("recovery_watch_last_event_timestamp_seconds", resource="pods") == clock.now().timestamp()
    assert scrape.by("recovery_watch_restarts_total", "reason") == {"Expired": 1, "Ended": 1, "Unreachable": 1}


async def test_the_event_loops_lag_is_what_a_sleep_overruns() -> None:
    class SlowClock(SetClock):
        async def sleep(self, seconds: float) -> None:
            self.seconds += seconds + 0.3

    class EnoughError(Exception):
        pass

    lags: list[float] = []

    def lagged(seconds: float) -> None:
        lags.append(seconds)
        if len(lags) == 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        await measure_lag(SlowClock(), lagged)
    assert lags == pytest.approx([0.3, 0.3])


def test_what_runs(metrics: Telemetry) -> None:
    assert Scrape(metrics).value("recovery_build_info", version="1.2.3") == 1


def test_objects_that_cannot_be_read_are_counted_by_resource_whoever_leads(
    metrics: Telemetry, store: HeldStore
) -> None:
    metrics.leadership_changed(leads=False)
    for pods in (2, 0):
        store.undecodable_objects = {"pods": pods, "nodes": 0}
        found = {
            dict(labels)["resource"]: value
            for (name, labels), value in Scrape(metrics).samples.items()
            if name == "recovery_undecodable_objects"
        }
        assert found == {"pods": pods, "nodes": 0}, "0 is told, so that an alert sees it end"


def test_stale_watches_are_told_by_resource_whoever_leads(metrics: Telemetry, store: HeldStore) -> None:
    metrics.leadership_changed(leads=False)
    store.undecodable_objects = {"pods": 0, "nodes": 0}
    for since, pods in (({"pods": datetime(2026, 11, 2, 8, tzinfo=UTC)}, 1), ({}, 0)):
        store.stale_since = since
        scrape = Scrape(metrics)
        assert scrape.value("recovery_stale_watches", resource="pods") == pods
        assert scrape.value("recovery_stale_watches", resource="nodes") == 0
