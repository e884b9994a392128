"""What Kueue 0.19.1 writes into the status of a Workload. Each test is one transition, and names the function of Kueue
that makes it."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from recovery.ports import PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.patches import patched
from recovery.sim.trials.kueue_workload import WorkloadStatus
from recovery.sim.trials.plan import KueueSettings
from recovery.sim.virtual_time import BEGIN

SETTINGS = KueueSettings(
    ready_seconds=300.0, recovery_seconds=120.0, backoff_seconds=60.0, longest_backoff_seconds=200.0
)


class Workload:
    """A Workload and the clock. Each update is one write of Kueue."""

    def __init__(self) -> None:
        self.body: Body = {"metadata": {"creationTimestamp": _stamp(0.0)}, "spec": {"active": True}}
        self.seconds = 0.0

    def status(self) -> WorkloadStatus:
        return WorkloadStatus(self.body, BEGIN + timedelta(seconds=self.seconds))

    def update(self, update: str, *values: Any) -> WorkloadStatus:
        status = self.status()
        getattr(status, update)(*values)
        self.body = patched(self.body, {"status": status.body()}, PatchKind.MERGE)
        return self.status()

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason, by type."""
        found = self.body.get("status", {}).get("conditions", ())
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def requeue(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.body["status"].get("requeueState")
        return found


def _stamp(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


@pytest.fixture
def admitted() -> Workload:
    """Admitted at 10 s. Its pods have not started."""
    workload = Workload()
    workload.update("judge_readiness", False)
    workload.seconds = 10.0
    workload.update("reserve", "training")
    return workload


@pytest.fixture
def ready(admitted: Workload) -> Workload:
    """Ready since 20 s."""
    admitted.seconds = 20.0
    admitted.update("judge_readiness", True)
    return admitted


def test_reserved_quota_admits_it(admitted: Workload) -> None:
    """`SetQuotaReservation`, `SyncAdmittedCondition`: without admission checks both conditions come together."""
    conditions = admitted.conditions()
    assert conditions["QuotaReserved"] == ("True", "QuotaReserved")
    assert conditions["Admitted"] == ("True", "Admitted")
    assert admitted.body["status"]["admission"] == {"clusterQueue": "training"}


def test_pods_that_have_not_started_are_waited_for_from_the_admission(admitted: Workload) -> None:
    """`generatePodsReadyCondition`, `admittedNotReadyWorkload`: WaitForStart counts from Admitted."""
    assert admitted.conditions()["PodsReady"] == ("False", "WaitForStart")
    assert admitted.status().late_at(SETTINGS) == _at(10.0 + 300.0)


def test_no_time_runs_while_all_jobs_are_ready(ready: Workload) -> None:
    assert ready.conditions()["PodsReady"] == ("True", "Started")
    assert ready.status().late_at(SETTINGS) is None


def test_a_loss_is_waited_for_from_the_loss(ready: Workload) -> None:
    """`generatePodsReadyCondition`: from Ready it goes to WaitForRecovery, which has a timeout of its own."""
    ready.seconds = 50.0
    ready.update("judge_readiness", False)
    ready.seconds = 60.0
    status = ready.update("judge_readiness", False)
    assert ready.conditions()["PodsReady"] == ("False", "WaitForRecovery")
    assert status.late_at(SETTINGS) == _at(50.0 + 120.0), "the date is that of the loss"


def test_a_recovery_ends_the_wait(ready: Workload) -> None:
    ready.update("judge_readiness", False)
    ready.update("judge_readiness", True)
    assert ready.conditions()["PodsReady"] == ("True", "Recovered")
    assert not ready.update("judge_readiness", True).changed


def test_one_that_is_not_admitted_waits_for_its_start_again(ready: Workload) -> None:
    """`generatePodsReadyCondition`: what was ready before an eviction does not count after it."""
    ready.update("preempt", "another job")
    ready.update("release")
    ready.update("judge_readiness", False)
    assert ready.conditions()["PodsReady"] == ("False", "WaitForStart")
    assert ready.status().late_at(SETTINGS) is None, "no time runs while it is queued"


def test_a_timeout_evicts_it_with_a_backoff_that_doubles(admitted: Workload) -> None:
    """`reconcileNotReadyTimeout`, `UpdateRequeueState`: 60 s, doubled for each earlier time, up to a limit."""
    waits: list[float] = []
    for _ in range(3):
        status = admitted.update("time_out", SETTINGS)
        assert admitted.conditions()["Evicted"] == ("True", "PodsReadyTimeout")
        assert status.requeue_at is not None
        waits.append((status.requeue_at - _at(admitted.seconds)).total_seconds())
        admitted.update("release")
        admitted.seconds += waits[-1]
        admitted.update("end_backoff")
        admitted.update("reserve", "training")
    assert waits == [60.0, 120.0, 200.0]
    assert admitted.requeue() == {"count": 3}


def test_readiness_does_not_reset_the_count(admitted: Workload) -> None:
    """In 0.19.1 only a deactivation sets `requeueState` back (`workload_controller.go`)."""
    admitted.update("time_out", SETTINGS)
    admitted.update("release")
    admitted.update("end_backoff")
    admitted.update("reserve", "training")
    assert admitted.update("judge_readiness", True).requeues == 1


def test_an_evicted_job_gives_its_quota_back_when_no_job_is_active(ready: Workload) -> None:
    """Step 6 of `ReconcileGenericJob`. Preemption queues it again at once."""
    ready.update("preempt", "another job")
    assert ready.conditions()["Admitted"] == ("True", "Admitted"), "until its Jobs have ended"
    assert ready.conditions()["Preempted"] == ("True", "InClusterQueue")
    ready.update("release")
    conditions = ready.conditions()
    assert conditions["QuotaReserved"] == ("False", "Pending")
    assert conditions["Admitted"] == ("False", "NoReservation")
    assert conditions["Requeued"] == ("True", "Preempted")
    assert "admission" not in ready.body["status"]


def test_after_a_timeout_it_is_not_requeued_before_the_backoff_ends(admitted: Workload) -> None:
    """`SetRequeuedCondition`: False with the reason of the eviction, then True with BackoffFinished."""
    admitted.update("time_out", SETTINGS)
    admitted.update("release")
    assert admitted.conditions()["Requeued"] == ("False", "PodsReadyTimeout")
    status = admitted.update("end_backoff")
    assert admitted.conditions()["Requeued"] == ("True", "BackoffFinished")
    assert (status.requeue_at, status.requeues) == (None, 1)


def test_the_next_admission_ends_the_eviction(ready: Workload) -> None:
    """`SetQuotaReservation` resets Evicted and Preempted."""
    ready.update("preempt", "another job")
    ready.update("release")
    ready.update("reserve", "training")
    conditions = ready.conditions()
    assert conditions["Evicted"] == conditions["Preempted"] == ("False", "QuotaReserved")
    assert conditions["Admitted"] == ("True", "Admitted")


def test_at_the_limit_it_is_to_be_deactivated_and_not_evicted(admitted: Workload) -> None:
    """`triggerDeactivation`: count + 1 > backoffLimitCount."""
    settings = KueueSettings(backoff_limit=1)
    admitted.update("time_out", settings)
    admitted.update("release")
    admitted.update("end_backoff")
    admitted.update("reserve", "training")
    status = admitted.update("time_out", settings)
    assert admitted.conditions()["DeactivationTarget"] == ("True", "RequeuingLimitExceeded")
    assert admitted.conditions()["Evicted"] == ("False", "QuotaReserved")
    assert status.wants_deactivation


def test_a_limit_of_0_deactivates_it_at_the_first_timeout(admitted: Workload) -> None:
    assert admitted.update("time_out", KueueSettings(backoff_limit=0)).wants_deactivation


def test_a_deactivated_one_is_evicted_and_starts_from_0(admitted: Workload) -> None:
    """`Reconcile`, where `spec.active` is false: the reason has the cause, and `requeueState` is gone."""
    admitted.update("time_out", SETTINGS)
    admitted.update("release")
    admitted.update("end_backoff")
    admitted.update("reserve", "training")
    admitted.update("time_out", KueueSettings(backoff_limit=1))
    status = admitted.update("deactivate")
    assert admitted.conditions()["Evicted"] == ("True", "DeactivatedDueToRequeuingLimitExceeded")
    assert "DeactivationTarget" not in admitted.conditions()
    assert (status.requeues, admitted.requeue()) == (0, None)


def test_a_user_deactivates_it(ready: Workload) -> None:
    ready.update("deactivate")
    assert ready.conditions()["Evicted"] == ("True", "Deactivated")
    ready.update("release")
    assert ready.conditions()["Requeued"] == ("False", "Deactivated")


@pytest.mark.parametrize(("succeeded", "reason"), [(True, "Succeeded"), (False, "Failed")])
def test_the_end_of_the_job_finishes_it(ready: Workload, succeeded: bool, reason: str) -> None:
    """Step 3 of `ReconcileGenericJob`."""
    ready.update("finish", succeeded)
    assert ready.conditions()["Finished"] == ("True", reason)


def test_dates_are_whole_seconds_and_change_with_the_status(admitted: Workload) -> None:
    """`metav1.Time` and `SetStatusCondition`. So a timeout may come up to a second early."""
    admitted.seconds = 20.9
    admitted.update("judge_readiness", True)
    assert admitted.status().since("PodsReady") == _at(20.0)


def test_a_timeout_sends_it_to_the_end_of_the_queue_and_a_preemption_does_not(ready: Workload) -> None:
    """`requeuingStrategy.timestamp: Eviction`, the default."""
    ready.seconds = 90.0
    assert ready.update("preempt", "another job").queued_since(ready.body) == BEGIN
    ready.update("release")
    ready.update("reserve", "training")
    assert ready.update("time_out", SETTINGS).queued_since(ready.body) == _at(90.0)
