"""Variables that make a rank with a lost peer end late, never, or without a trace."""

import pytest

from recovery.launch.recoverability import nccl
from recovery.launch.views import EnvVar
from tests.unit.launch.groups import MAIN, container, env, group, job, names, only, pods


def found(values: dict[str, str | None]) -> list[str]:
    return names(nccl.check(group(job(pods(container(env=env(values)))))))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, []),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, ["hangs-for-ever"]),
        ({"NCCL_ASYNC_ERROR_HANDLING": "0"}, ["hangs-for-ever"]),  # the old name is still read
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, []),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}, []),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "NCCL_ASYNC_ERROR_HANDLING": "0"}, []),  # the new name wins
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_BLOCKING_WAIT": "1"}, []),  # the wait itself raises
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_BLOCKING_WAIT": "0"}, ["hangs-for-ever"]),
        ({"TORCH_NCCL_ASYNC_ERROR_HANDLING": None}, []),  # from a ConfigMap, so not known here
        ({"TORCH_NCCL_ENABLE_MONITORING": "0"}, ["watchdog-unwatched"]),
        ({"TORCH_NCCL_ENABLE_MONITORING": "False"}, ["watchdog-unwatched"]),
        ({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "1800"}, []),
        ({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "1801"}, ["watchdog-unwatched"]),
        ({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "an hour"}, []),  # PyTorch itself refuses it
        ({"TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "9999"}, ["watchdog-unwatched"]),
        ({"NCCL_TIMEOUT": "1800"}, ["timeout-not-read"]),
        ({"NCCL_IB_TIMEOUT": "22"}, []),  # a variable of NCCL itself
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, ["no-flight-recorder"]),
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "20000"}, []),
        ({"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, []),
        ({"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}, ["no-flight-recorder"]),
        ({"NCCL_DEBUG": "INFO"}, []),
    ],
)
def test_variables(values: dict[str, str | None], told: list[str]) -> None:
    assert found(values) == told


def test_of_two_entries_of_one_name_the_kubelet_takes_the_last() -> None:
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    twice = (EnvVar(name, MAIN / "env" / 0, "0"), EnvVar(name, MAIN / "env" / 1, "1"))
    assert names(nccl.check(group(job(pods(container(env=twice)))))) == []


def test_the_finding_names_the_line_and_the_consequence() -> None:
    values = env({"NCCL_DEBUG": "WARN", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "86400"})
    finding = only(nccl.check(group(job(pods(container(env=values))))))
    assert finding.place == MAIN / "env" / 1
    assert finding.message == (
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=86400: a rank whose NCCL watchdog is stuck in a CUDA or NCCL call hangs for "
        "1 d before it is ended"
    )
