"""Whether the training's output still exists after a failure, and whether the training then reads it."""

import pytest

from recovery.launch.recoverability import checkpoints
from recovery.launch.views import Container, MlPolicy, Mount, MpiPolicy, Trainer, Volume
from tests.unit.launch.groups import JOB, MAIN, PODS, TRAIN_JOB, container, env, group, job, names, only, pods

TRAINS = ("torchrun", "train.py")


def found(main: Container, *volumes: str, nodes: int = 16, gpus_per_pod: int = 8) -> list[str]:
    """The findings for a group with a volume of each of these sources, named after its source."""
    template = pods(main, volumes=tuple(Volume(each, PODS / "volumes" / 0, each) for each in volumes))
    return names(checkpoints.check(group(job(template), nodes=nodes, gpus_per_pod=gpus_per_pod)))


def mounts(*volumes: str, read_only: bool = False) -> tuple[Mount, ...]:
    return tuple(Mount(each, f"/{each}", read_only) for each in volumes)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("persistentVolumeClaim", []),
        ("nfs", []),
        ("csi", []),
        ("cephfs", []),
        ("emptyDir", ["checkpoint-lost"]),
        ("ephemeral", ["checkpoint-lost"]),  # its claim is deleted with the pod
        ("configMap", ["checkpoint-lost"]),
        ("hostPath", ["checkpoint-on-node"]),
    ],
)
def test_what_outlives_the_pod(source: str, told: list[str]) -> None:
    assert found(container(mounts=mounts(source)), source) == told


def test_a_volume_of_the_pod_that_the_training_does_not_mount_is_of_no_use() -> None:
    assert found(container(mounts=()), "persistentVolumeClaim") == ["checkpoint-lost"]


def test_a_volume_to_read_data_from_is_of_no_use() -> None:
    assert found(container(mounts=mounts("nfs", read_only=True)), "nfs") == ["checkpoint-lost"]


def test_a_mount_of_no_volume_of_the_pod_comes_from_the_jobset() -> None:
    assert found(container(mounts=mounts("shared"))) == []


def test_a_volume_of_the_node_beside_one_of_the_network_is_no_matter() -> None:
    assert found(container(mounts=mounts("hostPath", "nfs")), "hostPath", "nfs") == []


@pytest.mark.parametrize(
    "main",
    [
        container(mounts=(), args=("--checkpoint-dir=s3://bucket/run",)),
        container(mounts=(), args=("--resume", "gs://checkpoints/run")),
        container(mounts=(), env=env({"CHECKPOINTS": "abfss://data@account.dfs.core.windows.net/run"})),
        container(mounts=(), env=env({"CHECKPOINT_BUCKET": None})),
        container(mounts=(), env=env({"AWS_ACCESS_KEY_ID": None})),
    ],
    ids=["s3", "gs", "by a variable", "a variable from elsewhere", "credentials"],
)
def test_an_object_store_outlives_everything(main: Container) -> None:
    assert found(main) == []


@pytest.mark.parametrize("url", ["file:///tmp/run", "tcp://llm-node-0-0:29500", "env://", "--ddp-bucket-size=25"])
def test_not_everything_that_looks_like_one_is_a_store(url: str) -> None:
    assert found(container(mounts=(), args=(url,))) == ["checkpoint-lost"]


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (16, 0)])
def test_short_jobs_and_such_without_gpus_are_left_alone(nodes: int, gpus: int) -> None:
    assert found(container(mounts=(), command=TRAINS), nodes=nodes, gpus_per_pod=gpus) == []


def test_two_nodes_are_enough_to_lose_one() -> None:
    assert found(container(mounts=()), nodes=2) == ["checkpoint-lost"]


def test_what_is_lost_is_told_in_gpus() -> None:
    template = pods(container(mounts=()))
    assert (
        "what 128 GPUs have computed is lost with the first failure"
        in only(checkpoints.check(group(job(template)))).message
    )


@pytest.mark.parametrize(
    ("main", "told"),
    [
        (container(command=TRAINS), ["no-resume"]),
        (container(command=(*TRAINS, "--payload=7", "--uploads", "3")), ["no-resume"]),
        (container(command=(*TRAINS, "--resume")), []),
        (container(command=(*TRAINS, "--load", "/checkpoints")), []),
        (container(command=(*TRAINS, "--load-dir=/data")), []),
        (container(command=(*TRAINS, "--snapshot-path", "/data/last.pt")), []),
        (container(command=TRAINS, env=env({"CKPT_DIR": "/data"})), []),
        (container(command=(*TRAINS, "--config", "/etc/run")), []),  # the config may set it
        (container(command=("bash", "run.sh")), []),
        (container(command=()), []),  # the image's own entrypoint, which is not known here
    ],
)
def test_signs_that_the_training_goes_on_from_a_checkpoint(main: Container, told: list[str]) -> None:
    template = pods(main)
    assert names(checkpoints.check(group(job(template)))) == told


def test_nothing_to_resume_from_is_more_telling_than_no_resume() -> None:
    assert found(container(command=TRAINS, mounts=())) == ["checkpoint-lost"]


def test_the_line_to_change_is_the_trainjobs_where_that_has_the_command() -> None:
    trains = job(pods(container(command=TRAINS)))
    by_job = Trainer(TRAIN_JOB / "spec" / "trainer", command=TRAINS)
    assert only(checkpoints.check(group(trains))).place == MAIN
    assert only(checkpoints.check(group(trains, trainer=by_job))).place == TRAIN_JOB / "spec" / "trainer" / "command"


def test_of_an_mpi_job_the_launcher_is_asked() -> None:
    mpi = MlPolicy(JOB, mpi=MpiPolicy(JOB))
    sshd = job(pods(container(command=("/usr/sbin/sshd",), mounts=())), ancestor="")
    assert names(checkpoints.check(group(sshd, ml_policy=mpi))) == []
