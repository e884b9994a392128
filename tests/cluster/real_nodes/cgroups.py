"""The cgroups of a node: one in each v1 hierarchy, below the cgroup of the test run.

They are the root of the node's cgroup namespace, so its kubelet sees no other cgroup of the machine.
"""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
NAMED = "systemd"
"""A hierarchy without a controller. runc requires it."""
PREFIX = "trainjob-recovery-cluster-"
_PATIENCE_SECONDS = 60.0


def own_cgroups() -> dict[str, Path]:
    """Hierarchy -> the folder of this process's cgroup."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.removeprefix("name=").split(","):
            if name in (*CONTROLLERS, NAMED):
                found[name] = ROOT / name / path.lstrip("/")
    return found


def make_cgroups(name: str) -> list[Path]:
    """`name` must begin with PREFIX and the name of the cluster's folder."""
    made = []
    for hierarchy, parent in own_cgroups().items():
        folder = parent / name
        folder.mkdir()
        if hierarchy == "cpuset":  # its files are empty in a new cgroup, which then admits no process
            for file in ("cpuset.cpus", "cpuset.mems"):
                (folder / file).write_text((parent / file).read_text())
        made.append(folder)
    return made


def remove_cgroups(folders: list[Path]) -> None:
    """Removes cgroups and all below them. It waits for their dying processes: only an empty cgroup can be removed.

    Raises TimeoutError with the processes that remain.
    """
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    for folder in folders:
        while folder.exists():
            for path in _bottom_up(folder):
                try:
                    path.rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    if time.monotonic() > give_up_at:
                        tasks = (path / "cgroup.procs").read_text().split()
                        raise TimeoutError(f"{path} cannot be removed; its processes: {tasks or 'none'}") from None
                    time.sleep(0.02)
                    break


def remove_abandoned_cgroups(temporary: Path) -> None:
    """Removes the cgroups of killed test runs, whose cluster's folder below `temporary` is gone.

    The kernel has ended their processes, because each one was set to die with its parent.
    """
    for parent in own_cgroups().values():
        for folder in parent.glob(f"{PREFIX}*.node-*"):
            if not (temporary / folder.name.split(".node-")[0]).exists():
                remove_cgroups([folder])


def processes_in(folders: list[Path]) -> set[int]:
    """The process ids, in the machine's PID namespace, of everything that runs on the node."""
    return {int(pid) for folder in folders for path in _bottom_up(folder) for pid in _processes(path).split()}


def _processes(folder: Path) -> str:
    try:
        return (folder / "cgroup.procs").read_text()
    except OSError as error:
        # A container has ended in the meantime, and its cgroup is gone.
        if error.errno in {errno.ENOENT, errno.ENODEV}:
            return ""
        raise


def _bottom_up(folder: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(folder, topdown=False):
        yield Path(path)
