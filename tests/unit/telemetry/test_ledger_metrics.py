"""The metrics that follow from the ledgers: always equal to them, never decreasing, and gone with them."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.decision.resuming import OUTLIVES_IN, SETTLES_IN
from recovery.core.model.facts import Snapshot
from recovery.core.model.group_totals import BudgetState, Totals
from recovery.core.model.ledger import SCHEMA_VERSION, AttemptAction, Outcome, Phase
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.spec import BudgetSpec, Mode, PolicySpec
from recovery.telemetry.idle_cells import BOOKED_WITHIN
from recovery.telemetry.jobs_found import FoundJobs
from recovery.telemetry.ledger_metrics import LedgerCollector
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import BEGIN, KEY, UID, Group, HeldStore, Scrape, SetClock, pod, workload

IDLE_SECONDS = "recovery_gpu_idle_seconds_total"
LAG = (SETTLES_IN + BOOKED_WITHIN).total_seconds()
"""Seconds. What still lasts counts only up to this long ago."""


def total(metrics: Telemetry) -> float:
    return sum(Scrape(metrics).by(IDLE_SECONDS, "reason").values())


def test_a_job_without_a_recovery_group_has_no_series(metrics: Telemetry) -> None:
    assert KEY.name not in Scrape(metrics).text


def test_the_series_of_a_job_end_with_its_recovery_group(store: HeldStore, metrics: Telemetry, group: Group) -> None:
    group.fails()
    assert KEY.name in Scrape(metrics).text
    store.groups.clear()
    assert KEY.name not in Scrape(metrics).text


def test_a_healthy_group_idles_nothing(metrics: Telemetry, group: Group) -> None:
    scrape = Scrape(metrics)
    assert scrape.by("recovery_gpus_idle", "reason") == {}
    assert scrape.of_job("recovery_gpus_idle", reason="hung") == 0
    assert scrape.by("recovery_job_phase", "phase") == {"Healthy": 1}
    assert scrape.of_job("recovery_incident_start_timestamp_seconds") is None


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (Phase.DECIDED, "decide"),
        (Phase.TEARING_DOWN, "teardown"),
        (Phase.BACKOFF, "backoff"),
        (Phase.SCHEDULING, "schedule"),
        (Phase.STARTING, "start"),
        (Phase.RENDEZVOUS, "rendezvous"),
        (Phase.HELD, "hung"),
    ],
)
def test_all_gpus_of_the_group_are_idle_for_the_reason_of_its_phase(
    metrics: Telemetry, group: Group, phase: Phase, reason: str
) -> None:
    group.fails(gpus=16)
    group.attempt()
    group.enters(phase)
    scrape = Scrape(metrics)
    assert scrape.by("recovery_gpus_idle", "reason") == {reason: 16}
    assert scrape.by("recovery_job_phase", "phase") == {phase: 1}


@pytest.mark.parametrize("action", [None, AttemptAction.NONE])
def test_a_group_for_which_nothing_is_done_hangs(
    metrics: Telemetry, group: Group, action: AttemptAction | None
) -> None:
    group.fails(gpus=16)
    if action is not None:
        group.attempt(action)
    assert Scrape(metrics).by("recovery_gpus_idle", "reason") == {"hung": 16}


def test_idle_seconds_run_while_a_phase_runs_and_stay_when_it_is_over(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    group.fails(ago=2, gpus=10)
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"detect": 20}, "booked as soon as it is over"
    group.attempt()
    group.enters(Phase.TEARING_DOWN)
    clock.seconds = LAG
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"detect": 20}, "it may have been over at once"
    clock.seconds = LAG + 3
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"detect": 20, "teardown": 30}
    group.closes()
    group.is_recorded()
    booked = {"detect": 20, "teardown": 10 * (LAG + 3)}
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == booked
    clock.seconds = 100
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == booked


def test_seconds_of_a_decision_without_a_action_are_told_as_hung_before_and_after_they_are_booked(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    group.fails(gpus=10, mode="Observe")
    clock.seconds = 60 + LAG
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 600}
    clock.seconds = 60
    group.attempt(AttemptAction.ADOPTED)
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 600}
    group.enters(Phase.TEARING_DOWN)
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 600}
    group.closes(Outcome.OBSERVED)
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 600}


def test_the_wait_for_progress_idles_for_a_reason_of_its_own(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    group.fails(gpus=10)
    group.attempt()
    group.enters(Phase.RESUMING)
    clock.seconds = 30
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"resume": 10 * (30 - LAG)}
    assert Scrape(metrics).by("recovery_gpus_idle", "reason") == {"resume": 10}
    group.closes()
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"resume": 300}


def test_an_end_that_is_dated_before_the_last_scrape_lowers_no_counter_also_of_the_next_leader(
    clock: SetClock, store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    group.fails(gpus=10)
    group.attempt()
    group.enters(Phase.STARTING)
    clock.seconds = 40
    before = total(metrics)
    group.closes(ago=LAG)
    booked = sum(group.ledger.totals.idle_gpu_seconds.values())
    assert before == booked == total(metrics)
    other = Telemetry(clock=clock, version="1.2.3")
    other.follow(store)
    other.leadership_changed(leads=True)
    assert total(other) == booked


def test_an_end_that_is_read_very_late_lowers_no_counter_of_the_same_leader(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    """The API server was slow: the read took longer than `BOOKED_WITHIN`."""
    group.fails(gpus=10)
    group.attempt()
    group.enters(Phase.STARTING)
    clock.seconds = 40.8
    ahead = 10 * (40.8 - LAG)
    assert total(metrics) == pytest.approx(ahead)
    group.closes(ago=LAG + 0.8)
    assert group.ledger.totals.idle_gpu_seconds["Starting"] == pytest.approx(ahead - 8)
    assert total(metrics) == pytest.approx(ahead)
    group.is_recorded()
    group.fails(gpus=10)
    group.attempt()
    group.enters(Phase.STARTING)
    clock.seconds += LAG + 0.5
    assert total(metrics) == pytest.approx(ahead), "the seconds told too early are not told again"
    clock.seconds += 1
    assert total(metrics) == pytest.approx(ahead + 7)


def test_a_job_that_is_held_for_an_error_may_train_for_long_before_that_is_believed(
    clock: SetClock, metrics: Telemetry, group: Group
) -> None:
    group.fails(gpus=10)
    group.enters(Phase.HELD)
    clock.seconds = LAG + 1
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 10}
    group.is_held_for_an_error()
    clock.seconds = (OUTLIVES_IN + BOOKED_WITHIN).total_seconds() + 2
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {"hung": 20}


def test_a_new_leader_tells_the_same(clock: SetClock, store: HeldStore, metrics: Telemetry, group: Group) -> None:
    group.fails(ago=1)
    group.attempt()
    group.enters(Phase.SCHEDULING)
    clock.seconds = 7
    other = Telemetry(clock=clock, version="1.2.3")
    other.follow(store)
    other.leadership_changed(leads=True)
    told = {key: value for key, value in Scrape(metrics).samples.items() if "job_name" in dict(key[1])}
    assert told == {key: value for key, value in Scrape(other).samples.items() if "job_name" in dict(key[1])}


def test_only_the_leader_tells_of_the_ledgers(
    clock: SetClock, store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    standby = Telemetry(clock=clock, version="1.2.3")
    standby.follow(store)
    group.fails(gpus=10)
    group.attempt()
    clock.seconds = 3

    def restarts() -> list[float | None]:
        return [Scrape(each).of_job("recovery_group_restarts_total", scope="group") for each in (metrics, standby)]

    assert restarts() == [1, None]
    metrics.leadership_changed(leads=False)
    standby.leadership_changed(leads=True)
    assert restarts() == [None, 1]
    assert Scrape(metrics).by(IDLE_SECONDS, "reason") == {}
    assert Scrape(metrics).value("recovery_build_info", version="1.2.3") == 1, "what it knows of itself it tells"


steps = st.lists(
    st.tuples(
        st.sampled_from([*Phase, "attempt", "adopt", "close", "close-early", "leader", "scrape"]),
        st.floats(min_value=0, max_value=100, allow_nan=False),
    ),
    max_size=30,
)


@settings(max_examples=150)
@given(steps)
def test_no_counter_falls_and_no_second_counts_twice_in_any_order_of_events(story: list[tuple[str, float]]) -> None:
    """This includes a change of leader: the new leader has only the ledger."""
    clock, store = SetClock(), HeldStore()
    collector = _new_leader(clock, store)
    group = Group(clock, store)
    before: dict[str, float] = {}
    for step, seconds in story:
        if group.ledger.incident is None:
            group.fails(gpus=10)
        _take(group, step)
        if step == "leader":
            collector = _new_leader(clock, store)
        clock.seconds += seconds
        samples = [sample for family in collector.collect() for sample in family.samples if sample.name == IDLE_SECONDS]
        now = {sample.labels["reason"]: sample.value for sample in samples}
        assert all(now[reason] >= value for reason, value in before.items())
        assert sum(now.values()) <= 10 * clock.seconds + 0.1
        before = now
    assert sum(before.values()) >= sum(group.ledger.totals.idle_gpu_seconds.values()) - 0.1


def _new_leader(clock: SetClock, store: HeldStore) -> LedgerCollector:
    jobs = FoundJobs()
    jobs.follow(store)
    collector = LedgerCollector(clock, jobs)
    collector.follow(store)
    collector.leads = True
    return collector


def _take(group: Group, step: str) -> None:
    match step:
        case "attempt":
            group.attempt()
        case "adopt":
            group.attempt(AttemptAction.ADOPTED)
        case "close" | "close-early":
            group.closes(ago=LAG if step == "close-early" else 0)
            group.is_recorded()
        case Phase() if step not in {Phase.HEALTHY, Phase.DETECTED}:
            group.enters(Phase(step))
        case _:
            pass


def test_failures_and_restarts_are_those_of_the_ledger(metrics: Telemetry, group: Group) -> None:
    group.set_totals(Totals(incidents=5, restarts=3, failures={"Killed": 4, "JobFailed": 1}))
    scrape = Scrape(metrics)
    assert scrape.of_job("recovery_failures_total", failure_class="Killed") == 4
    assert scrape.of_job("recovery_failures_total", failure_class="JobFailed") == 1
    assert scrape.of_job("recovery_group_restarts_total", scope="group") == 3


def test_failure_classes_of_another_version_are_told_as_one(metrics: Telemetry, group: Group) -> None:
    group.set_totals(Totals(failures={"GpuOnFire": 2, "GpuUnderWater": 1}))
    assert Scrape(metrics).by("recovery_failures_total", "failure_class") == {"unknown": 3}


def test_the_incident_is_dated_by_its_failure_while_it_is_open(metrics: Telemetry, group: Group) -> None:
    name = "recovery_incident_start_timestamp_seconds"
    group.fails(ago=3)
    assert Scrape(metrics).of_job(name) == BEGIN.timestamp() - 3
    group.closes()
    assert Scrape(metrics).of_job(name) is None


def test_gpus_are_the_incidents_and_between_incidents_those_of_the_pods(
    store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    pods = (pod(0), pod(1), pod(2, node=""), pod(3, phase="Failed"))
    store.snapshots[KEY] = Snapshot(KEY, workload(), None, (), pods)
    assert Scrape(metrics).of_job("recovery_job_gpus") == 16
    group.fails(gpus=32)
    assert Scrape(metrics).of_job("recovery_job_gpus") == 32


def test_the_last_phases_outlive_the_incident(clock: SetClock, metrics: Telemetry, group: Group) -> None:
    group.fails(ago=1)
    group.attempt()
    clock.seconds = 0.5
    group.enters(Phase.SCHEDULING)
    clock.seconds = 4.5
    group.closes()
    group.is_recorded()
    expected = {"Detected": 1, "Decided": 0.5, "Scheduling": 4}
    for _ in range(2):
        assert Scrape(metrics).by("recovery_last_phase_duration_seconds", "phase") == expected


def budget(scrape: Scrape) -> tuple[float | None, float | None]:
    return scrape.of_job("recovery_restart_budget_remaining"), scrape.of_job("recovery_restart_budget_limit")


def policy(*, limit: int, window: str = "1h") -> PolicyFacts:
    return PolicyFacts(
        name="default",
        namespace=KEY.namespace,
        uid="p",
        generation=1,
        spec=PolicySpec(mode=Mode.ENFORCE, budget=BudgetSpec(limit=limit, window=window)),
        created_at=BEGIN,
        mode_since=BEGIN,
    )


def test_budget_comes_back_when_charges_leave_the_window_without_any_write(
    clock: SetClock, store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    store.policy_facts = (policy(limit=2),)
    group.fails()
    group.attempt()
    assert budget(Scrape(metrics)) == (1, 2)
    group.closes()
    group.is_recorded()
    assert budget(Scrape(metrics)) == (1, 2)
    clock.seconds = timedelta(hours=1).total_seconds() + 1
    assert budget(Scrape(metrics)) == (2, 2)


def test_budget_follows_the_policy_between_incidents(store: HeldStore, metrics: Telemetry, group: Group) -> None:
    store.policy_facts = (policy(limit=7),)
    assert budget(Scrape(metrics)) == (7, 7)


@pytest.mark.parametrize("policies", [(), (policy(limit=2, window="soon"),)])
def test_budget_without_a_usable_policy_is_what_the_ledger_says(
    store: HeldStore, metrics: Telemetry, policies: tuple[PolicyFacts, ...], group: Group
) -> None:
    store.policy_facts = policies
    known = store.groups[UID]
    ledger = msgspec.structs.replace(known.ledger, budget=BudgetState(limit=4, remaining=3))
    store.groups[UID] = msgspec.structs.replace(known, ledger=ledger)
    assert budget(Scrape(metrics)) == (3, 4)


def test_of_a_job_whose_ledger_cannot_be_read_only_what_the_cluster_shows_is_told(
    store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    store.groups[UID] = msgspec.structs.replace(store.groups[UID], schema_version=SCHEMA_VERSION + 1)
    told = {name for name, labels in Scrape(metrics).samples if ("job_name", KEY.name) in labels}
    assert told == {"recovery_job_gpus"}


def test_a_crash_loop_has_a_series_while_it_lasts(metrics: Telemetry, group: Group) -> None:
    assert Scrape(metrics).of_job("recovery_job_crash_loop") is None
    for status, value in (("True", 1.0), ("False", None)):
        group.says(LedgerCondition("CrashLoop", status, "CrashLoop", "it loops", BEGIN))
        assert Scrape(metrics).of_job("recovery_job_crash_loop") == value
