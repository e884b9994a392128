"""Whether the pods of torchrun form one group: how many there are, the rank of each, and where rank 0 is."""

import json

import pytest

from recovery.launch.launch import Launch
from recovery.launch.places import written
from recovery.launch.ranks import check
from tests.unit.launch.manifests import group, told

C10D = "--rdzv-backend=c10d"


def train_job(*flags: str, trainer: str = "") -> Launch:
    """A job of 16 pods. Trainer sets PET_NNODES, PET_NODE_RANK and PET_MASTER_ADDR."""
    command = json.dumps(["torchrun", *flags, "train.py"])
    return group(f"kind: TrainJob\nspec: {{trainer: {{command: {command}, {trainer}}}}}")


def job_set(*flags: str, env: str = "", job: str = "", spec: str = "", more: str = "", shell: bool = False) -> Launch:
    """8 pods of `vision`, in one Job of ReplicatedJob `worker`."""
    words = ["torchrun", *flags, "train.py"]
    command = json.dumps(["bash", "-c", " ".join(words)] if shell else words)
    container = f"{{name: trainer, command: {command}, args: null, env: [{env}]}}"
    pods = f"{{spec: {{template: {{spec: {{containers: [{container}]}}}}}}}}"
    jobs = f"[{{name: worker, {job} template: {pods}}}, {more}]"
    return group(f"kind: JobSet\nspec: {{{spec} replicatedJobs: {jobs}}}", base="jobset")


def codes(launch: Launch) -> list[str]:
    return [each.code.name for each in check(launch)]


# --- the rank of a node ----------------------------------------------------------------------------------------------

AT = "--master-addr=vision-worker-0-0.vision"


@pytest.mark.parametrize(
    ("launch", "told_as"),
    [
        (train_job("--node_rank=0"), "--node-rank=0"),
        (train_job("--node-rank", "3"), "--node-rank=3"),
        (job_set("--nnodes=8", AT), "no --node-rank, and its default is 0"),
        (job_set("--nnodes=8", AT, "--node-rank=0"), "--node-rank=0"),
        (job_set("--nnodes=8", AT, env="{name: PET_NODE_RANK, value: '1'}"), "no --node-rank, and its default is 1"),
        (job_set(AT, env="{name: PET_NNODES, value: '8'}"), "no --node-rank, and its default is 0"),
        (job_set("--nnodes=$A", AT, "--node-rank=$B", env="{name: A, value: '8'}, {name: B, value: '0'}", shell=True),
         "--node-rank=0"),
    ],
)  # fmt: skip
def test_all_pods_have_one_rank(launch: Launch, told_as: str) -> None:
    (line,) = told(check, launch)

    assert line.startswith(f"same-node-rank: torchrun has {told_as} in each of the {launch.nodes} pods: ")


@pytest.mark.parametrize(
    "launch",
    [
        train_job(),
        train_job("--node-rank=0", trainer="numNodes: 1"),
        train_job("--node-rank=0", "--nnodes=1"),
        # c10d assigns the ranks and ignores --node-rank.
        train_job("--node-rank=0", C10D, "--rdzv-endpoint=llama-node-0-0.llama:29500"),
        job_set("--nnodes=8", AT, "--node-rank=$(JOB_COMPLETION_INDEX)"),
        job_set("--nnodes=8", AT, "--node-rank=$JOB_COMPLETION_INDEX", shell=True),
        job_set("--nnodes=8", AT, "--node-rank=$RANK", shell=True),
        job_set("--nnodes=8", AT, "--node-rank=$RANK", env="{name: RANK, valueFrom: {fieldRef: {fieldPath: a}}}"),
        job_set("--nnodes=8", AT, env="{name: PET_NODE_RANK, valueFrom: {fieldRef: {fieldPath: a}}}"),
        # The number of nodes, or the flags, are not known.
        job_set("--nnodes=$NODES", AT, "--node-rank=0", shell=True),
        job_set("--nnodes=8", AT, "$FLAGS", shell=True),
        # A master and its workers have different ranks.
        job_set("--nnodes=9", AT, "--node-rank=1", more="{name: master, template: {spec: {template: {spec: {}}}}}"),
        job_set("--nnodes=8", "--standalone", "--node-rank=0"),
    ],
)
def test_ranks_that_differ_or_are_not_known_are_not_told_of(launch: Launch) -> None:
    assert codes(launch) == []


