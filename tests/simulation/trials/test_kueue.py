"""Kueue in trials: what its decisions do to jobs. The policy only observes, so everything comes from the models."""

import pytest
from msgspec.structs import replace

from recovery.ports import PODS, TRAIN_JOBS
from recovery.scenario.modelled_job import JobAdmission
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.workloads import WORKLOADS
from recovery.sim.trials.faults import FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, KueueSettings, Saves
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.trials.small import LLM, in_world, states, with_faults

pytestmark = pytest.mark.long

QUEUED = replace(LLM, policy={"mode": "Observe"}, admission=JobAdmission.BY_KUEUE, admitted_after_seconds=20.0)
SOON = KueueSettings(ready_seconds=60.0, recovery_seconds=60.0, backoff_seconds=30.0)
NO_PODS = in_world(FaultKind.PODS_REFUSED, 10.0, 280.0)
"""New pods are refused until the healing begins."""


def trial(*faults: TrialFault, kueue: KueueSettings = SOON, jobs: tuple[JobPlan, ...] = (QUEUED,)) -> TrialOutcome:
    return run_trial(with_faults(*faults, jobs=jobs, kueue=kueue))


def evictions(outcome: TrialOutcome) -> list[tuple[float, str]]:
    """When a Workload was evicted, to the second, and why."""
    found: list[tuple[float, str]] = []
    before: dict[str, bool] = {}
    for moment, _, body in states(outcome, WORKLOADS):
        evicted = next(
            (each for each in conditions(body) if (each["type"], each["status"]) == ("Evicted", "True")), None
        )
        if evicted is not None and not before.get(body["metadata"]["uid"]):
            found.append((round(moment), evicted["reason"]))
        before[body["metadata"]["uid"]] = evicted is not None
    return found


def conditions(workload: Body) -> list[Body]:
    return list(workload.get("status", {}).get("conditions", ()))


def resumes(outcome: TrialOutcome, name: str = "") -> list[float]:
    """When TrainJobs were resumed."""
    found: list[float] = []
    was: dict[str, bool] = {}
    for moment, _, body in states(outcome, TRAIN_JOBS, name):
        suspended = bool(body["spec"].get("suspend"))
        if was.get(body["metadata"]["uid"]) and not suspended:
            found.append(round(moment, 2))
        was[body["metadata"]["uid"]] = suspended
    return found


def test_a_job_without_ready_pods_is_evicted_and_queued_again_with_a_backoff() -> None:
    outcome = trial(NO_PODS)
    first, second, *_ = evictions(outcome)
    assert first == (80, "PodsReadyTimeout")
    assert second == (80 + 30 + 60, "PodsReadyTimeout"), "30 s of backoff, then it was admitted again"
    assert resumes(outcome)[1] == pytest.approx(110, abs=1)


def test_at_the_limit_the_workload_is_deactivated_and_the_job_stays_suspended() -> None:
    outcome = trial(NO_PODS, kueue=replace(SOON, backoff_limit=1))
    assert [reason for _, reason in evictions(outcome)] == [
        "PodsReadyTimeout",
        "DeactivatedDueToRequeuingLimitExceeded",
    ]
    (workload,) = outcome.evidence.server.objects(WORKLOADS)
    assert not workload["spec"]["active"]
    (job,) = outcome.evidence.server.objects(TRAIN_JOBS)
    assert job["spec"]["suspend"]


def test_a_loss_that_no_one_recovers_evicts_the_job_after_the_recovery_timeout() -> None:
    outcome = trial(replace(NO_PODS, at_seconds=90.0, seconds=200.0), in_world(FaultKind.POD_KILL, 100.0, number=1))
    ((moment, reason), *_) = evictions(outcome)
    assert reason == "PodsReadyTimeout"
    assert moment == pytest.approx(160, abs=2)


def test_a_job_is_admitted_again_while_its_old_pods_terminate() -> None:
    """The other job is gone at once, and the pods take 4 s to end."""
    saving = replace(QUEUED, saves=Saves(4.0, 143))
    outcome = trial(replace(in_world(FaultKind.KUEUE_EVICT, 100.0), seconds=0.1), jobs=(saving,))
    ((moment, reason),) = evictions(outcome)
    assert (moment, reason) == (100, "Preempted")
    again = resumes(outcome)[-1]
    assert again - 100.0 < 0.4
    ends = [each for each, type_, _ in states(outcome, PODS) if type_ == "DELETED"]
    assert ends
    assert min(ends) > again


def test_of_two_jobs_the_one_of_higher_priority_preempts_the_other() -> None:
    late = replace(QUEUED, name="urgent", admitted_after_seconds=100.0, priority=10, total_steps=3000)
    outcome = trial(jobs=(QUEUED, late), kueue=KueueSettings(gpus=16))
    assert evictions(outcome) == [(100, "Preempted")]
    assert resumes(outcome, "urgent")
    assert resumes(outcome, "urgent")[0] > resumes(outcome, "llm")[0]
    assert resumes(outcome, "llm")[1] > resumes(outcome, "urgent")[0] + 10, "when the other one has ended"


def test_a_job_of_lower_priority_waits() -> None:
    first = replace(QUEUED, priority=10)
    outcome = trial(jobs=(first, replace(QUEUED, name="later")), kueue=KueueSettings(gpus=16))
    assert evictions(outcome) == []
    assert resumes(outcome, "later") == []


def test_a_deleted_job_takes_its_workload_with_it() -> None:
    outcome = trial(in_world(FaultKind.USER_DELETE, 100.0))
    assert list(outcome.evidence.server.objects(WORKLOADS)) == []
