"""Experiment files: what they say."""

import pytest

from recovery.core.model.drill import DrillAction, Hypothesis, MarkedTaint, Objectives, ResumesPast
from recovery.core.model.ledger import Phase
from recovery.scenario.experiment import Experiment, ExperimentLimits, read_experiment
from recovery.scenario.experiment_chaos import ExperimentChaos
from recovery.scenario.schema import SelectionMode
from tests.unit.scenario.experiment_files import KILL, experiment


def test_a_whole_file() -> None:
    assert read_experiment("""
        name: lose-a-rank
        target: {job: research/llm}
        seed: 7
        repeat: 3
        chaos:
        - {kind: PodChaos, action: pod-kill, mode: one}
        - {kind: PodChaos, action: pod-kill, mode: fixed-percent, value: "1", during: Rendezvous}
        hypothesis: {incidents: 1, charged: 0, resumesPast: checkpoint}
        slo: {recovery: 90s, idleGpuSeconds: 20000}
        limits: {nodes: 2, gpus: 64, checkpointAge: 30m}
    """) == Experiment(
        name="lose-a-rank",
        namespace="research",
        job="llm",
        seed=7,
        repeat=3,
        chaos=(
            ExperimentChaos("chaos[0]", 0, DrillAction.POD_KILL, SelectionMode.ONE, at_seconds=0.0),
            ExperimentChaos(
                "chaos[1]", 1, DrillAction.POD_KILL, SelectionMode.FIXED_PERCENT, value=1, during=Phase.RENDEZVOUS
            ),
        ),
        hypothesis=Hypothesis(incidents=1, charged=0, resumes_past=ResumesPast.CHECKPOINT),
        slo=Objectives(recovery="90s", idle_gpu_seconds=20000.0),
        recovery_seconds=90.0,
        limits=ExperimentLimits(nodes=2, gpus=64, checkpoint_age_seconds=1800.0),
    )


def test_the_shortest_file() -> None:
    """The namespace is that of the command line, and one repeat opens one incident, which is not charged."""
    assert read_experiment(f"{{name: x, target: {{job: llm}}, chaos: [{KILL}]}}") == Experiment(
        name="x",
        namespace=None,
        job="llm",
        seed=0,
        repeat=1,
        chaos=(ExperimentChaos("chaos[0]", 0, DrillAction.POD_KILL, SelectionMode.ONE, at_seconds=0.0),),
        hypothesis=Hypothesis(incidents=1, charged=0),
    )


@pytest.mark.parametrize(
    ("chaos", "action"),
    [
        ("{kind: PodChaos, action: pod-kill, mode: one}", DrillAction.POD_KILL),
        ("{kind: PodChaos, action: pod-evict, mode: one}", DrillAction.POD_EVICT),
        ("{kind: PodChaos, action: process-kill, mode: one}", DrillAction.PROCESS_KILL),
        ("{kind: PhysicalMachineChaos, action: cordon, mode: one}", DrillAction.CORDON),
        ("{kind: PhysicalMachineChaos, action: taint, mode: one}", DrillAction.TAINT),
        ("{kind: PhysicalMachineChaos, action: condition, mode: one}", DrillAction.CONDITION),
    ],
)
def test_what_runs_on_a_cluster(chaos: str, action: DrillAction) -> None:
    (found,) = experiment(chaos).chaos
    assert found.action is action


def test_every_action_of_a_drill_can_be_written() -> None:
    written = [
        *(f"{{kind: PodChaos, action: {each}, mode: one}}" for each in DrillAction if not each.of_nodes),
        *(f"{{kind: PhysicalMachineChaos, action: {each}, mode: one}}" for each in DrillAction if each.of_nodes),
    ]
    assert {each.action for each in experiment(*written).chaos} == set(DrillAction)


def test_the_selector_limits_the_choice_to_indexes_of_the_target() -> None:
    (found,) = experiment(
        "{kind: PodChaos, action: pod-kill, mode: fixed, value: 2, selector: {job: research/llm, indexes: [3, 1, 2]}}"
    ).chaos
    assert (found.indexes, found.value) == ((3, 1, 2), 2)


def test_at_counts_from_the_start_of_the_repeat() -> None:
    assert [each.at_seconds for each in experiment(KILL, KILL.replace("}", ", at: 1m30s}")).chaos] == [0.0, 90.0]


def test_a_pod_is_deleted_by_force_only_if_the_file_says_so() -> None:
    found = experiment(KILL, KILL.replace("}", ", gracePeriod: 0}")).chaos
    assert [each.grace_seconds for each in found] == [None, 0]


@pytest.mark.parametrize(
    ("taint", "found"),
    [
        ("", MarkedTaint(key="recovery.trainjob.dev/drill", effect="NoSchedule")),
        (", taint: {value: xid}", MarkedTaint(key="recovery.trainjob.dev/drill", effect="NoSchedule", value="xid")),
        (
            ", taint: {key: nvidia.com/gpu-unhealthy, effect: NoExecute}",
            MarkedTaint(key="nvidia.com/gpu-unhealthy", effect="NoExecute"),
        ),
    ],
)
def test_a_taint_is_ours_unless_the_file_names_the_one_of_a_health_agent(taint: str, found: MarkedTaint) -> None:
    (chaos,) = experiment(f"{{kind: PhysicalMachineChaos, action: taint, mode: one{taint}}}").chaos
    assert chaos.taint == found


@pytest.mark.parametrize(
    "phase",
    [
        Phase.DETECTED,
        Phase.DECIDED,
        Phase.STOPPING,
        Phase.TEARING_DOWN,
        Phase.BACKOFF,
        Phase.SCHEDULING,
        Phase.STARTING,
        Phase.RENDEZVOUS,
        Phase.RESUMING,
    ],
)
def test_later_chaos_can_wait_for_a_phase(phase: Phase) -> None:
    _, second = experiment(KILL, KILL.replace("}", f", during: {phase}}}")).chaos
    assert (second.during, second.at_seconds) == (phase, None)


def test_what_describes_the_modelled_cluster_may_stand_beside_the_target() -> None:
    """It is for `recovery simulate`. Even a value that no trial could run with is none of an experiment's business."""
    model = """
jobs: [{name: llm, namespace: research, pods: 0}]
duration: 30m
healing: 30m
cluster: {nodes: 3}
controllers: {replicas: 0}
rates: {request: 0.5}
"""
    assert experiment(more=model) == experiment()