def test_the_shell_may_set_the_rank_itself() -> None:
    script = "export PET_NODE_RANK=$JOB_COMPLETION_INDEX; torchrun --nnodes=8 --master-addr=a train.py"
    container = f"{{name: trainer, command: [bash, -c, '{script}'], args: null}}"
    pods = f"{{spec: {{template: {{spec: {{containers: [{container}]}}}}}}}}"
    launch = group(f"kind: JobSet\nspec: {{replicatedJobs: [{{name: worker, template: {pods}}}]}}", base="jobset")

    assert codes(launch) == []


@pytest.mark.parametrize(
    "words",
    [
        "command: null, args: [torchrun, --nnodes=8, train.py]",
        "command: [bash, -c, 'source env.sh; torchrun --nnodes=8 --master-addr=$MASTER train.py'], args: null",
        "command: [bash, -c, 'set -e; . ./env.sh && torchrun --nnodes=8 train.py'], args: null",
    ],
)
def test_an_entrypoint_or_a_file_may_set_the_variables(words: str) -> None:
    container = f"{{name: trainer, {words}, env: [{{name: MASTER, value: localhost}}]}}"
    pods = f"{{spec: {{template: {{spec: {{containers: [{container}]}}}}}}}}"
    launch = group(f"kind: JobSet\nspec: {{replicatedJobs: [{{name: worker, template: {pods}}}]}}", base="jobset")

    assert codes(launch) == []


@pytest.mark.parametrize("index", ["$(JOB_COMPLETION_INDEX)", "${JOB_COMPLETION_INDEX}"])
def test_the_index_begins_at_0_in_each_job(index: str) -> None:
    (line,) = told(check, job_set("--nnodes=16", f"--node-rank={index}", AT, job="replicas: 2,", shell="{" in index))

    assert line.startswith("same-node-rank: the completion index begins at 0 in each of the 2 Jobs")
    assert "of the 16 ranks only 8 are taken, by 2 pods each" in line


def test_each_job_may_be_a_group() -> None:
    index = "--node-rank=$(JOB_COMPLETION_INDEX)"

    assert codes(job_set("--nnodes=8", index, "--master-addr=$MASTER", job="replicas: 2,")) == []


@pytest.mark.parametrize(
    ("launch", "fix"),
    [
        (train_job("--node-rank=0"), "remove --node-rank: Trainer sets PET_NODE_RANK"),
        (
            job_set("--nnodes=8", AT),
            "write $(JOB_COMPLETION_INDEX) as --node-rank, or --rdzv-backend=c10d "
            "--rdzv-endpoint=vision-worker-0-0.vision:29500, which gives out the ranks",
        ),
        (
            job_set("--nnodes=8", AT, shell=True),
            "write $JOB_COMPLETION_INDEX as --node-rank, or --rdzv-backend=c10d "
            "--rdzv-endpoint=vision-worker-0-0.vision:29500, which gives out the ranks",
        ),
    ],
)
def test_the_fix_of_a_rank(launch: Launch, fix: str) -> None:
    (finding,) = check(launch)

    assert finding.fix == fix
    assert written(finding.place.path).endswith("command")


# --- the address of rank 0 -------------------------------------------------------------------------------------------

INDEX = "--node-rank=$(JOB_COMPLETION_INDEX)"


@pytest.mark.parametrize(
    ("launch", "code"),
    [
        (job_set("--nnodes=8", INDEX), "master-nowhere"),
        (job_set("--nnodes=8", INDEX, "--master-addr=localhost"), "master-nowhere"),
        (job_set("--nnodes=8", INDEX, env="{name: PET_MASTER_ADDR, value: 127.0.0.1}"), "master-nowhere"),
        (job_set("--nnodes=8", INDEX, "--rdzv-endpoint=[::1]:29500"), "master-nowhere"),
        (job_set("--nnodes=8", C10D, "--rdzv-endpoint=localhost:29500"), "endpoint-missing"),
        (train_job("--master-addr=localhost"), "master-nowhere"),
        # In the job's own domain, but not the name of a pod.
        (train_job("--master-addr=llama-worker-0-0.llama"), "master-nowhere"),
        (train_job("--master-addr=llama-node-0-16.llama"), "master-nowhere"),
        (train_job("--master-addr=llama-node-1-0.llama.research.svc.cluster.local"), "master-nowhere"),
        (train_job(C10D, "--rdzv-endpoint=llama-master-0.llama:29500"), "master-nowhere"),
        (job_set("--nnodes=8", "--node-rank=$RANK", "--master-addr=$M", env="{name: M, value: a.vision}", shell=True),
         "master-nowhere"),
        # Trainer makes the first pod rank 0.
        (train_job("--master-addr=llama-node-0-1.llama"), "master-nowhere"),
        # The name of another job, or a name without the right domain.
        (train_job("--master-addr=old-node-0-0.old"), "master-doubtful"),
        (train_job("--rdzv-endpoint=old-node-0-0.old:29500"), "master-doubtful"),
        (job_set("--nnodes=8", C10D, "--rdzv-endpoint=vision-worker-0-0:29500"), "master-doubtful"),
        (job_set("--nnodes=8", C10D, "--rdzv-endpoint=vision-worker-0-0.vision", spec="network: {subdomain: a},"),
         "master-doubtful"),
    ],
)  # fmt: skip
def test_rank_0_is_not_found_there(launch: Launch, code: str) -> None:
    assert codes(launch) == [code]


