"""The modelled cluster of an experiment."""

import pytest

from recovery.core.model.drill import Hypothesis, Objectives
from recovery.scenario.experiment_model import experiment_model
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.scenario.schema import (
    PodAction,
    PodChaos,
    ScenarioCluster,
    ScenarioFile,
    ScenarioJob,
    ScenarioLimits,
    ScenarioTarget,
    SelectionMode,
)

KILL = PodChaos(action=PodAction.POD_KILL, mode=SelectionMode.ONE)


@pytest.mark.parametrize(("job", "namespace"), [("research/llm", "research"), ("llm", "default")])
def test_a_job_stands_in_for_the_target(job: str, namespace: str) -> None:
    model = experiment_model(ScenarioFile(name="x", target=ScenarioTarget(job), seed=7, chaos=(KILL,)))
    stand_in = ScenarioJob(
        name="llm", namespace=namespace, runtime=PlannedRuntime.JOINED, pods=8, policy={"mode": "Enforce"}
    )
    assert model == ScenarioFile(name="x", jobs=(stand_in,), seed=7)


def test_jobs_of_the_file_are_modelled_as_they_are() -> None:
    jobs = (ScenarioJob(name="llm", pods=2), ScenarioJob(name="eval", pods=1))
    cluster = ScenarioCluster(spares=4)
    model = experiment_model(ScenarioFile(name="x", target=ScenarioTarget("llm"), jobs=jobs, cluster=cluster))
    assert model == ScenarioFile(name="x", jobs=jobs, cluster=cluster)


def test_the_model_says_nothing_that_only_an_experiment_says() -> None:
    file = ScenarioFile(
        name="x",
        target=ScenarioTarget("llm"),
        repeat=3,
        hypothesis=Hypothesis(incidents=2),
        slo=Objectives(recovery="90s"),
        limits=ScenarioLimits(nodes=2),
    )
    plain = ScenarioFile(name="x", target=ScenarioTarget("llm"))
    assert experiment_model(file) == experiment_model(plain)
