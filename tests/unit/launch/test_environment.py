"""Trainer's own variables, and those that a user wrote."""

import pytest

from recovery.launch.environment import MPI, TORCH, XGBOOST, check
from recovery.launch.places import written
from tests.unit.launch.manifests import group, told

NODE_ENV = "containers: [{name: node, env: [{name: %s, value: x}]}]"
RUNTIME = (
    "kind: ClusterTrainingRuntime\nspec: {template: {spec: {replicatedJobs: "
    "[{name: %s, template: {spec: {template: {spec: {%s}}}}}]}}}"
)
XGBOOST_POLICY = "---\nkind: ClusterTrainingRuntime\nspec: {mlPolicy: {torch: null, xgboost: {}}}"


def job_env(*names: str) -> str:
    variables = ", ".join(f"{{name: {name}, value: x}}" for name in names)
    return f"kind: TrainJob\nspec: {{trainer: {{env: [{variables}]}}}}\n"


@pytest.mark.parametrize("name", TORCH)
def test_a_variable_of_torch_is_refused_in_a_train_job(name: str) -> None:
    (sentence,) = told(check, group(job_env("OMP_NUM_THREADS", name)))

    assert sentence == (
        f"reserved-env: {name} is Trainer's own under a torch runtime: its webhook refuses the job ({TORCH[name]})"
    )


def test_who_wants_an_elastic_range_is_told_how() -> None:
    (finding,) = check(group(job_env("PET_NNODES")))

    assert finding.fix == (
        "remove it and set spec.trainer.numNodes; for an elastic range write torchrun --nnodes=min:max "
        "--rdzv-backend=c10d --rdzv-endpoint=host:port in spec.trainer.command"
    )
    assert written(finding.place.path) == "spec.trainer.env[0]"


@pytest.mark.parametrize("name", MPI)
def test_a_variable_of_mpi_is_refused_under_mpi_only(name: str) -> None:
    assert [each.code.name for each in check(group(job_env(name), base="mpi"))] == ["reserved-env"]
    assert told(check, group(job_env(name))) == []


@pytest.mark.parametrize("name", XGBOOST)
def test_a_variable_of_xgboost_is_refused_under_xgboost_only(name: str) -> None:
    assert [each.code.name for each in check(group(job_env(name) + XGBOOST_POLICY))] == ["reserved-env"]
    assert told(check, group(job_env(name))) == []


def test_each_variable_is_told_where_it_stands() -> None:
    found = check(group(job_env("PET_NNODES", "A", "PET_MASTER_PORT")))

    assert [written(each.place.path) for each in found] == ["spec.trainer.env[0]", "spec.trainer.env[2]"]


def test_where_the_runtime_is_not_known_nothing_is_reserved() -> None:
    elsewhere = "---\nkind: ClusterTrainingRuntime\nmetadata: {name: other}"

    assert told(check, group(job_env("PET_NNODES") + elsewhere)) == []


@pytest.mark.parametrize("name", TORCH)
def test_a_variable_in_the_runtime_is_overridden(name: str) -> None:
    (sentence,) = told(check, group(RUNTIME % ("node", NODE_ENV % name)))

    assert sentence.startswith(
        f"env-overridden: {name} of the runtime's container node has no effect: Trainer overrides it ("
    )


def test_it_is_not_overridden_where_nothing_is_set() -> None:
    """Cases: no spec.trainer, another container, the address of torchtune, and the workers of MPI."""
    runtime = RUNTIME % ("node", NODE_ENV % "PET_MASTER_ADDR")
    sidecar = RUNTIME % ("node", "containers: [{name: side, env: [{name: PET_NNODES, value: x}]}]")

    assert told(check, group("kind: TrainJob\nspec: {trainer: null}\n---\n" + runtime)) == []
    assert told(check, group(sidecar)) == []
    assert told(check, group("kind: TrainJob\nspec: {trainer: {command: [tune, run]}}\n---\n" + runtime)) == []
    assert told(check, group(RUNTIME % ("node", NODE_ENV % "OMPI_MCA_plm_rsh_args"), base="mpi")) == []


def test_of_mpi_those_of_the_launcher_are_overridden() -> None:
    launch = group(RUNTIME % ("launcher", NODE_ENV % "OMPI_MCA_plm_rsh_args"), base="mpi")

    assert [each.code.name for each in check(launch)] == ["env-overridden"]
