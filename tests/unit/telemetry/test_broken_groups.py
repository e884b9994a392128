"""A group that hangs between incidents idles its GPUs: in gauges at once, in counters as far as that is sure."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.decision.resuming import SETTLES_IN
from recovery.core.model.ledger import Outcome, Phase
from recovery.telemetry.idle_cells import BOOKED_WITHIN
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.test_fleet_totals import Fleet, counters, leader, told
from tests.unit.telemetry.world import Group, HeldStore, Scrape, SetClock

IDLE_SECONDS = "recovery_gpu_idle_seconds_total"
LAG = (SETTLES_IN + BOOKED_WITHIN).total_seconds()
"""Seconds. What still lasts counts only up to this long ago."""


@pytest.fixture
def fleet(clock: SetClock, store: HeldStore) -> Fleet:
    return Fleet(clock, store)


def left_hanging(clock: SetClock, group: Group, fleet: Fleet | None = None, *, gpus: int = 10) -> None:
    """An incident of 20 s that repaired nothing."""
    group.fails(gpus=gpus)
    clock.seconds += 20
    group.closes(Outcome.HELD)
    if fleet is not None:
        fleet.counts(group)
    group.is_recorded()
    group.hangs(gpus=gpus)


def test_its_gpus_are_idle_because_it_hangs(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    left_hanging(clock, group)
    scrape = Scrape(metrics)
    assert scrape.by("recovery_gpus_idle", "reason") == {"hung": 10}
    assert scrape.by("recovery_job_phase", "phase") == {"Healthy": 1}
    assert scrape.by("recovery_job_standing", "standing") == {"Broken": 1}
    group.hangs_no_more()
    scrape = Scrape(metrics)
    assert scrape.by("recovery_gpus_idle", "reason") == {}
    assert scrape.by("recovery_job_standing", "standing") == {"Met": 1}


def test_a_job_without_a_ledger_has_the_standing_unknown(metrics: Telemetry, group: Group) -> None:
    scrape = Scrape(metrics)
    assert scrape.by("recovery_job_standing", "standing") == {"Unknown": 1}
    assert scrape.of_job("recovery_job_standing", standing="Broken") is None


def test_its_seconds_run_from_where_the_incident_ended_and_stay_when_it_trains_again(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    left_hanging(clock, group)
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 200}, "the incident's"
    clock.seconds += LAG
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 200}, "it may have been over at once"
    clock.seconds += 600
    scrape = Scrape(metrics)
    assert scrape.by(IDLE_SECONDS, "reason") == {"hung": 6200}
    assert scrape.by("recovery_gpu_idle_by_class_seconds_total", "failure_class") == {"Killed": 6200}
    group.hangs_no_more(ago=LAG)
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 6200}
    clock.seconds += 100
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 6200}


def test_in_an_incident_its_phase_counts(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    left_hanging(clock, group)
    group.fails(gpus=10)
    group.attempt()
    group.enters(Phase.STARTING)
    assert Scrape(metrics).by("recovery_gpus_idle", "reason") == {"start": 10}


def test_the_fleet_counts_the_same_seconds_once_and_no_incident(
    clock: SetClock, metrics: Telemetry, fleet: Fleet, group: Group
) -> None:
    left_hanging(clock, group, fleet)
    clock.seconds += 600 + LAG
    assert told(metrics) == (1, 6200, 0), "from the ledger"
    group.hangs_no_more(ago=LAG)
    assert told(metrics) == (1, 6200, 0), "not in the totals yet"
    fleet.adds(*group.ledger.uncounted)
    assert told(metrics) == (1, 6200, 0), "in the totals, and still in the ledger"
    group.owes_nothing()
    assert told(metrics) == (1, 6200, 0)


def test_the_fleet_remembers_it_when_the_job_is_gone(
    clock: SetClock, store: HeldStore, metrics: Telemetry, fleet: Fleet, group: Group
) -> None:
    left_hanging(clock, group, fleet)
    clock.seconds += 600
    group.hangs_no_more()
    fleet.adds(*group.ledger.uncounted)
    store.groups.clear()
    store.snapshots.clear()
    assert told(leader(clock, store)) == (1, 6200, 0)


def test_without_a_config_a_process_counts_what_ends_while_it_leads(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    for number in (1, 2):
        left_hanging(clock, group)
        clock.seconds += 600
        group.hangs_no_more()
        assert told(metrics) == (number, 6200 * number, 0)
        group.owes_nothing()
        assert told(metrics) == (number, 6200 * number, 0)


def test_a_change_of_leader_lowers_no_counter(
    clock: SetClock, store: HeldStore, metrics: Telemetry, fleet: Fleet, group: Group
) -> None:
    left_hanging(clock, group, fleet)
    clock.seconds += 600.7 + LAG
    before = counters(metrics)
    group.hangs_no_more(ago=LAG)
    after = counters(leader(clock, store))
    assert set(after) == set(before)
    assert [each for each, value in before.items() if after[each] < value] == []


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["hang", "end", "leader", "scrape"]), st.floats(0, 100)), max_size=20))
def test_no_counter_goes_back_and_no_second_counts_twice(story: list[tuple[str, float]]) -> None:
    clock, store = SetClock(), HeldStore()
    fleet = Fleet(clock, store)
    leads, group = leader(clock, store), Group(clock, store)
    seen = [counters(leads)]
    for step, seconds in story:
        if step == "hang" and group.ledger.broken is None:
            left_hanging(clock, group, fleet)
        elif step == "end" and group.ledger.broken is not None:
            group.hangs_no_more()
            fleet.adds(*group.ledger.uncounted)
            group.owes_nothing()
        elif step == "leader":
            leads = leader(clock, store)
        clock.seconds += seconds
        seen.append(counters(leads))
        assert told(leads)[1] <= 10 * clock.seconds + 0.1
        assert told(leads)[1] == pytest.approx(sum(Scrape(leads).by(IDLE_SECONDS, "reason").values()))
    for before, after in pairwise(seen):
        assert [each for each, value in before.items() if after.get(each, 0.0) < value] == []
