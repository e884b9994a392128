"""No counter of GPU-seconds runs ahead of what the ledger will book, so that it does not fall with the next leader."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.incident import phases
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import Plan
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.fleets import snapshot_of
from tests.unit.telemetry.world import BEGIN, KEY, Group, HeldStore, Scrape, SetClock, workload

OF_JOB = "recovery_gpu_idle_seconds_total"
OF_FLEET = "recovery_fleet_gpu_idle_seconds_total"
RANKS = 2
GPUS = 10


def idle(metrics: Telemetry) -> dict[str, float]:
    """Idle GPU-seconds by reason. Those of the only job and those of the fleet are the same."""
    scrape = Scrape(metrics)
    told = scrape.by(OF_JOB, "reason")
    of_fleet: dict[str, float] = {}
    for (name, labels), value in scrape.samples.items():
        if name == OF_FLEET and value:
            of_fleet[dict(labels)["reason"]] = value
    assert told == of_fleet
    return told


def decides(metrics: Telemetry, group: Group, after: Ledger) -> None:
    metrics.decided(KEY, group.ledger, Plan(ledger=after, reason=Reason.DEFAULT_RESTART, message=""))


def shows_ready(store: HeldStore, at: float, *, count: int = RANKS) -> None:
    """The cluster has that many members that became Ready at that second; the others are not."""
    snapshot = snapshot_of(KEY, RANKS)
    ready_since = BEGIN + timedelta(seconds=at)
    pods = tuple(
        msgspec.structs.replace(pod, ready=number < count, ready_since=ready_since)
        for number, pod in enumerate(snapshot.pods)
    )
    store.snapshots[KEY] = msgspec.structs.replace(snapshot, workload=workload(), pods=pods)


def new_leader(clock: SetClock, store: HeldStore) -> Telemetry:
    other = Telemetry(clock=clock, version="1.2.3")
    other.follow(store)
    other.leadership_changed(leads=True)
    return other


def test_a_phase_accrues_no_further_than_to_the_decision_that_ends_it(
    clock: SetClock, store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    """Its write takes seconds, and this leader does not live to see it. The next one finds it in the ledger."""
    group.fails(gpus=GPUS)
    group.attempt()
    clock.seconds = 3
    after = phases.enter(group.ledger, Phase.TEARING_DOWN, clock.now())
    decides(metrics, group, after)
    clock.seconds = 7
    assert idle(metrics) == {"hung": 3 * GPUS}
    group.writes(after)
    assert idle(new_leader(clock, store)) == {"hung": 3 * GPUS, "teardown": 4 * GPUS}
    assert idle(metrics) == {"hung": 3 * GPUS, "teardown": 4 * GPUS}


LASTING = sorted(set(Phase) - {Phase.HEALTHY, Phase.DETECTED})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LASTING), st.floats(0, 50), st.floats(0, 3)), max_size=12))
def test_the_next_leader_never_tells_less(story: list[tuple[Phase, float, float]]) -> None:
    """Not by the least fraction: Prometheus takes any fall for a counter that begins again at 0."""
    clock, store = SetClock(), HeldStore()
    group = Group(clock, store)
    leader = new_leader(clock, store)
    group.fails(ago=1.2345678, gpus=GPUS)
    group.attempt()
    for phase, lasts_seconds, write_seconds in story:
        clock.seconds += lasts_seconds
        after = phases.enter(group.ledger, phase, clock.now())
        decides(leader, group, after)
        clock.seconds += write_seconds
        told = idle(leader)
        group.writes(after)
        leader = new_leader(clock, store)
        now = idle(leader)
        assert all(now[reason] >= seconds for reason, seconds in told.items())


def test_a_phase_whose_end_could_not_be_written_goes_on(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    group.fails(gpus=GPUS)
    group.attempt()
    clock.seconds = 3
    decides(metrics, group, phases.enter(group.ledger, Phase.TEARING_DOWN, clock.now()))
    clock.seconds = 7
    decides(metrics, group, group.ledger)
    assert sum(idle(metrics).values()) == 7 * GPUS


def test_an_end_holds_until_the_cache_shows_it(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    """The controller decides on what it has written itself; the cache of the metrics may be older."""
    group.fails(gpus=GPUS)
    group.attempt()
    clock.seconds = 3
    after = phases.enter(group.ledger, Phase.TEARING_DOWN, clock.now())
    decides(metrics, group, after)
    metrics.decided(KEY, after, Plan(ledger=after, reason=Reason.DEFAULT_RESTART, message=""))
    clock.seconds = 7
    assert sum(idle(metrics).values()) == 3 * GPUS


def test_the_first_scrape_of_a_leader_does_not_count_what_a_group_trained_while_nobody_led(
    clock: SetClock, store: HeldStore, group: Group
) -> None:
    """It comes before the reconcile that ends the incident at the date of the last Ready."""
    group.fails(gpus=GPUS)
    group.attempt()
    group.enters(Phase.RENDEZVOUS)
    clock.seconds = 20
    shows_ready(store, 5)
    told = idle(new_leader(clock, store))
    assert told == {"rendezvous": 6 * GPUS}, "Ready is written in whole seconds, so up to a second later"
    group.closes(ago=20 - 6)
    assert idle(new_leader(clock, store)) == told


@pytest.mark.parametrize(
    ("phase", "ready_at", "count"),
    [
        pytest.param(Phase.RENDEZVOUS, 5, RANKS - 1, id="not all are Ready"),
        pytest.param(Phase.DECIDED, -60, RANKS, id="they were Ready before and hang"),
        pytest.param(Phase.RESUMING, 0, RANKS, id="what is waited for is progress"),
    ],
)
def test_a_group_that_is_not_whole_again_idles_on(
    clock: SetClock, store: HeldStore, metrics: Telemetry, group: Group, phase: Phase, ready_at: float, count: int
) -> None:
    group.fails(gpus=GPUS)
    group.attempt()
    group.enters(phase)
    shows_ready(store, ready_at, count=count)
    clock.seconds = 20
    assert sum(idle(metrics).values()) == 20 * GPUS
