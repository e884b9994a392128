"""A console that takes nothing: a full disk, a reader that has gone, a closed stream. stock torchrun goes on."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.agent.launches import AGENT, GUARD_SECONDS, Pod, free_master_port

FAILS = "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit(3)\ntime.sleep(600)\n"


@contextmanager
def agent(pod: Pod, script: str, *options: str, redirected: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The agent as the shell of a container starts it, with these redirections."""
    shutil.copy(AGENT / "_trainjob_recovery" / "__main__.py", pod.mounted / "_trainjob_recovery" / "__main__.py")
    launch = ["-m", "torch.distributed.run", "--nnodes=1", "--node-rank=0", "--nproc-per-node=2"]
    command = [sys.executable, *launch, f"--master-port={free_master_port()}", *options, script]
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$0" "$@" {redirected}', *command],
        cwd=pod.work,
        env=pod.environment(),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("redirected", [">/dev/null 2>/dev/full", ">/dev/full 2>&1", ">&- 2>&-"])
def test_a_failed_rank_ends_the_launch_although_nothing_can_be_said(pod: Pod, redirected: str) -> None:
    with agent(pod, pod.script(FAILS), redirected=redirected) as process:
        assert process.wait(GUARD_SECONDS) == 1


@pytest.mark.parametrize("redirected", [">/dev/full 2>&1", ">&-", ">&- 2>&-"])
def test_ranks_that_end_well_end_the_launch_with_0_although_nothing_can_be_said(pod: Pod, redirected: str) -> None:
    with agent(pod, pod.script("pass"), "--tee=3", redirected=redirected) as process:
        assert process.wait(GUARD_SECONDS) == 0