@pytest.mark.parametrize(
    "launch",
    [
        train_job("--master-addr=llama-node-0-0.llama"),
        train_job("--master-addr=llama-node-0-0.llama.research.svc.cluster.local"),
        train_job("--master-addr=10.0.0.1"),
        train_job("--master-addr=rendezvous"),
        train_job("--master-addr=rendezvous.research.svc"),
        train_job("--master-addr=$MASTER"),
        train_job("--master-addr={{ .Values.master }}"),
        # Any pod may hold c10d's store.
        train_job(C10D, "--rdzv-endpoint=llama-node-0-15.llama:29500"),
        train_job("--rdzv-backend=etcd-v2", "--rdzv-endpoint=localhost:2379"),
        train_job("--master-addr=localhost", trainer="numNodes: 1"),
        job_set("--nnodes=8", C10D, "--rdzv-endpoint=vision-worker-0-0.a", spec="network: {subdomain: a},"),
        # Other JobSets may share that domain.
        job_set("--nnodes=8", C10D, "--rdzv-endpoint=store-0-0.a", spec="network: {subdomain: a},"),
        job_set("--nnodes=8", INDEX, "--master-addr=$M", env="{name: M, value: localhost}"),  # nothing expands $M
    ],
)
def test_an_address_that_is_right_or_not_known_is_not_told_of(launch: Launch) -> None:
    assert codes(launch) == []


def test_without_host_names_no_pod_has_one() -> None:
    launch = job_set("--nnodes=8", INDEX, AT, spec="network: {enableDNSHostnames: false},")

    assert codes(launch) == ["master-nowhere"]


def test_a_name_that_is_generated_is_not_known() -> None:
    manifest = "kind: JobSet\nmetadata: {name: null, generateName: vision-}\nspec: {replicatedJobs: [{name: worker}]}"

    assert codes(group(manifest, base="jobset")) == []


@pytest.mark.parametrize(
    ("launch", "fix"),
    [
        (train_job("--master-addr=localhost"), "remove --master-addr: Trainer sets PET_MASTER_ADDR"),
        (train_job("--rdzv-endpoint=a-0-0-0.a:1"), "write --rdzv-endpoint=llama-node-0-0.llama:29500"),
        (job_set("--nnodes=8", INDEX), "write --master-addr=vision-worker-0-0.vision"),
    ],
)
def test_the_fix_of_an_address(launch: Launch, fix: str) -> None:
    (finding,) = check(launch)

    assert finding.fix == fix


# --- groups of one pod -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "told_as"),
    [
        ((), "no --nnodes, and its default is 1"),
        (("--nproc-per-node=8",), "no --nnodes, and its default is 1"),
        ((AT,), "no --nnodes, and its default is 1"),
        (("--nnodes=1", AT), "--nnodes=1"),
        ((C10D, "--rdzv-endpoint=vision-worker-0-0.vision"), "no --nnodes, and its default is 1"),
    ],
)
def test_each_pod_trains_alone(flags: tuple[str, ...], told_as: str) -> None:
    assert told(check, job_set(*flags)) == [
        f"trains-alone: torchrun has {told_as}: each of the 8 pods takes itself for the only one, and trains alone "
        "(write --nnodes=8 --rdzv-backend=c10d --rdzv-endpoint=vision-worker-0-0.vision:29500, if the pods are to "
        "train together)"
    ]


@pytest.mark.parametrize(
    "launch",
    [
        job_set("--standalone"),
        job_set("--nnodes=1"),
        job_set("--nproc-per-node=8", "--rdzv-id=$JOB_COMPLETION_INDEX"),
        job_set(env="{name: PET_NNODES, value: '8'}, {name: PET_RDZV_BACKEND, value: c10d}, "
                "{name: PET_RDZV_ENDPOINT, value: a:1}"),
        job_set(job="replicas: 0,"),
    ],
)  # fmt: skip
def test_pods_that_may_be_meant_to_train_alone_are_not_told_of(launch: Launch) -> None:
    assert codes(launch) == []
