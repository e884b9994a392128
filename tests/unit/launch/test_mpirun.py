"""Whether mpirun starts as many processes as Trainer gives it slots."""

import json

import pytest

from recovery.launch.launch import Launch
from recovery.launch.mpirun import check
from tests.unit.launch.manifests import group, told

NOT_A_NODE = "\n---\nkind: ClusterTrainingRuntime\nspec: {mlPolicy: {mpi: {runLauncherAsNode: false}}}"


def commanded(command: str, trainer: str = "", more: str = "") -> Launch:
    """A job of 4 nodes with 8 slots each. The launcher is one of them."""
    words = json.dumps(command.split())
    return group(f"kind: TrainJob\nspec: {{trainer: {{command: {words}, args: null, {trainer}}}}}{more}", base="mpi")


@pytest.mark.parametrize("flag", ["-np", "--np", "-n"])
def test_fewer_processes_leave_accelerators_idle(flag: str) -> None:
    assert told(check, commanded(f"mpirun --allow-run-as-root {flag} 16 python train.py")) == [
        "mpirun-processes: mpirun -np 16 of 32 slots (4 pods with 8 each) leaves 16 of them idle, and their "
        "accelerators with them (remove -np: OpenMPI then starts one process for each slot)"
    ]


def test_more_processes_are_refused() -> None:
    (line,) = told(check, commanded("mpiexec -np 64 python train.py"))

    assert "mpirun -np 64 of 32 slots (4 pods with 8 each) is refused by OpenMPI" in line


def test_a_launcher_that_does_not_train_has_no_slots() -> None:
    (line,) = told(check, commanded("mpirun -np 16 python train.py", more=NOT_A_NODE))

    assert "of 32 slots (4 pods with 8 each)" in line


def test_a_variable_of_the_container_is_known() -> None:
    env = "env: [{name: WORLD, value: '8'}]"

    assert len(told(check, commanded("mpirun -np $(WORLD) python train.py", env))) == 1


@pytest.mark.parametrize(
    ("command", "trainer"),
    [
        ("mpirun python train.py", ""),
        ("mpirun -np 32 python train.py", ""),
        ("mpirun -np $(WORLD) python train.py", ""),
        ("mpirun -np 16 --host a,b python train.py", ""),
        ("mpirun -np 16 --hostfile hosts python train.py", ""),
        ("mpirun -np 64 --oversubscribe python train.py", ""),
        ("mpirun -np 64 --map-by slot:OVERSUBSCRIBE python train.py", ""),
        ("mpirun -np 64 python train.py", "env: [{name: OMPI_MCA_rmaps_base_oversubscribe, value: 'true'}]"),
        ("mpirun -np 4 -N 1 python train.py", ""),
        ("mpirun -np 1 python server.py : -np 31 python train.py", ""),
        ("mpirun python train.py -np 16", ""),
        ("torchrun -np 16 train.py", ""),
    ],
)
def test_what_is_right_or_uses_other_slots_is_not_told_of(command: str, trainer: str) -> None:
    assert told(check, commanded(command, trainer)) == []


def test_on_cpus_idle_slots_cost_nothing() -> None:
    cpus = "kind: TrainJob\nspec: {trainer: {command: [mpirun, -np, '2', python, a.py], resourcesPerNode: null}}"
    runtime = ["kind: ClusterTrainingRuntime", "spec:", "  template:", "    spec:", "      replicatedJobs:"]
    for name in ("node", "launcher"):
        container = "{name: node, resources: {limits: {nvidia.com/gpu: null}}}"
        runtime.append(
            f"      - {{name: {name}, template: {{spec: {{template: {{spec: {{containers: [{container}]}}}}}}}}}}"
        )
    launch = group("\n".join((cpus, "---", *runtime)), base="mpi")

    assert launch.gpus == 0
    assert told(check, launch) == []
