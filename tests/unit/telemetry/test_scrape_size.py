"""What a scrape costs at 200 jobs of 128 pods: series, bytes, and reads of pods."""

import pytest
from prometheus_client import generate_latest

from recovery.core.model.ledger import Phase
from recovery.core.policy.selection import applicable
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.fleets import GPUS_OF_POD, NAMESPACE, CountingStore, fleet, in_an_incident, put
from tests.unit.telemetry.world import Scrape, SetClock

JOBS = 200
PODS = 128

SERIES_OF_JOB = 57 + len(Phase) - 2
"""Series of a healthy job: 9 + 14 + 14 counters by reason and by class, 10 for idle GPUs by reason, one for each phase
but Detected and Stopping, one for the standing, and 9 more."""
SERIES_OF_INCIDENT = 9
"""More series while one is open: its start and info, members joined and expected, and the phases that ended."""
SERIES_OF_OTHERS = 554 + 3 + 122
"""Of these, 210 + 127 are counters of the fleet, 17 are reasons of unprotected jobs, and 3 show what Enforce would have
done. 122 are rendezvous of the usual causes, at 0. The rest are histograms and the process itself."""
SERIES_OF_PHASE = 20
"""Series in the histogram of phases for each phase that is added."""
BYTES_MAX = 1_700_000
"""Measured: 1.50 MB between incidents, 1.70 MB during them, and 0.05 MB compressed."""


@pytest.fixture
def clock() -> SetClock:
    clock = SetClock()
    clock.seconds = 60
    return clock


@pytest.fixture
def store() -> CountingStore:
    return fleet(jobs=JOBS, pods=PODS)


@pytest.fixture
def metrics(clock: SetClock, store: CountingStore) -> Telemetry:
    telemetry = Telemetry(clock=clock, version="1.2.3")
    telemetry.follow(store)
    telemetry.leadership_changed(leads=True)
    return telemetry


def series_of_jobs(scrape: Scrape) -> int:
    return sum("job_name" in dict(labels) for _, labels in scrape.samples)


def all_are_in_an_incident(store: CountingStore) -> None:
    for number, key in enumerate(store.keys()):
        put(store, key, in_an_incident(number, gpus=PODS * GPUS_OF_POD, ranks=PODS))


def test_series_grow_with_the_jobs_and_not_with_their_pods(metrics: Telemetry) -> None:
    scrape = Scrape(metrics)
    assert series_of_jobs(scrape) == JOBS * SERIES_OF_JOB
    assert len(scrape.samples) - series_of_jobs(scrape) <= SERIES_OF_OTHERS + SERIES_OF_PHASE * (len(Phase) - 10)
    assert len(scrape.text) < BYTES_MAX


def test_an_incident_of_every_job_at_once_adds_a_few_series_to_each(metrics: Telemetry, store: CountingStore) -> None:
    all_are_in_an_incident(store)
    scrape = Scrape(metrics)
    assert series_of_jobs(scrape) == JOBS * (SERIES_OF_JOB + SERIES_OF_INCIDENT)
    assert len(scrape.text) < BYTES_MAX
    assert sum(scrape.by("recovery_jobs", "mode").values()) == JOBS


def test_a_scrape_reads_the_pods_of_a_job_once_at_most(metrics: Telemetry, store: CountingStore) -> None:
    generate_latest(metrics.registry)
    assert store.snapshots_read == JOBS, "the first scrape of a leader that has reconciled nothing yet"
    all_are_in_an_incident(store)
    generate_latest(metrics.registry)
    assert store.snapshots_read == JOBS


def test_a_scrape_reads_no_pods_of_jobs_that_were_reconciled(metrics: Telemetry, store: CountingStore) -> None:
    for key, snapshot in store.snapshots.items():
        assert snapshot.workload is not None
        metrics.facts_read(key, snapshot, applicable(store.policies(NAMESPACE), snapshot.workload))
    assert Scrape(metrics).value("recovery_jobs", mode="enforce") == JOBS
    assert store.snapshots_read == 0


def test_the_series_of_a_job_end_with_its_workload(metrics: Telemetry, store: CountingStore) -> None:
    all_are_in_an_incident(store)
    generate_latest(metrics.registry)
    ended = next(iter(store.snapshots))
    del store.snapshots[ended]  # its RecoveryGroup still waits to be collected
    scrape = Scrape(metrics)
    assert ended.name not in scrape.text
    assert series_of_jobs(scrape) == (JOBS - 1) * (SERIES_OF_JOB + SERIES_OF_INCIDENT)


def test_nothing_grows_from_scrape_to_scrape(metrics: Telemetry, store: CountingStore, clock: SetClock) -> None:
    all_are_in_an_incident(store)
    first = set(Scrape(metrics).samples)
    clock.seconds += 3600
    assert set(Scrape(metrics).samples) == first


def test_a_standby_tells_of_no_job(metrics: Telemetry) -> None:
    metrics.leadership_changed(leads=False)
    assert series_of_jobs(Scrape(metrics)) == 0
