"""The metrics of a group with fewer nodes than wanted: its size, since when, and what it gained by that."""

from datetime import timedelta

import pytest

from recovery.core.model.group_size import ElasticState
from recovery.core.model.ledger import Phase
from recovery.telemetry.idle_cells import BOOKED_WITHIN
from recovery.telemetry.observer import Telemetry
from recovery.telemetry.smaller_groups import FAILURES_SEEN_WITHIN
from tests.unit.telemetry.world import BEGIN, Group, HeldStore, Scrape, SetClock

GAUGES = (
    "recovery_group_nodes",
    "recovery_group_nodes_wanted",
    "recovery_group_reduced_start_timestamp_seconds",
    "recovery_group_failed_growths",
)
BEHIND = (FAILURES_SEEN_WITHIN + BOOKED_WITHIN).total_seconds()
"""Seconds. What still runs counts only up to this long ago."""


def smaller(*, running_for: float | None = 0.0, nodes: int = 12, failed_growths: int = 0) -> ElasticState:
    """A group that wants 16 nodes of 8 GPUs, smaller since a minute before BEGIN. `running_for` None: not running."""
    return ElasticState(
        nodes=nodes,
        wanted_nodes=16,
        since=BEGIN - timedelta(minutes=1),
        gpus=8 * nodes,
        running_since=None if running_for is None else BEGIN - timedelta(seconds=running_for),
        failed_growths=failed_growths,
    )


def sizes_in(scrape: Scrape) -> list[float | None]:
    return [scrape.of_job(name) for name in GAUGES]


def counted(metrics: Telemetry) -> tuple[float | None, float | None]:
    scrape = Scrape(metrics)
    names = ("recovery_group_reduced_seconds_total", "recovery_gpu_gained_seconds_total")
    seconds, gpu_seconds = (scrape.of_job(name) for name in names)
    return seconds, gpu_seconds


def test_a_group_with_all_of_its_nodes_has_gained_nothing(metrics: Telemetry, group: Group) -> None:
    assert sizes_in(Scrape(metrics)) == [None, None, None, None]
    assert counted(metrics) == (0, 0)


def test_the_size_is_told_while_it_is_smaller(metrics: Telemetry, group: Group) -> None:
    group.has_size(smaller(failed_growths=3))
    assert sizes_in(Scrape(metrics)) == [12, 16, BEGIN.timestamp() - 60, 3]
    group.has_size(None)
    assert sizes_in(Scrape(metrics)) == [None, None, None, None]


def test_it_is_told_through_the_restart_by_which_the_group_grows(metrics: Telemetry, group: Group) -> None:
    group.has_size(smaller())
    group.fails()
    group.has_size(smaller(nodes=16, running_for=None))
    group.enters(Phase.STARTING)
    assert sizes_in(Scrape(metrics))[:2] == [16, 16]


def test_a_group_that_someone_has_suspended_is_no_smaller_one(metrics: Telemetry, group: Group) -> None:
    group.has_size(smaller(running_for=None))
    assert sizes_in(Scrape(metrics)) == [None, None, None, None]


def test_what_it_runs_counts_a_little_late_and_in_full_when_it_is_booked(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    group.has_size(smaller())
    clock.seconds = BEHIND
    assert counted(metrics) == (0, 0), "it may have failed at once"
    clock.seconds = BEHIND + 100
    assert counted(metrics) == (100, 100 * 96)
    group.ends_what_it_ran(ago=5)
    assert counted(metrics) == (BEHIND + 95, (BEHIND + 95) * 96)
    clock.seconds += 1000
    assert counted(metrics) == (BEHIND + 95, (BEHIND + 95) * 96)


def test_a_failure_that_is_seen_in_time_lowers_no_counter_also_of_the_next_leader(
    clock: SetClock, store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    group.has_size(smaller())
    clock.seconds = 1000
    before = counted(metrics)
    group.ends_what_it_ran(ago=BEHIND)
    other = Telemetry(clock=clock, version="1.2.3")
    other.follow(store)
    other.leadership_changed(leads=True)
    assert before == counted(metrics) == counted(other)


def test_a_failure_that_is_seen_very_late_lowers_no_counter_of_the_same_leader(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    group.has_size(smaller())
    clock.seconds = 1000
    before = counted(metrics)
    group.ends_what_it_ran(ago=600)
    assert counted(metrics) == before
    group.has_size(smaller(running_for=-1000))
    clock.seconds += BEHIND + 600 - BEHIND - 1
    assert counted(metrics) == before, "the seconds told too early are not told again"


@pytest.mark.parametrize("nodes", [1, 3, 7])
def test_no_rounding_lets_a_counter_fall(clock: SetClock, metrics: Telemetry, group: Group, nodes: int) -> None:
    group.has_size(smaller(nodes=nodes, running_for=0.1234567))
    clock.seconds = BEHIND + 100.0005
    before = counted(metrics)
    group.ends_what_it_ran(ago=BEHIND)
    after = counted(metrics)
    assert all(was is not None and now is not None and now >= was for was, now in zip(before, after, strict=True))
