"""The objects of a plan's jobs, by what a cluster makes of them: every runtime in a little cluster for a minute."""

from functools import cache

import msgspec
import pytest

from recovery.core.model.config import CONFIG_NAME
from recovery.ports import JOB_SETS, JOBS, PODS, RECOVERY_CONFIGS, RECOVERY_POLICIES, TRAIN_JOBS
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.api.kinds.kind import Body
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.manifests import INDEX_LABEL, INITIALIZER, JOBSET_LABEL, NATIVE_CODE, members, objects_of
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.trials.small import QUIET, happening, in_world, with_faults

PODS_OF_A_JOB = 5
RUNTIMES = list(PlannedRuntime)


def job_of(runtime: PlannedRuntime) -> JobPlan:
    return JobPlan("team-a", "llm", runtime, pods=PODS_OF_A_JOB, grace_seconds=7, policy={"mode": "Enforce"})


@cache
def running(runtime: PlannedRuntime) -> TrialOutcome:
    other = JobPlan("team-a", "llm-2", pods=2, policy={"mode": "Observe"})
    return run_trial(
        msgspec.structs.replace(QUIET, jobs=(job_of(runtime), other), active_seconds=30.0, healing_seconds=30.0)
    )


def pods_of(runtime: PlannedRuntime) -> list[Body]:
    """In the order of their indexes."""
    found = members(running(runtime).evidence.server, job_of(runtime))
    return [found[index] for index in sorted(found)]


def only(outcome: TrialOutcome, resource: object, name: str = "llm") -> Body:
    (found,) = [each for each in outcome.evidence.server.objects(resource) if each["metadata"]["name"] == name]  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
def test_it_runs_with_all_its_members(runtime: PlannedRuntime) -> None:
    server = running(runtime).evidence.server
    assert sorted(members(server, job_of(runtime))) == list(range(PODS_OF_A_JOB))
    for pod in pods_of(runtime):
        assert pod["status"]["phase"] == "Running"
        assert pod["spec"]["terminationGracePeriodSeconds"] == 7
        assert pod["metadata"]["labels"][JOBSET_LABEL] == "llm"
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert running(runtime).violations == ()


@pytest.mark.parametrize("runtime", RUNTIMES, ids=str)
def test_a_policy_selects_its_job_alone(runtime: PlannedRuntime) -> None:
    server = running(runtime).evidence.server
    workload = only(running(runtime), JOB_SETS if runtime is PlannedRuntime.BARE_JOBSET else TRAIN_JOBS)
    selectors = [policy["spec"]["selector"]["matchLabels"] for policy in server.objects(RECOVERY_POLICIES)]
    assert [set(each.items()) <= set(workload["metadata"]["labels"].items()) for each in selectors] == [True, False]


def restart_policies(runtime: PlannedRuntime) -> set[str]:
    return {pod["spec"]["restartPolicy"] for pod in pods_of(runtime)}


def test_shipped_pods_restart_in_place() -> None:
    assert restart_policies(PlannedRuntime.SHIPPED) == restart_policies(PlannedRuntime.INITIALIZED) == {"OnFailure"}
    jobs = running(PlannedRuntime.SHIPPED).evidence.server.objects(JOBS)
    assert {job["spec"]["backoffLimit"] for job in jobs} == {6}


@pytest.mark.parametrize(
    "runtime", [each for each in RUNTIMES if each not in (PlannedRuntime.SHIPPED, PlannedRuntime.INITIALIZED)]
)
def test_prepared_pods_do_not_and_leave_lost_nodes_soon(runtime: PlannedRuntime) -> None:
    assert restart_policies(runtime) == {"Never"}
    for pod in pods_of(runtime):
        tolerated = {each["key"]: each["tolerationSeconds"] for each in pod["spec"]["tolerations"]}
        assert tolerated["node.kubernetes.io/unreachable"] == tolerated["node.kubernetes.io/not-ready"] == 30


def test_ready_means_joined() -> None:
    for pod in pods_of(PlannedRuntime.JOINED):
        assert pod["metadata"]["annotations"]["recovery.trainjob.dev/joined-probe"] == "readiness"
        assert pod["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] == 1


def test_a_group_of_two_jobs_counts_on_from_job_to_job() -> None:
    jobs = [
        pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]
        for pod in pods_of(PlannedRuntime.SEVERAL_JOBS)
    ]
    indexes = [pod["metadata"]["labels"][INDEX_LABEL] for pod in pods_of(PlannedRuntime.SEVERAL_JOBS)]
    assert list(zip(jobs, indexes, strict=True)) == [
        ("helper", "0"),
        ("helper", "1"),
        ("node", "0"),
        ("node", "1"),
        ("node", "2"),
    ]


def test_an_initializer_is_done_before_it_and_no_member() -> None:
    server = running(PlannedRuntime.INITIALIZED).evidence.server
    ended = [pod for pod in server.objects(PODS) if pod["status"]["phase"] == "Succeeded"]
    (done,) = ended
    assert done["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] == INITIALIZER
    assert done["metadata"]["name"] not in {pod["metadata"]["name"] for pod in pods_of(PlannedRuntime.INITIALIZED)}


def test_native_policies_decide_about_one_exit_code() -> None:
    assert only(running(PlannedRuntime.NATIVE), JOB_SETS)["spec"]["failurePolicy"]["maxRestarts"] == 1
    plan = with_faults(
        in_world(FaultKind.CONTAINER_KILL, 60.0, code=NATIVE_CODE),
        jobs=(job_of(PlannedRuntime.NATIVE),),
        active_seconds=120.0,
        healing_seconds=120.0,
    )
    outcome = run_trial(plan)
    assert happening(outcome, FaultKind.CONTAINER_KILL)
    assert only(outcome, JOB_SETS)["status"]["restarts"] == 1


def test_a_jobset_without_a_limit_restarts_a_crash_loop_until_it_ends() -> None:
    plan = with_faults(
        in_world(FaultKind.CRASH_LOOP, 60.0, seconds=90.0, code=1),
        jobs=(job_of(PlannedRuntime.UNLIMITED),),
        active_seconds=300.0,
        healing_seconds=120.0,
    )
    status = only(run_trial(plan), JOB_SETS)["status"]
    assert status["restarts"] > 3, "more than maxRestarts"
    assert status.get("restartsCountTowardsMax", 0) == 0


def test_a_job_set_of_the_users_own_has_no_train_job() -> None:
    outcome = running(PlannedRuntime.BARE_JOBSET)
    assert [each["metadata"]["name"] for each in outcome.evidence.server.objects(TRAIN_JOBS)] == ["llm-2"]


def test_a_job_without_a_policy_has_none() -> None:
    made = objects_of(JobPlan("team-a", "llm", policy=None))
    assert [resource for resource, _ in made if resource == RECOVERY_POLICIES] == []


@pytest.mark.parametrize("allowed", [True, False])
def test_the_config_says_whether_jobs_may_be_failed(allowed: bool) -> None:
    config = {"allow": {"failJob": allowed}}
    outcome = run_trial(msgspec.structs.replace(QUIET, config=config, active_seconds=5.0, healing_seconds=5.0))
    assert only(outcome, RECOVERY_CONFIGS, CONFIG_NAME)["spec"]["allow"]["failJob"] is allowed
