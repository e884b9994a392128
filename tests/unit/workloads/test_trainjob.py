"""Which Jobs of a TrainJob fail and restart together."""

import pytest

from recovery.core.model.facts import ReplicatedJobFacts
from recovery.workloads import WorkloadAdapter
from recovery.workloads.trainjob import TrainJobAdapter
from tests.unit.workloads.objects import job, jobset

ADAPTER: WorkloadAdapter = TrainJobAdapter()


@pytest.mark.parametrize(
    ("name", "step", "while_running", "once_complete"),
    [
        ("node", "trainer", True, True),
        ("prepare", "dataset-initializer", False, False),
        ("dataset-initializer", "", False, False),
        ("model-initializer", "", False, False),
        ("dataset-initializer", "trainer", True, True),
        ("node", "", True, False),
    ],
)
def test_members(name: str, step: str, while_running: bool, once_complete: bool) -> None:
    of = jobset(ReplicatedJobFacts(name, ancestor=step), ReplicatedJobFacts("other", ancestor="dataset-initializer"))
    assert ADAPTER.is_member(name, of, job()) is while_running
    assert ADAPTER.is_member(name, of, job(complete=True)) is once_complete
    assert ADAPTER.is_member(name, of, None) is while_running, "its Job is gone, its pods are not"


def test_without_a_job_set_the_name_has_to_do() -> None:
    assert ADAPTER.is_member("node", None, job())
    assert not ADAPTER.is_member("model-initializer", None, job())


MPI = jobset(ReplicatedJobFacts("node"), ReplicatedJobFacts("launcher", ancestor="trainer"))
"""deepspeed-distributed and mlx-distributed of Trainer 2.3. The launcher depends on its nodes being Ready, and only the
launcher is marked as trainer. With `runLauncherAsNode` it also computes. Without, it only commands."""


@pytest.mark.parametrize("name", ["node", "launcher"])
def test_launcher_and_nodes_of_an_mpi_runtime_restart_together(name: str) -> None:
    assert ADAPTER.is_member(name, MPI, job())
    assert ADAPTER.is_member(name, MPI, None)


def test_a_launcher_that_is_complete_stays_a_member_because_the_training_is_finishing_then() -> None:
    assert ADAPTER.is_member("launcher", MPI, job(complete=True))


TORCHTUNE = jobset(
    ReplicatedJobFacts("dataset-initializer", ancestor="dataset-initializer"),
    ReplicatedJobFacts("model-initializer", ancestor="model-initializer"),
    ReplicatedJobFacts("node", ancestor="trainer", waits_for_complete=("dataset-initializer", "model-initializer")),
)
"""The torchtune runtimes of Trainer 2.3."""


def test_of_a_runtime_with_initializers_only_the_training_is_a_group() -> None:
    members = [each.name for each in TORCHTUNE.replicated_jobs if ADAPTER.is_member(each.name, TORCHTUNE, None)]
    assert members == ["node"]


def test_a_users_own_preparation_is_no_member_while_it_runs_either() -> None:
    of = jobset(
        ReplicatedJobFacts("unpack"), ReplicatedJobFacts("node", ancestor="trainer", waits_for_complete=("unpack",))
    )
    assert not ADAPTER.is_member("unpack", of, job())
    assert ADAPTER.is_member("node", of, job())


def test_but_training_that_something_waits_for_is_still_training() -> None:
    of = jobset(
        ReplicatedJobFacts("node", ancestor="trainer"), ReplicatedJobFacts("evaluate", waits_for_complete=("node",))
    )
    assert ADAPTER.is_member("node", of, job())
