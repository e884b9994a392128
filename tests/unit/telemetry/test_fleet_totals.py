"""The fleet's counters count each incident once, under any leader and in any order of writes in the caches."""

import msgspec
import pytest

from recovery.core.decision.resuming import SETTLES_IN
from recovery.core.fleet.totals import with_closed
from recovery.core.incident.closed_incident import totals_of
from recovery.core.model.config import ConfigFacts, ConfigSpec
from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.fleet_ledger import FleetLedger, FleetTotals
from recovery.core.model.ledger import IncidentTotals, Outcome, Phase
from recovery.telemetry.idle_cells import BOOKED_WITHIN
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import KEY, UID, Group, HeldStore, Scrape, SetClock

INCIDENTS = "recovery_fleet_incidents_total"
IDLE = "recovery_fleet_gpu_idle_seconds_total"
RESTARTS = "recovery_fleet_group_restarts_total"
LAG = (SETTLES_IN + BOOKED_WITHIN).total_seconds()
"""Seconds. What still lasts counts only up to this long ago."""


class Fleet:
    """The RecoveryConfig, to which closed incidents are added as the controller does it."""

    def __init__(self, clock: SetClock, store: HeldStore) -> None:
        self._clock = clock
        self._store = store
        self.totals = FleetTotals()
        self._show()

    def counts(self, group: Group) -> None:
        """Add the closed incident of the group to the totals."""
        assert group.ledger.incident is not None
        self.adds(totals_of(UID, group.ledger.incident))

    def adds(self, *closed: IncidentTotals) -> None:
        self.totals = with_closed(self.totals, closed, self._clock.now(), may_return=lambda _: False)
        self._show()

    def _show(self) -> None:
        self._store.config_facts = ConfigFacts("default", "c", 1, ConfigSpec(), fleet=FleetLedger(totals=self.totals))


@pytest.fixture
def fleet(clock: SetClock, store: HeldStore) -> Fleet:
    return Fleet(clock, store)


def leader(clock: SetClock, store: HeldStore) -> Telemetry:
    telemetry = Telemetry(clock=clock, version="1.2.3")
    telemetry.follow(store)
    telemetry.leadership_changed(leads=True)
    return telemetry


def told(metrics: Telemetry) -> tuple[float, float, float]:
    """Incidents, idle GPU-seconds, restarts."""
    scrape = Scrape(metrics)
    incidents, idle, restarts = (
        sum(value for (name, _), value in scrape.samples.items() if name == each)
        for each in (INCIDENTS, IDLE, RESTARTS)
    )
    return incidents, idle, restarts


