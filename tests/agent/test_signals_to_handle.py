"""--signals-to-handle as stock torchrun takes it."""

import shutil
import sys

import pytest

from tests.agent.launches import AGENT, Pod, free_master_port


@pytest.mark.parametrize("signals", ["SIGTERM,SIGFOO", "SIGTERM, SIGUSR1", ""])
def test_a_signal_that_this_system_does_not_know_is_left_out(pod: Pod, signals: str) -> None:
    shutil.copy(AGENT / "_trainjob_recovery" / "__main__.py", pod.mounted / "_trainjob_recovery" / "__main__.py")
    options = ["--nnodes=1", "--node-rank=0", f"--master-port={free_master_port()}", f"--signals-to-handle={signals}"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, pod.script("print('ran')")]
    with pod.running(command) as launch:
        assert launch.ends() == 0
    assert launch.said.startswith("ran") or "\nran" in launch.said
