"""Drills in the metrics: beside the failures, never among them."""

from recovery.core.decision.resuming import SETTLES_IN
from recovery.core.fleet.totals import with_closed
from recovery.core.incident.closed_incident import totals_of
from recovery.core.model.config import ConfigFacts, ConfigSpec
from recovery.core.model.drill import DrillRef
from recovery.core.model.fleet_ledger import FleetLedger, FleetTotals
from recovery.core.model.ledger import Phase
from recovery.telemetry.idle_cells import BOOKED_WITHIN
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import UID, Group, HeldStore, Scrape, SetClock

LAG = (SETTLES_IN + BOOKED_WITHIN).total_seconds()
"""Seconds. What still lasts counts only up to this long ago."""


def drilled(group: Group) -> None:
    """A drill has made a member fail, and the group is restarted without a charge."""
    group.fails(gpus=10, drill=DrillRef("lose-a-rank-x7k2p", "uid-drill"))
    group.attempt(free_of_charge=True)
    group.enters(Phase.STARTING)


def test_a_job_without_a_drill_has_no_series_of_drills(metrics: Telemetry, group: Group) -> None:
    group.fails()
    scrape = Scrape(metrics)
    assert scrape.of_job("recovery_failures_total", failure_class="Drill") is None
    assert scrape.of_job("recovery_gpu_idle_by_class_seconds_total", failure_class="Drill") is None
    assert scrape.of_job("recovery_gpu_idle_seconds_total", reason="drill", badput="other") is None


def test_the_incident_of_a_drill_counts_as_a_drill_while_it_is_open(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    drilled(group)
    clock.seconds = 30 + LAG
    scrape = Scrape(metrics)
    assert scrape.by("recovery_failures_total", "failure_class") == {"Drill": 1}
    assert scrape.by("recovery_gpu_idle_by_class_seconds_total", "failure_class") == {"Drill": 300}
    assert scrape.by("recovery_gpu_idle_seconds_total", "reason") == {"drill": 300}
    assert scrape.by("recovery_incident_info", "failure_class") == {"Drill": 1}
    assert scrape.of_job("recovery_group_restarts_total", scope="group") == 0
    assert scrape.of_job("recovery_gpus_idle", reason="start") == 10, "its GPUs are idle all the same"


def test_it_counts_the_same_in_its_ledger_and_in_the_totals_of_the_fleet(
    clock: SetClock, metrics: Telemetry, store: HeldStore, group: Group
) -> None:
    def told() -> tuple[object, ...]:
        scrape = Scrape(metrics)
        return (
            scrape.by("recovery_fleet_incidents_total", "failure_class"),
            scrape.by("recovery_fleet_gpu_idle_seconds_total", "reason"),
            scrape.value("recovery_fleet_group_restarts_total", scope="group"),
        )

    store.config_facts = ConfigFacts("default", "c", 1, ConfigSpec(), fleet=FleetLedger())
    drilled(group)
    clock.seconds = 30
    group.closes()
    assert told() == ({"Drill": 1}, {"drill": 300}, 0)
    assert group.ledger.incident is not None
    totals = with_closed(
        FleetTotals(), [totals_of(UID, group.ledger.incident)], clock.now(), may_return=lambda _: False
    )
    store.config_facts = ConfigFacts("default", "c", 1, ConfigSpec(), fleet=FleetLedger(totals=totals))
    group.is_recorded()
    assert told() == ({"Drill": 1}, {"drill": 300}, 0)


def test_its_durations_are_apart_from_those_of_failures(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    drilled(group)
    clock.seconds = 40
    group.closes()
    scrape = Scrape(metrics)
    labels = {"outcome": "Recovered", "handling": "automatic"}
    assert scrape.value("recovery_incident_duration_seconds_count", failure_class="Drill", **labels) == 1
    assert scrape.value("recovery_incident_duration_seconds_count", failure_class="Killed", **labels) is None
    phases = "recovery_phase_duration_seconds_sum"
    assert scrape.value(phases, phase="Starting", scope="group", drill="true") == 40
    assert scrape.value(phases, phase="Starting", scope="group", drill="false") == 0


def test_a_failure_within_a_drill_is_a_restart_that_counts(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    drilled(group)
    group.attempt()
    assert group.ledger.totals.restarts == 2
    assert Scrape(metrics).of_job("recovery_group_restarts_total", scope="group") == 1
