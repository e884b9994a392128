"""Checks whether the ranks of a pod have enough shared memory.

The container runtime gives a pod 64 MiB at /dev/shm (containerd: internal/cri, defaultShmSize). NCCL puts the segments
there through which the ranks of a node exchange data, and PyTorch the batches from the workers of a DataLoader. A pod
gets more through an emptyDir of medium Memory at that path, which counts towards its memory limit.
"""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.processes import CLAIM, TPU, devices_of
from recovery.launch.views import Container, PodTemplate, VolcanoJob

SMALL_SHM = Code("small-shm", Severity.WARNING, "the ranks of a pod share 64 MiB of memory")
CODES = (SMALL_SHM,)

_PATH = "/dev/shm"  # noqa: S108 - a path in a manifest
_ENOUGH_FOR = 2
"""For this many ranks. NCCL has a segment of about 9 MiB for each channel and direction between two ranks."""
_PATHS = frozenset({_PATH, "/dev"})
_CRIO = "io.kubernetes.cri-o.ShmSize"
_FIX = f"mount an emptyDir with medium: Memory at {_PATH}"


def check(launch: Launch) -> Iterator[LintFinding]:
    by_patch = " of the runtime, or by runtimePatches of the TrainJob" if launch.train_job is not None else ""
    for member in launch.members:
        if member.main is not None:
            yield from _of(member.main, member.template, by_patch)


def check_volcano(job: VolcanoJob) -> Iterator[LintFinding]:
    for task in job.tasks:
        for container in task.pods.containers:
            yield from _of(container, task.pods, "")


def _of(main: Container, pods: PodTemplate, by_patch: str) -> Iterator[LintFinding]:
    accelerators = _accelerators(main)
    if accelerators <= _ENOUGH_FOR or pods.host_ipc or _CRIO in pods.annotations:
        return
    mounted = [each for each in main.mounts if each.path.rstrip("/") in _PATHS]
    if not mounted:
        message = (
            f"container {main.name} has {accelerators} accelerators and no volume at {_PATH}, which then has 64 MiB: "
            "NCCL and the workers of a DataLoader can fail for want of shared memory (a Bus error)"
        )
        yield LintFinding(SMALL_SHM, main.place, message, f"{_FIX} in container {main.name}{by_patch}")
    elif all(_on_disk(pods, each.volume) for each in mounted):
        message = (
            f"the emptyDir at {_PATH} of container {main.name} has no medium Memory: what its ranks share is written "
            "to the disk of the node"
        )
        yield LintFinding(SMALL_SHM, main.place, message, "write emptyDir: {medium: Memory}")


def _accelerators(main: Container) -> int:
    """Accelerators whose ranks exchange data through shared memory. How many a DRA claim gives is not known: 0."""
    found = devices_of(main.resources)
    return 0 if CLAIM in found else sum(count for name, count in found.items() if name != TPU)


def _on_disk(pods: PodTemplate, volume: str) -> bool:
    return any(each.name == volume and each.source == "emptyDir" and each.medium == "" for each in pods.volumes)