def counters(metrics: Telemetry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All counters of jobs and of the fleet."""
    return {
        (name, labels): value
        for (name, labels), value in Scrape(metrics).samples.items()
        if name.endswith("_total") and (name.startswith("recovery_fleet_") or "job_name" in dict(labels))
    }


def test_all_series_are_there_at_0_before_the_first_incident(metrics: Telemetry, fleet: Fleet) -> None:
    scrape = Scrape(metrics)
    assert scrape.value(INCIDENTS, failure_class="NodeLost", outcome="Recovered", handling="automatic") == 0
    assert scrape.value(IDLE, reason="schedule", failure_class="NodeLost", badput="other") is None
    recovery = "infrastructure_recovery_from_disruption"
    assert scrape.value(IDLE, reason="schedule", failure_class="NodeLost", badput=recovery) == 0
    assert scrape.value(RESTARTS, scope="group") == 0
    assert scrape.value("recovery_fleet_gpu_released_seconds_total") == 0


def test_an_incident_is_told_once_while_it_moves_from_its_ledger_to_the_totals(
    clock: SetClock, metrics: Telemetry, fleet: Fleet, group: Group
) -> None:
    group.fails(gpus=10)
    group.attempt()
    group.enters(Phase.STARTING)
    clock.seconds = 30 + LAG
    assert told(metrics) == (0, 300, 1)
    group.closes(ago=LAG)
    assert told(metrics) == (1, 300, 1), "closed, and not in the totals yet"
    fleet.counts(group)
    assert told(metrics) == (1, 300, 1), "in the totals, and still in its ledger"
    group.is_recorded()
    assert told(metrics) == (1, 300, 1)


def test_a_cache_that_lags_makes_no_counter_fall_and_counts_nothing_twice(
    clock: SetClock, metrics: Telemetry, store: HeldStore, fleet: Fleet, group: Group
) -> None:
    group.fails(gpus=10)
    group.attempt()
    clock.seconds = 30
    open_ = store.groups[UID]
    group.closes()
    fleet.counts(group)
    closed = store.groups[UID]
    store.groups[UID] = open_  # the cache of ledgers is behind that of the RecoveryConfig
    assert told(metrics) == (1, 300, 1)
    store.groups[UID] = closed
    assert told(metrics) == (1, 300, 1)
    group.is_recorded()
    counted, store.config_facts = store.config_facts, ConfigFacts("default", "c", 1, ConfigSpec())  # the other way
    assert told(metrics) == (1, 300, 1)
    store.config_facts = counted
    assert told(metrics) == (1, 300, 1)


def test_what_could_not_be_added_to_the_totals_yet_is_told_from_the_ledger(
    clock: SetClock, metrics: Telemetry, store: HeldStore, fleet: Fleet, group: Group
) -> None:
    group.fails(gpus=10)
    clock.seconds = 7
    group.closes(Outcome.OBSERVED)
    assert group.ledger.incident is not None
    owed = totals_of(UID, group.ledger.incident)
    group.is_recorded()
    known = store.groups[UID]
    store.groups[UID] = msgspec.structs.replace(known, ledger=msgspec.structs.replace(known.ledger, uncounted=(owed,)))
    assert told(metrics) == (1, 70, 0)
    fleet.adds(owed)
    assert told(metrics) == (1, 70, 0)


def test_the_fleet_remembers_what_the_job_has_cost(
    clock: SetClock, metrics: Telemetry, store: HeldStore, fleet: Fleet, group: Group
) -> None:
    group.fails(gpus=10)
    group.attempt()
    clock.seconds = 30
    group.closes()
    fleet.counts(group)
    store.groups.clear()
    del store.snapshots[KEY]
    assert told(metrics) == (1, 300, 1)
    assert KEY.name not in Scrape(metrics).text


def test_without_a_config_a_process_counts_what_ends_while_it_leads(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    for number in (1, 2):
        group.fails(gpus=10)
        group.attempt()
        clock.seconds += 30
        group.closes()
        assert told(metrics) == (number, 300 * number, number)
        group.is_recorded()
        assert told(metrics) == (number, 300 * number, number)


def test_by_reason_by_class_and_of_the_fleet_are_the_same_seconds(
    clock: SetClock, metrics: Telemetry, fleet: Fleet, group: Group
) -> None:
    group.fails(ago=3, gpus=10)
    group.attempt()
    group.enters(Phase.STARTING)
    clock.seconds = 30.7 + LAG
    scrape = Scrape(metrics)
    by_reason = sum(scrape.by("recovery_gpu_idle_seconds_total", "reason").values())
    assert scrape.by("recovery_gpu_idle_by_class_seconds_total", "failure_class") == {"Killed": by_reason}
    assert told(metrics)[1] == pytest.approx(by_reason)
    assert by_reason == pytest.approx(337)


def test_a_change_of_leader_in_an_incident_lowers_no_counter_and_counts_nothing_twice(
    clock: SetClock, store: HeldStore, metrics: Telemetry, fleet: Fleet, group: Group
) -> None:
    group.fails(gpus=10)
    group.attempt()
    group.enters(Phase.SCHEDULING)
    clock.seconds = 12 + LAG
    before = counters(metrics)
    metrics.leadership_changed(leads=False)
    clock.seconds = 15 + LAG
    new = leader(clock, store)
    after = counters(new)
    assert set(after) == set(before)
    assert all(after[each] >= value for each, value in before.items())
    assert told(new) == (0, 150, 1)
    assert Scrape(new).of_job("recovery_gpus_idle", reason="schedule") == 10, "right at its first scrape"
    group.closes(ago=LAG)
    fleet.counts(group)
    assert told(new) == (1, 150, 1)
    assert counters(metrics) == {}, "the old leader tells nothing any more"


def test_a_change_of_leader_right_after_an_incident_lowers_no_counter(
    clock: SetClock, store: HeldStore, metrics: Telemetry, fleet: Fleet, group: Group
) -> None:
    """The last scrape of the old leader was before it read that the ranks were Ready. Prometheus would treat a fall as
    a restart, and count all that the job has ever cost a second time."""
    group.fails(gpus=10)
    group.attempt()
    group.enters(Phase.STARTING)
    clock.seconds = 40
    before = counters(metrics)
    group.closes(ago=LAG)
    fleet.counts(group)
    group.is_recorded()
    after = counters(leader(clock, store))
    assert [each for each, value in before.items() if after[each] < value] == []


def test_an_incident_between_the_last_scrape_of_one_leader_and_the_first_of_the_next_is_an_increase(
    clock: SetClock, store: HeldStore, metrics: Telemetry, fleet: Fleet, group: Group
) -> None:
    before = counters(metrics)
    metrics.leadership_changed(leads=False)
    clock.seconds = 5
    group.fails(gpus=10)
    group.attempt()
    clock.seconds = 20
    group.closes()
    fleet.counts(group)
    group.is_recorded()
    after = counters(leader(clock, store))
    grown = {
        (name, dict(labels).get("failure_class"))
        for (name, labels), value in after.items()
        if value > before[name, labels]
    }
    assert grown >= {(INCIDENTS, "Killed"), ("recovery_failures_total", "Killed"), (IDLE, "Killed"), (RESTARTS, None)}
    assert set(after) == set(before), "each series was there before, so the increase is seen"


def test_a_leader_that_leads_again_does_not_tell_less_than_before(
    clock: SetClock, store: HeldStore, metrics: Telemetry, fleet: Fleet, group: Group
) -> None:
    group.fails(gpus=10)
    clock.seconds = 10.9 + LAG
    before = counters(metrics)
    metrics.leadership_changed(leads=False)
    group.closes(Outcome.OBSERVED, ago=0.9 + LAG)
    fleet.counts(group)
    metrics.leadership_changed(leads=True)
    after = counters(metrics)
    assert all(after[each] >= value for each, value in before.items())


def test_what_enforce_would_have_done_is_told_once_and_outlives_the_job(
    metrics: Telemetry, store: HeldStore, fleet: Fleet, group: Group
) -> None:
    group.fails(gpus=10)
    group.closes(Outcome.OBSERVED)
    assert group.ledger.incident is not None
    estimate = EnforceEstimate(restarts=1, idle_gpu_seconds=30.0, platform_idle_gpu_seconds=6000.0)
    owed = msgspec.structs.replace(totals_of(UID, group.ledger.incident), enforce_estimate=estimate)
    group.is_recorded()
    known = store.groups[UID]
    store.groups[UID] = msgspec.structs.replace(known, ledger=msgspec.structs.replace(known.ledger, uncounted=(owed,)))
    assert would(metrics) == (1, 30, 6000)
    fleet.adds(owed)
    assert would(metrics) == (1, 30, 6000)
    store.groups.clear()
    assert would(metrics) == (1, 30, 6000)


def would(metrics: Telemetry) -> tuple[float, float, float]:
    """Restarts, and idle GPU-seconds with Enforce and without."""
    scrape, idle = Scrape(metrics), "recovery_fleet_would_gpu_idle_seconds_total"
    restarts = scrape.value("recovery_fleet_would_restart_total")
    enforce, platform = scrape.value(idle, by="enforce"), scrape.value(idle, by="platform")
    assert restarts is not None
    assert enforce is not None
    assert platform is not None
    return restarts, enforce, platform
