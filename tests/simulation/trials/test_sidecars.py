"""Pods with containers beside the training: what they contain, what affects them, and which container trains."""

import pytest
from msgspec.structs import replace

from recovery.ports import PODS
from recovery.scenario.modelled_job import Marking, PlannedRuntime, Sidecar
from recovery.sim.api.kinds.kind import Body
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.manifests import training_container
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.trials.small import LLM, QUIET, happening, in_world, states, with_faults

OBSERVED = replace(LLM, policy={"mode": "Observe"})
"""The tests check what the models do, so the controller only observes."""


def trial(*sidecars: Sidecar, **job: object) -> TrialOutcome:
    jobs = (replace(OBSERVED, sidecars=sidecars, **job),)
    return run_trial(replace(QUIET, jobs=jobs, active_seconds=60.0, healing_seconds=60.0))


def pods_of(outcome: TrialOutcome) -> list[Body]:
    pods = list(outcome.evidence.server.objects(PODS))
    assert len(pods) == LLM.pods
    return pods


def state(pod: Body, container: str, of: str = "containerStatuses") -> Body:
    found: Body = next(each["state"] for each in pod["status"][of] if each["name"] == container)
    return found


def trains(outcome: TrialOutcome) -> bool:
    """All ranks have met exactly once, and none was lost."""
    trace = outcome.evidence.trace
    started = trace.of("team-a/llm", EventKind.PROCESS_STARTED)
    formed = trace.of("team-a/llm", EventKind.ROUND_FORMED)
    return (len(started), len(formed)) == (LLM.pods, 1) and not trace.of("team-a/llm", EventKind.RANK_LOST)


def test_a_helper_exits_with_0_and_its_pod_trains_on_but_is_not_ready() -> None:
    outcome = trial(Sidecar.HELPER)
    for pod in pods_of(outcome):
        assert [container["name"] for container in pod["spec"]["containers"]] == ["helper", "node"]
        assert state(pod, "helper")["terminated"]["exitCode"] == 0
        assert "running" in state(pod, "node")
        assert pod["status"]["phase"] == "Running"
        ready = next(each for each in pod["status"]["conditions"] if each["type"] == "Ready")
        assert ready["status"] == "False"
    assert trains(outcome)


def test_a_broken_sidecar_keeps_its_pod_pending_while_it_trains() -> None:
    outcome = trial(Sidecar.BROKEN)
    for pod in pods_of(outcome):
        assert state(pod, "broken-sidecar")["waiting"]["reason"] == "ImagePullBackOff"
        assert "running" in state(pod, "node")
        assert pod["status"]["phase"] == "Pending"
    assert trains(outcome)


def test_a_native_sidecar_is_an_init_container_that_runs_beside_the_training() -> None:
    outcome = trial(Sidecar.NATIVE)
    for pod in pods_of(outcome):
        assert "running" in state(pod, "native-sidecar", "initContainerStatuses")
        assert pod["status"]["phase"] == "Running"
    assert trains(outcome)


@pytest.mark.parametrize(
    ("sidecar", "container"), [(Sidecar.SHIPPER, "log-shipper"), (Sidecar.NATIVE, "native-sidecar")]
)
def test_a_sidecar_that_is_killed_ends_no_training(sidecar: Sidecar, container: str) -> None:
    fault = replace(in_world(FaultKind.SIDECAR_KILL, 50.0, indexes=(1,)), container=container)
    plan = with_faults(
        fault, jobs=(replace(OBSERVED, sidecars=(sidecar,)),), active_seconds=120.0, healing_seconds=60.0
    )
    outcome = run_trial(plan)
    (uid,) = happening(outcome, FaultKind.SIDECAR_KILL).pod_uids
    exits = set()
    for _, _, pod in states(outcome, PODS):
        statuses = [*pod["status"].get("containerStatuses", ()), *pod["status"].get("initContainerStatuses", ())]
        for each in statuses:
            ended = each["state"].get("terminated")
            if pod["metadata"]["uid"] == uid and ended is not None:
                exits.add((each["name"], ended["exitCode"], ended["reason"]))
    assert exits == {(container, 137, "OOMKilled")}
    assert trains(outcome)


def test_a_container_that_is_killed_is_the_one_that_trains() -> None:
    jobs = (replace(OBSERVED, sidecars=(Sidecar.SHIPPER, Sidecar.NATIVE), runtime=PlannedRuntime.PREPARED),)
    plan = with_faults(in_world(FaultKind.CONTAINER_KILL, 50.0), jobs=jobs, active_seconds=60.0, healing_seconds=30.0)
    outcome = run_trial(plan)
    struck = next(
        pod
        for pod in outcome.evidence.server.objects(PODS)
        if pod["metadata"]["uid"] in happening(outcome, FaultKind.CONTAINER_KILL).pod_uids
    )
    assert state(struck, "node")["terminated"]["exitCode"] == 1
    assert "running" in state(struck, "log-shipper")
    assert struck["status"]["phase"] == "Running", "the log shipper keeps it so"


@pytest.mark.parametrize("marking", Marking)
def test_what_tells_the_container_of_a_bare_jobset(marking: Marking) -> None:
    outcome = trial(Sidecar.SHIPPER, runtime=PlannedRuntime.BARE_JOBSET, marking=marking)
    for pod in pods_of(outcome):
        asks = [each["name"] for each in pod["spec"]["containers"] if each.get("resources")]
        named = pod["metadata"].get("annotations", {}).get("recovery.trainjob.dev/container")
        assert (asks, named) == {
            Marking.ACCELERATORS: (["node"], None),
            Marking.ANNOTATION: ([], "node"),
            Marking.NOTHING: ([], None),
        }[marking]
    assert trains(outcome)


@pytest.mark.parametrize(
    ("sidecars", "known"),
    [((Sidecar.SHIPPER,), False), ((Sidecar.HELPER,), False), ((Sidecar.NATIVE,), True), ((), True)],
)
def test_the_only_container_needs_no_marking(sidecars: tuple[Sidecar, ...], known: bool) -> None:
    job = JobPlan("team-a", "llm", PlannedRuntime.BARE_JOBSET, sidecars=sidecars, marking=Marking.NOTHING)
    assert (training_container(job) is not None) is known
