"""Commands that start other numbers of processes than the settings say."""

import pytest

from recovery.launch.launch import Launch
from recovery.launch.launchers import check
from recovery.launch.places import written
from tests.unit.launch.manifests import group, told


def commanded(command: str, trainer: str = "") -> Launch:
    """A job of 16 nodes with 8 GPUs each."""
    return group(f"kind: TrainJob\nspec: {{trainer: {{command: {command}, {trainer}}}}}")


@pytest.mark.parametrize(
    ("command", "trainer", "sentence"),
    [
        (
            "[python, train.py]",
            "numProcPerNode: null",
            "no-launcher: `python train.py` starts 1 process where 8 are meant on each node (one for each of the 8 "
            "nvidia.com/gpu), unless the script starts the others itself (write torchrun in place of python)",
        ),
        (
            "[torchrun, --standalone, train.py]",
            "",
            "flags-contradict: torchrun --standalone makes each of the 16 pods wait for 15 others in a rendezvous of "
            "its own (remove --standalone)",
        ),
        (
            "[torchrun, --standalone, --nnodes=1, train.py]",
            "",
            "flags-contradict: torchrun --standalone makes each of the 16 pods train by itself (remove --standalone)",
        ),
        (
            "[torchrun, --standalone, --rdzv-backend=c10d, train.py]",
            "numNodes: 1",
            "flags-contradict: torchrun --standalone ignores --rdzv-backend (remove --standalone)",
        ),
        (
            '[torchrun, --nproc_per_node=4, --nproc-per-node, "8", train.py]',
            "",
            "flags-contradict: --nproc-per-node=4 has no effect, as --nproc-per-node=8 stands after it (remove one "
            "--nproc-per-node)",
        ),
        (
            "[torchrun, --master-addr=a, '--rdzv-endpoint=b:1', train.py]",
            "",
            "flags-contradict: --master-addr=a has no effect beside --rdzv-endpoint=b:1 (remove one of the two)",
        ),
        (
            "[torchrun, --nnodes=8, train.py]",
            "",
            "flags-contradict: torchrun goes by --nnodes=8, whatever numNodes says: 8 of the 16 pods find no place "
            "in the group (remove --nnodes: Trainer sets PET_NNODES)",
        ),
        (
            '[torchrun, "--nnodes=20:32", train.py]',
            "",
            "flags-contradict: torchrun goes by --nnodes=20:32, whatever numNodes says: the 16 pods wait for 4 more "
            "that never come (remove --nnodes: Trainer sets PET_NNODES)",
        ),
        (
            "[torchrun, --nproc-per-node=4, train.py]",
            "",
            "flags-contradict: torchrun --nproc-per-node=4 wins over spec.trainer.numProcPerNode, which is 8 "
            "(remove --nproc-per-node: Trainer sets PET_NPROC_PER_NODE)",
        ),
        (
            "[torchrun, --nproc-per-node=4, train.py]",
            "numProcPerNode: null",
            "flags-contradict: torchrun --nproc-per-node=4 starts 4 on each node, which has 8 nvidia.com/gpu "
            "(remove --nproc-per-node: Trainer sets PET_NPROC_PER_NODE)",
        ),
    ],
)
def test_what_contradicts(command: str, trainer: str, sentence: str) -> None:
    assert told(check, commanded(command, trainer)) == [sentence]


def test_all_that_contradicts_is_told_in_one_finding() -> None:
    """All contradictions are in one line of the manifest."""
    (line,) = told(check, commanded("[torchrun, --nnodes=8, --nproc_per_node=4, train.py]"))

    assert "torchrun goes by --nnodes=8" in line
    assert "torchrun --nproc-per-node=4 wins over spec.trainer.numProcPerNode, which is 8" in line
    assert "remove --nnodes: Trainer sets PET_NNODES; remove --nproc-per-node: " in line


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        (8, ""),
        (4, ""),  # two groups of 4
        (16, "with --nnodes=16 the 8 pods wait for 8 more that never come (write --nnodes=8, or ask for 16 pods)"),
    ],
)
def test_a_jobset_is_told_of_nodes_that_never_come(nodes: int, sentence: str) -> None:
    container = f"{{name: trainer, command: [torchrun, --nnodes={nodes}, train.py], args: null}}"
    pods = f"{{spec: {{template: {{spec: {{containers: [{container}]}}}}}}}}"
    launch = group(f"kind: JobSet\nspec: {{replicatedJobs: [{{name: worker, template: {pods}}}]}}", base="jobset")

    assert told(check, launch) == ([f"flags-contradict: {sentence}"] if sentence else [])


@pytest.mark.parametrize(
    ("command", "trainer"),
    [
        ("[torchrun, train.py]", ""),
        ("[torchrun, --nnodes=16, --nnodes=16, train.py]", ""),
        ("[torchrun, --master-addr=a, '--rdzv-endpoint=a:1', train.py]", ""),
        ("[torchrun, --nnodes=16, --nproc-per-node=8, train.py]", ""),
        ('[torchrun, "--nnodes=12:16", train.py]', ""),
        ("[torchrun, --nnodes=$NODES, --nproc-per-node=$GPUS, train.py]", ""),
        ("[torchrun, --nproc-per-node=gpu, train.py]", ""),
        ("[torchrun, --standalone, train.py]", "numNodes: 1"),
        ("[python, train.py]", "numProcPerNode: 1"),
        ("[tune, run]", ""),
        ("[bash, run.sh]", ""),
        (f"[torchrun, --nnodes={'9' * 5000}, --nproc-per-node={'9' * 5000}, train.py]", ""),
        # How many processes run on CPUs is the user's choice.
        (
            "[torchrun, --nproc-per-node=2, train.py]",
            "numProcPerNode: null, resourcesPerNode: {requests: null, limits: {nvidia.com/gpu: null, cpu: 8}}",
        ),
    ],
)
def test_what_does_not(command: str, trainer: str) -> None:
    assert told(check, commanded(command, trainer)) == []


def test_the_line_is_that_of_the_command() -> None:
    in_job = commanded("[torchrun, --nnodes=8, train.py]")
    in_runtime = group("""
kind: TrainJob
spec: {trainer: {command: null, args: null}}
---
kind: ClusterTrainingRuntime
spec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [
  {name: node, command: [torchrun, --nnodes=8, train.py]}]}}}}}]}}}
""")

    assert [written(each.place.path) for launch in (in_job, in_runtime) for each in check(launch)] == [
        "spec.trainer.command",
        "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].command",
    ]


def test_a_command_of_mpi_is_not_judged() -> None:
    assert told(check, group("kind: TrainJob\nspec: {trainer: {command: [python, train.py]}}", base="mpi")) == []
