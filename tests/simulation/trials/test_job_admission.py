"""Jobs that are created suspended, and what actors other than their user do to `spec.suspend`."""

import pytest
from msgspec.structs import replace

from recovery.ports import JOB_SETS, JOBS, PODS, TRAIN_JOBS, Resource
from recovery.scenario.modelled_job import JobAdmission, PlannedRuntime
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.faults import FaultKind, TrialFault
from recovery.sim.trials.kueue import FLAVOR, FLAVOR_LABEL, KUEUE_MANAGER
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.trials.small import LLM, happening, in_world, second, states, with_faults

pytestmark = pytest.mark.long

ADMITTED = 40.0
BY_KUEUE = ADMITTED + 0.04
"""When Kueue has started a job that gets quota then."""


def trial(admission: JobAdmission, *faults: TrialFault, **job: object) -> TrialOutcome:
    """The policy only observes, so everything that happens comes from the models."""
    plan = replace(LLM, policy={"mode": "Observe"}, admission=admission, admitted_after_seconds=ADMITTED, **job)
    return run_trial(with_faults(*faults, jobs=(plan,)))


def switches(outcome: TrialOutcome, resource: Resource = TRAIN_JOBS) -> list[tuple[float, bool]]:
    """When `spec.suspend` changed, and its value from then on."""
    found: list[tuple[float, bool]] = []
    for moment, _, body in states(outcome, resource):
        suspended = bool(body["spec"].get("suspend"))
        if not found or found[-1][1] != suspended:
            found.append((round(moment, 2), suspended))
    return found


def formed(outcome: TrialOutcome) -> list[float]:
    return [second(record.at) for record in outcome.evidence.trace.of("team-a/llm", EventKind.ROUND_FORMED)]


@pytest.mark.parametrize("runtime", [PlannedRuntime.SHIPPED, PlannedRuntime.BARE_JOBSET])
def test_a_user_resumes_what_was_created_suspended(runtime: PlannedRuntime) -> None:
    outcome = trial(JobAdmission.BY_USER, runtime=runtime)
    resource = JOB_SETS if runtime is PlannedRuntime.BARE_JOBSET else TRAIN_JOBS
    assert switches(outcome, resource) == [(0.0, True), (ADMITTED, False)]
    jobs = {body["metadata"]["uid"] for _, _, body in states(outcome, JOBS)}
    assert len(jobs) == 1, "the Job is older than its first run"
    assert ADMITTED < formed(outcome)[0] < ADMITTED + 5


@pytest.mark.parametrize(
    ("admission", "queue"), [(JobAdmission.BY_KUEUE, "training"), (JobAdmission.BY_KUEUE_WITHOUT_QUEUE, None)]
)
def test_kueue_resumes_a_job_with_the_nodes_that_it_may_use(admission: JobAdmission, queue: str | None) -> None:
    outcome = trial(admission)
    (job,) = outcome.evidence.server.objects(TRAIN_JOBS)
    assert job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == queue
    assert switches(outcome) == [(0.0, True), (BY_KUEUE, False)]
    patched = [body for _, _, body in states(outcome, TRAIN_JOBS) if body["spec"].get("runtimePatches")]
    assert patched[0]["spec"]["suspend"], "it is patched before it is resumed"
    assert [patch["manager"] for patch in patched[0]["spec"]["runtimePatches"]] == [KUEUE_MANAGER]
    pods = outcome.evidence.server.objects(PODS)
    assert [pod["spec"]["nodeSelector"] for pod in pods] == [{FLAVOR_LABEL: FLAVOR}] * LLM.pods
    assert formed(outcome)


def test_kueue_undoes_an_outside_suspension() -> None:
    outcome = trial(JobAdmission.BY_KUEUE, in_world(FaultKind.USER_SUSPEND, 100.0, 60.0))
    assert happening(outcome, FaultKind.USER_SUSPEND)
    assert switches(outcome) == [(0.0, True), (BY_KUEUE, False), (100.0, True), (100.04, False)]


def test_an_evicted_job_is_suspended_and_admitted_again_once_its_pods_are_gone() -> None:
    outcome = trial(JobAdmission.BY_KUEUE, in_world(FaultKind.KUEUE_EVICT, 100.0, 60.0))
    assert switches(outcome) == [(0.0, True), (BY_KUEUE, False), (100.08, True), (160.08, False)]
    without = [second for second, _, body in states(outcome, TRAIN_JOBS) if not body["spec"].get("runtimePatches")]
    assert any(100.0 < moment < 160.0 for moment in without), "its nodes were taken from it"
    assert len(formed(outcome)) == 2


def test_a_job_that_waits_for_kueue_is_not_started_by_others() -> None:
    faults = (in_world(FaultKind.KUEUE_EVICT, 100.0, 100.0), in_world(FaultKind.USER_SUSPEND, 90.0, 40.0, number=1))
    outcome = trial(JobAdmission.BY_KUEUE, *faults)
    assert (130.0, False) in switches(outcome), "the user ends a suspension that he takes for his own"
    assert (130.04, True) in switches(outcome)
    assert switches(outcome)[-1] == (200.08, False)


def test_a_job_that_its_user_creates_again_is_admitted_again() -> None:
    outcome = trial(JobAdmission.BY_KUEUE, in_world(FaultKind.USER_RECREATE, 100.0))
    made = [moment for moment, what, _ in states(outcome, TRAIN_JOBS) if what == "ADDED"]
    assert len(made) == 2
    assert len(formed(outcome)) == 2
    assert formed(outcome)[1] > made[1] + ADMITTED


def test_a_deadline_ends_the_job_and_counts_from_the_last_resume() -> None:
    outcome = trial(JobAdmission.BY_USER, in_world(FaultKind.USER_SUSPEND, 100.0, 20.0), deadline_seconds=90)
    ended = [
        moment
        for moment, _, body in states(outcome, TRAIN_JOBS)
        if any(each["type"] == "Failed" for each in body.get("status", {}).get("conditions", ()))
    ]
    assert 210.0 <= ended[0] < 212.0


@pytest.mark.parametrize(("change", "size"), [(-1, 1), (1, 3), (-5, 1)])
def test_a_user_resizes_the_job_that_trains(change: int, size: int) -> None:
    fault = replace(in_world(FaultKind.USER_RESIZE, 50.0), pods_more=change)
    outcome = run_trial(with_faults(fault, jobs=(JobPlan("team-a", "llm", pods=2, policy={"mode": "Observe"}),)))
    (job,) = outcome.evidence.server.objects(JOBS)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (size, size)
    assert happening(outcome, FaultKind.USER_RESIZE).sentence.endswith(f"from 2 to {size} pods")
