"""The metrics of jobs that have had no incident, from when a policy selects them, and of which policy does."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.decision.resuming import SETTLES_IN
from recovery.core.model.config import AllowSpec, ConfigFacts, ConfigSpec, QuarantineSpec
from recovery.core.model.facts import GroupKey, NodeFacts, Snapshot
from recovery.core.model.fleet_ledger import Breaker, FleetLedger
from recovery.core.model.ledger import Phase, PhaseSpan
from recovery.core.model.progress import Progress
from recovery.core.model.reason import Reason
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import applicable
from recovery.core.policy.spec import BudgetSpec, Mode, PolicySpec
from recovery.telemetry.catalogue import of_jobs
from recovery.telemetry.catalogue.label_values import FAILURE_CLASSES
from recovery.telemetry.idle_cells import BOOKED_WITHIN
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.fleets import NAMESPACE, snapshot_of
from tests.unit.telemetry.world import BEGIN, KEY, UID, Group, HeldStore, Scrape, SetClock, workload

PODS = 4


def select(store: HeldStore, *, mode: Mode = Mode.ENFORCE, window: str = "1h") -> None:
    spec = PolicySpec(mode=mode, budget=BudgetSpec(limit=3, window=window))
    store.policy_facts = (PolicyFacts("default", NAMESPACE, "p", 1, spec, BEGIN, BEGIN),)


@pytest.fixture
def snapshot(store: HeldStore) -> Snapshot:
    """A job of four pods that has no RecoveryGroup."""
    store.snapshots[KEY] = snapshot_of(KEY, PODS)
    return store.snapshots[KEY]


def names_of_job(scrape: Scrape) -> set[str]:
    return {name for name, labels in scrape.samples if ("job_name", KEY.name) in labels}


@pytest.mark.usefixtures("snapshot")
def test_the_series_of_a_job_begin_at_0_when_a_policy_selects_it(store: HeldStore, metrics: Telemetry) -> None:
    assert names_of_job(Scrape(metrics)) == set()
    select(store)
    metrics.facts_read(KEY, store.snapshots[KEY], applicable(store.policies(NAMESPACE), workload()))
    scrape = Scrape(metrics)
    for failure_class in FAILURE_CLASSES:
        assert scrape.of_job("recovery_failures_total", failure_class=failure_class) == 0
        assert scrape.of_job("recovery_gpu_idle_by_class_seconds_total", failure_class=failure_class) == 0
    assert scrape.of_job("recovery_group_restarts_total", scope="group") == 0
    assert scrape.of_job("recovery_gpu_released_seconds_total") == 0
    assert scrape.of_job("recovery_group_reduced_seconds_total") == 0
    assert scrape.of_job("recovery_gpu_gained_seconds_total") == 0
    assert scrape.of_job("recovery_job_gpus") == PODS * 8
    assert scrape.of_job("recovery_job_info", mode="enforce", kind="TrainJob") == 1
    assert scrape.of_job("recovery_restart_budget_remaining") == 3
    only_in_incidents = {of_jobs.INCIDENT_START, of_jobs.INCIDENT_INFO, of_jobs.RENDEZVOUS_PARTICIPANTS}
    only_sometimes = {
        of_jobs.LAST_PHASE_DURATION,
        of_jobs.JOB_PROGRESS,
        of_jobs.JOB_PROGRESS_TIMESTAMP,
        of_jobs.GPUS_NOT_STARTED,
        of_jobs.CRASH_LOOP,
        of_jobs.PROVEN_TIMESTAMP,
        of_jobs.PROOF_VALID,
    }
    of_smaller_groups = {
        of_jobs.GROUP_NODES,
        of_jobs.GROUP_NODES_WANTED,
        of_jobs.GROUP_REDUCED_START,
        of_jobs.GROUP_FAILED_GROWTHS,
    }
    assert names_of_job(scrape) == {
        each.name for each in {*of_jobs.OF_JOBS} - only_in_incidents - only_sometimes - of_smaller_groups
    }


def test_what_a_reconcile_reads_is_told_at_the_next_scrape(
    store: HeldStore, metrics: Telemetry, snapshot: Snapshot
) -> None:
    select(store)
    assert Scrape(metrics).of_job("recovery_job_gpus") == PODS * 8
    fewer = msgspec.structs.replace(snapshot, pods=snapshot.pods[1:])
    metrics.facts_read(KEY, fewer, applicable(store.policies(NAMESPACE), workload()))
    assert Scrape(metrics).of_job("recovery_job_gpus") == (PODS - 1) * 8


def test_workloads_are_counted_by_the_mode_in_force(store: HeldStore, metrics: Telemetry) -> None:
    store.snapshots = {key: snapshot_of(key, 1) for key in (KEY, GroupKey(NAMESPACE, "b"), GroupKey("team-b", "c"))}
    select(store)
    assert Scrape(metrics).by("recovery_jobs", "mode") == {"enforce": 2, "none": 1}
    select(store, mode=Mode.OBSERVE)
    metrics.leadership_changed(leads=True)
    assert Scrape(metrics).by("recovery_jobs", "mode") == {"observe": 2, "none": 1}
    select(store)
    breaker = Breaker(BEGIN, Reason.RECOVERIES_IN_VAIN)
    store.config_facts = ConfigFacts("default", "c", 1, fleet=FleetLedger(breaker=breaker))
    found = applicable(msgspec.structs.replace(store.policies(NAMESPACE), config=store.config_facts), workload())
    metrics.facts_read(KEY, store.snapshots[KEY], found)
    assert Scrape(metrics).of_job("recovery_job_info", mode="observe", kind="TrainJob") == 1


@pytest.mark.usefixtures("snapshot")
def test_a_job_whose_policy_cannot_be_used_keeps_its_series(store: HeldStore, metrics: Telemetry) -> None:
    select(store, window="soon")
    scrape = Scrape(metrics)
    assert scrape.of_job("recovery_job_gpus") == PODS * 8
    assert scrape.by("recovery_job_info", "mode") == {}
    assert scrape.by("recovery_jobs", "mode") == {"none": 1}


def test_the_open_incident_has_its_id_and_its_cause(metrics: Telemetry, group: Group) -> None:
    group.fails()
    scrape = Scrape(metrics)
    assert scrape.of_job("recovery_incident_info", incident=f"{UID[:8]}-1", failure_class="Killed") == 1
    group.closes()
    assert "recovery_incident_info{" not in Scrape(metrics).text


def test_participants_are_told_while_the_members_come_together(
    store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    name = "recovery_rendezvous_participants"
    found = snapshot_of(KEY, 2)
    assert found.workload is not None
    one_ready = (found.pods[0], msgspec.structs.replace(found.pods[1], ready=False))
    found = msgspec.structs.replace(found, workload=workload(), pods=one_ready)
    store.snapshots[KEY] = found
    group.fails()
    group.attempt()
    group.enters(Phase.SCHEDULING)
    assert Scrape(metrics).by(name, "state") == {}
    group.enters(Phase.RENDEZVOUS)
    assert Scrape(metrics).by(name, "state") == {"joined": 1, "expected": 2}
    group.closes()
    assert Scrape(metrics).by(name, "state") == {}


def test_gpus_that_our_suspension_has_given_back_are_released_and_not_idle(
    clock: SetClock, store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    group.fails(gpus=16)
    group.attempt()
    group.enters(Phase.BACKOFF)
    known = store.groups[UID]
    assert group.ledger.incident is not None
    *ended, last = group.ledger.incident.phases
    released = PhaseSpan(last.phase, last.started_at, released=True)
    store.groups[UID] = msgspec.structs.replace(known, ledger=group.ledger.with_incident(phases=(*ended, released)))
    clock.seconds = 10 + (SETTLES_IN + BOOKED_WITHIN).total_seconds()
    scrape = Scrape(metrics)
    assert scrape.of_job("recovery_gpus_released") == 16
    assert scrape.by("recovery_gpus_idle", "reason") == {}
    assert scrape.of_job("recovery_gpu_released_seconds_total") == 160
    assert scrape.by("recovery_gpu_idle_seconds_total", "reason") == {}
    assert scrape.value("recovery_fleet_gpu_released_seconds_total") == 160


def test_progress_is_told_of_jobs_that_have_shown_it_though_a_report_starts_no_reconcile(
    store: HeldStore, metrics: Telemetry, snapshot: Snapshot
) -> None:
    select(store)
    assert Scrape(metrics).of_job("recovery_job_progress_timestamp_seconds") is None
    at = BEGIN + timedelta(seconds=90)
    for ratio in (None, 0.25):
        shown = msgspec.structs.replace(workload(f"uid-{KEY.name}"), progress=Progress(at, ratio))
        store.snapshots[KEY] = msgspec.structs.replace(snapshot, workload=shown)
        scrape = Scrape(metrics)
        assert scrape.of_job("recovery_job_progress_timestamp_seconds") == at.timestamp()
        assert scrape.of_job("recovery_job_progress_ratio") == ratio


def test_a_pause_of_the_cluster_and_the_limit_of_quarantines(
    store: HeldStore, metrics: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {f"gpu-{number}": NodeFacts(f"gpu-{number}", ready=True) for number in range(40)}
    monkeypatch.setattr(store, "nodes", lambda: nodes)

    def found() -> tuple[float | None, float | None]:
        scrape = Scrape(metrics)
        return scrape.value("recovery_paused"), scrape.value("recovery_nodes_quarantined_limit")

    assert found() == (0, 0), "without a RecoveryConfig no node is quarantined"
    may = AllowSpec(cordon=True)
    for spec, expected in (
        (ConfigSpec(allow=may), (0, 2)),
        (ConfigSpec(allow=may, quarantine=QuarantineSpec(max_nodes=1), paused=True), (1, 1)),
        (ConfigSpec(), (0, 0)),
    ):
        store.config_facts = ConfigFacts("default", "c", 1, spec)
        assert found() == expected
    store.config_facts = ConfigFacts("default", "c", 1, unreadable="it is damaged")
    assert found()[0] == 1, "a RecoveryConfig that cannot be read pauses everything"
