"""What the end of a failed process looks like."""

from enum import StrEnum


class Sign(StrEnum):
    """How the end of a process looks from outside."""

    NONE = "none"
    """An exit code and nothing more."""
    TRACEBACK = "traceback"
    """An error of the training script, which recurs on any node."""
    CUDA_OOM = "cuda-oom"
    HOST_OOM = "host-oom"
    """The kernel's OOM killer. The reason says OOMKilled."""
    XID = "xid"
    """The GPU fell off the bus."""
    NCCL_WATCHDOG = "nccl-watchdog"
    """A survivor of a broken collective. It is never the cause."""
    CONNECTION_RESET = "connection-reset"
    """A survivor too: a rank that had a socket open to the lost rank."""
