"""The environment of a rank: the literal values that torchrun 2.13 gives, and nothing of the agent."""

from dataclasses import replace

from recovery.agent._trainjob_recovery.flags import launch_options
from recovery.agent._trainjob_recovery.rank_environment import (
    FOLDER,
    MARKER,
    rank_environment,
    sets_one_thread,
    with_hook,
    without_agent,
)

PET = {
    "PET_NNODES": "4",
    "PET_NPROC_PER_NODE": "2",
    "PET_NODE_RANK": "3",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
}
OPTIONS = launch_options(["--rdzv-id=run", "--role=trainer", "train.py"], PET)


def test_a_rank_has_what_torchrun_gives() -> None:
    found = rank_environment(OPTIONS, {"HOME": "/root", **PET}, epoch=2, local_rank=1, error_file="/e.json")
    assert found == PET | {
        "HOME": "/root",
        "RANK": "7",
        "LOCAL_RANK": "1",
        "GROUP_RANK": "3",
        "ROLE_RANK": "7",
        "ROLE_NAME": "trainer",
        "LOCAL_WORLD_SIZE": "2",
        "WORLD_SIZE": "8",
        "GROUP_WORLD_SIZE": "4",
        "ROLE_WORLD_SIZE": "8",
        "MASTER_ADDR": "job-node-0-0.job",
        "MASTER_PORT": "29400",
        "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "run",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCHELASTIC_ERROR_FILE": "/e.json",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }


def test_one_thread_is_set_for_several_ranks_without_a_value_only() -> None:
    one = replace(OPTIONS, ranks_per_node=1)
    assert sets_one_thread(OPTIONS, {})
    assert not sets_one_thread(one, {})
    assert not sets_one_thread(OPTIONS, {"OMP_NUM_THREADS": "6"})
    assert "OMP_NUM_THREADS" not in rank_environment(one, {}, epoch=1, local_rank=0, error_file="")
    found = rank_environment(OPTIONS, {"OMP_NUM_THREADS": "6"}, epoch=1, local_rank=0, error_file="")
    assert found["OMP_NUM_THREADS"] == "6"


def test_the_users_error_handling_of_nccl_stays() -> None:
    environ = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}
    found = rank_environment(OPTIONS, environ, epoch=1, local_rank=0, error_file="")
    assert found["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


def test_nothing_of_the_agent_is_left() -> None:
    injected = {"RECOVERY_AGENT_URL": "u", "_TRAINJOB_RECOVERY_LAUNCHER": "l", "RECOVERY_PREIMPORT": "numpy"}
    assert without_agent({**injected, "PYTHONPATH": FOLDER}) == {"RECOVERY_PREIMPORT": "numpy"}
    assert without_agent({"PYTHONPATH": f"{FOLDER}:/a:/b"}) == {"PYTHONPATH": "/a:/b"}
    assert without_agent({"PYTHONPATH": "/a"}) == {"PYTHONPATH": "/a"}


def test_the_hook_comes_by_the_path_and_a_marker() -> None:
    assert with_hook({"PYTHONPATH": "/a"}) == {"PYTHONPATH": f"{FOLDER}:/a", MARKER: "1"}
    assert with_hook({}) == {"PYTHONPATH": FOLDER, MARKER: "1"}
