"""accelerate, deepspeed and torchtune's `tune run`: whether the processes that they start form one group."""

import json

import pytest

from recovery.launch.launch import Launch
from recovery.launch.other_launchers import check
from recovery.launch.places import written
from tests.unit.launch.manifests import group, told


def train_job(command: str, trainer: str = "", *, base: str = "torch") -> Launch:
    """A job of 16 pods with 8 GPUs each, or of 4 pods with `base` mpi."""
    return group(
        f"kind: TrainJob\nspec: {{trainer: {{command: {json.dumps(command.split())}, args: null, {trainer}}}}}",
        base=base,
    )


def job_set(command: str, env: str = "", mounts: str = "", *, shell: bool = False) -> Launch:
    """A JobSet of 8 pods with 8 GPUs each."""
    words = json.dumps(["bash", "-c", command] if shell else command.split())
    container = f"{{name: trainer, command: {words}, args: null, env: [{env}], volumeMounts: [{mounts}]}}"
    pods = f"{{spec: {{template: {{spec: {{containers: [{container}]}}}}}}}}"
    return group(f"kind: JobSet\nspec: {{replicatedJobs: [{{name: worker, template: {pods}}}]}}", base="jobset")


def codes(launch: Launch) -> list[str]:
    return [each.code.name for each in check(launch)]


ONE_GPU = "resourcesPerNode: {requests: null, limits: {nvidia.com/gpu: 1}}"
PET = "{name: PET_NNODES, value: '8'}"
ACCELERATE = "accelerate launch"


@pytest.mark.parametrize(
    ("launch", "code"),
    [
        (job_set(f"{ACCELERATE} --num_machines=1 train.py"), "trains-alone"),
        (job_set(f"{ACCELERATE} --num-machines 1 --num_processes 8 train.py"), "trains-alone"),
        # Under Trainer, accelerate starts a single process without torchrun.
        (train_job(f"{ACCELERATE} --num_machines=1 train.py", ONE_GPU), "trains-alone"),
        (train_job(f"{ACCELERATE} --num_machines=1 --num_processes=1 train.py"), "trains-alone"),
        # With torchrun, --num_processes is per pod.
        (train_job(f"{ACCELERATE} --num_machines=1 --num_processes=128 train.py"), "flags-contradict"),
        (train_job(f"{ACCELERATE} --num_machines=32 train.py"), "flags-contradict"),
        (job_set(f"{ACCELERATE} --num_machines=16 train.py"), "flags-contradict"),
        (train_job(f"{ACCELERATE} --num_machines=16 --machine_rank=0 train.py"), "same-node-rank"),
        (job_set(f"{ACCELERATE} --num_machines=8 --machine_rank=$R train.py", "{name: R, value: '1'}", shell=True),
         "same-node-rank"),
        (train_job(f"{ACCELERATE} --num_machines=16 --main_process_ip=localhost train.py"), "master-nowhere"),
        (train_job(f"{ACCELERATE} --num_machines=16 --main_process_ip=old-node-0-0.old train.py"), "master-doubtful"),
    ],
)  # fmt: skip
def test_accelerate_starts_another_group(launch: Launch, code: str) -> None:
    (finding,) = check(launch)

    assert finding.code.name == code
    assert written(finding.place.path).endswith("command")


@pytest.mark.parametrize(
    "launch",
    [
        # Trainer's variables still apply.
        train_job(f"{ACCELERATE} --num_machines=1 train.py"),
        train_job(f"{ACCELERATE} --num_machines=1 --num_processes=8 train.py"),
        train_job(f"{ACCELERATE} --num_machines=1 --use_fsdp train.py", ONE_GPU),
        train_job(f"{ACCELERATE} --num_machines=1 --num_processes=1 train.py", "numNodes: 1"),
        job_set(f"{ACCELERATE} --num_machines=1 train.py", PET),
        # Without the flag, a config file may set it.
        job_set(f"{ACCELERATE} train.py"),
        job_set(f"{ACCELERATE} --config_file=a.yaml train.py"),
        job_set(f"{ACCELERATE} train.py --num_machines=1"),
        job_set(f"{ACCELERATE} -m train --num_machines=1"),
        job_set(f"{ACCELERATE} --num_machines=$NODES train.py", shell=True),
        job_set(f"{ACCELERATE} --num_machines=8 --machine_rank=$JOB_COMPLETION_INDEX train.py", shell=True),
        job_set(f"{ACCELERATE} --num_machines=8 --machine_rank=0 --rdzv_backend=c10d train.py"),
        job_set(f"{ACCELERATE} --num_machines=8 --main_process_ip=vision-worker-0-0.vision train.py"),
        job_set("accelerate config default"),
    ],
)
def test_accelerate_may_be_right(launch: Launch) -> None:
    assert codes(launch) == []


