"""The metric of unprotected jobs: the last answer for each job, counted at the scrape."""

from recovery.core.model.facts import GroupKey, Snapshot
from recovery.core.model.protection import UNPROTECTED, Protection, ProtectionReason
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import HeldStore, Scrape, workload

NAME = "recovery_unprotected_jobs"


def answered(metrics: Telemetry, store: HeldStore, **reasons: ProtectionReason) -> None:
    """Each of these jobs exists, and its reconcile has found that reason."""
    for name, reason in reasons.items():
        key = GroupKey("team-a", name)
        store.snapshots[key] = Snapshot(key, workload(), None, (), ())
        metrics.protection_found(key, Protection(reason, "TrainJob", name))


def counted(metrics: Telemetry) -> dict[str, float]:
    """The number of jobs by reason, without zeros."""
    return Scrape(metrics).by(NAME, "reason")


def test_every_reason_is_there_from_the_start(metrics: Telemetry) -> None:
    scrape = Scrape(metrics)
    assert [scrape.value(NAME, reason=reason) for reason in UNPROTECTED] == [0] * len(UNPROTECTED)


def test_jobs_are_counted_by_reason_and_those_that_need_nothing_are_not(metrics: Telemetry, store: HeldStore) -> None:
    answered(
        metrics,
        store,
        one=ProtectionReason.NO_POLICY,
        two=ProtectionReason.NO_POLICY,
        three=ProtectionReason.OBSERVE,
        four=ProtectionReason.PROTECTED,
        five=ProtectionReason.SUSPENDED,
    )
    assert counted(metrics) == {"NoPolicy": 2, "Observe": 1}


def test_a_job_counts_once_under_its_latest_answer(metrics: Telemetry, store: HeldStore) -> None:
    answered(metrics, store, llm=ProtectionReason.NO_POLICY)
    answered(metrics, store, llm=ProtectionReason.OBSERVE)
    assert counted(metrics) == {"Observe": 1}
    answered(metrics, store, llm=ProtectionReason.PROTECTED)
    assert counted(metrics) == {}


def test_a_job_that_is_gone_does_not_count(metrics: Telemetry, store: HeldStore) -> None:
    answered(metrics, store, llm=ProtectionReason.NO_POLICY)
    store.snapshots.clear()
    assert counted(metrics) == {}


def test_only_the_leader_counts_and_a_new_term_begins_with_its_own_answers(
    metrics: Telemetry, store: HeldStore
) -> None:
    answered(metrics, store, llm=ProtectionReason.NO_POLICY)
    metrics.leadership_changed(leads=False)
    assert NAME not in Scrape(metrics).families
    metrics.leadership_changed(leads=True)
    assert counted(metrics) == {}
