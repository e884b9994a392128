"""More links than the container's soft limit of open files allows."""

import contextlib
import shutil
import socket
import sys

import pytest

from recovery.agent._trainjob_recovery.agent import BARRIER_PORT_OFFSET
from recovery.agent._trainjob_recovery.server import SPARE_CONNECTIONS
from tests.agent.launches import AGENT, Pod, free_master_port

SCRIPT = """
import os, resource, sys, time
print("LIMIT", *resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
while not os.path.exists("fail"):
    time.sleep(0.05)
sys.exit(3)
"""


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.parametrize("kind", ["-Sn", "-Hn"])
def test_many_links_neither_flood_the_log_nor_hide_a_failure(pod: Pod, kind: str) -> None:
    shutil.copy(AGENT / "_trainjob_recovery" / "__main__.py", pod.mounted / "_trainjob_recovery" / "__main__.py")
    port = free_master_port()
    options = ["--nnodes=1", "--node-rank=0", "--nproc-per-node=1", f"--master-port={port}", pod.script(SCRIPT)]
    command = [sys.executable, "-m", "torch.distributed.run", *options]
    limited = f'ulimit -Sn 48; ulimit {kind} 48; exec "$0" "$@"'
    with pod.running(["/bin/sh", "-c", limited, *command]) as launch:
        launch.until("the rank runs", lambda: "LIMIT" in launch.said)
        launch.until("the barrier listens", lambda: listens(port + BARRIER_PORT_OFFSET))
        links = [socket.create_connection(("127.0.0.1", port + BARRIER_PORT_OFFSET)) for _ in range(SPARE_CONNECTIONS)]
        (pod.work / "fail").touch()
        assert launch.ends() == 1, launch.complained[-3000:]
    for link in links:
        link.close()
    assert "LIMIT 48 " in launch.said, "a rank has the limit of its container"
    assert len(launch.complained) < 10_000, launch.complained[:3000]
