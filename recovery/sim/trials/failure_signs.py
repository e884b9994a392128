"""What failures leave behind: exits of processes with the last lines that they wrote, and what monitors say of nodes.

The lines are those of the real programs, shortened: PyTorch 2 (`CUDA out of memory`, NCCL's watchdog), the NVIDIA
driver (`NVRM: Xid`), CPython's tracebacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from recovery.scenario.failure_sign import Sign


@dataclass(frozen=True)
class Left:
    """What an exit leaves behind. `code` None: the fault's own code."""

    message: str
    code: int | None = None
    reason: str = ""


LEFT: Mapping[Sign, Left] = {
    Sign.NONE: Left(""),
    Sign.TRACEBACK: Left(
        'Traceback (most recent call last):\n  File "/workspace/train.py", line 212, in main\n'
        "    loss = batch['labels']\nKeyError: 'labels'\n",
        1,
    ),
    Sign.CUDA_OOM: Left(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of "
        "79.11 GiB of which 1.06 GiB is free.\n",
        1,
    ),
    Sign.HOST_OOM: Left("", 137, "OOMKilled"),
    Sign.XID: Left(
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=4141, name=python, GPU has fallen off the bus.\n"
        "RuntimeError: CUDA error: unknown error\n",
        1,
    ),
    Sign.NCCL_WATCHDOG: Left(
        "[rank5]:[E ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=48211, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n",
        134,
    ),
    Sign.CONNECTION_RESET: Left(
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, "
        "NCCL version 2.27.3\nncclRemoteError: socketProgress: Connection closed by remote peer, connection reset by "
        "peer\n",
        1,
    ),
}

PEERS: tuple[Sign, Sign] = (Sign.NCCL_WATCHDOG, Sign.CONNECTION_RESET)
"""How the survivors of a lost rank end. They take turns."""

GPU_CONDITION = "GpuUnhealthy"
"""A condition of a node, as node-problem-detector's custom plugins set it. True: a GPU is bad."""
GPU_CONDITION_REASON = "XidCriticalError"
MONITOR_TAINT = "nvidia.com/gpu-unhealthy"
"""The taint that a health monitor adds to a node, besides a cordon, to keep new pods off."""