@pytest.mark.parametrize(
    ("launch", "fix"),
    [
        (
            train_job("deepspeed --deepspeed_config=ds.json train.py"),
            "write torchrun in place of deepspeed, which initializes from torchrun's variables too",
        ),
        (train_job("deepspeed train.py", base="mpi"), "add --hostfile=/etc/mpi/hostfile, which Trainer mounts"),
    ],
)
def test_deepspeed_without_a_hostfile_knows_no_other_node(launch: Launch, fix: str) -> None:
    (finding,) = check(launch)

    assert finding.code.name == "trains-alone"
    assert "it trains on the devices of its own pod alone" in finding.message
    assert finding.fix == fix


def test_deepspeed_with_nodes_that_it_does_not_know_fails() -> None:
    (line,) = told(check, job_set("deepspeed --num_nodes=8 train.py"))

    assert "with --num_nodes=8 it fails" in line


@pytest.mark.parametrize(
    "launch",
    [
        train_job("deepspeed --hostfile=/etc/mpi/hostfile train.py", base="mpi"),
        train_job("deepspeed -H hosts train.py", base="mpi"),
        train_job("deepspeed train.py", "numNodes: 1"),
        job_set("write-hostfile; deepspeed train.py", shell=True),
        job_set("deepspeed train.py", mounts="{name: checkpoints, mountPath: /job}"),
        job_set("ds_report"),
    ],
)
def test_deepspeed_may_have_one(launch: Launch) -> None:
    assert codes(launch) == []


RECIPE = "full_finetune_distributed --config llama3_2/1B_full"


@pytest.mark.parametrize(
    ("launch", "code"),
    [
        (train_job(f"tune run {RECIPE}"), "trains-alone"),
        (train_job(f"tune run {RECIPE}", "numNodes: 1, numProcPerNode: 8"), "no-launcher"),
        (train_job(f"tune run --nproc-per-node=8 {RECIPE}"), "endpoint-missing"),
        (train_job(f"tune run --nproc-per-node=8 --nnodes=1 {RECIPE}"), "trains-alone"),
        (job_set(f"tune run --nproc-per-node=8 {RECIPE}"), "trains-alone"),
        (job_set(f"tune run --nnodes=8 {RECIPE}"), "endpoint-missing"),
        (job_set(f"tune run {RECIPE}"), "trains-alone"),
    ],
)
def test_tune_run_is_standalone_or_a_single_process(launch: Launch, code: str) -> None:
    assert codes(launch) == [code]


@pytest.mark.parametrize(
    "launch",
    [
        train_job("tune run"),  # Trainer completes it
        train_job(f"tune run --nproc-per-node=8 {RECIPE}", "numNodes: 1"),
        train_job("tune run full_finetune_single_device --config a", "numNodes: 1, numProcPerNode: 1"),
        train_job(f"tune run --rdzv-endpoint=llama-node-0-0.llama:29500 {RECIPE}"),
        job_set(f"tune run --nnodes=8 {RECIPE}", "{name: PET_RDZV_ENDPOINT, value: 'a:1'}"),
        job_set(f"tune run --nnodes=$NODES {RECIPE}", shell=True),
        job_set("tune ls"),
    ],
)
def test_tune_run_may_be_right(launch: Launch) -> None:
    assert codes(launch) == []
