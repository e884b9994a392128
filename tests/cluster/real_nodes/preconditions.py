"""What a machine must have for real nodes, checked before anything starts."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.cluster.real_nodes import cgroups
from tests.cluster.real_nodes.images import BUSYBOX
from tests.cluster.real_nodes.settings import CNI_PROGRAMS
from tests.debian_packages import NODES

_PROGRAMS = ("ip", "nft", "runc", "unshare")


def missing_preconditions() -> list[str]:
    """One line for each missing precondition, with its fix. Empty: real nodes can be started."""
    if sys.platform != "linux":
        return ["this is not Linux, and the nodes are made of its namespaces and cgroups"]
    missing = []
    if os.geteuid() != 0:
        missing.append("only root may make network namespaces and cgroups: run it as root, in a container or a VM")
    packages = f"apt-get install {' '.join(NODES)}"
    missing += [f"{program} is not installed: {packages}" for program in _PROGRAMS if not shutil.which(program)]
    missing += [f"{path} is not there: {packages}" for path in (BUSYBOX, CNI_PROGRAMS / "bridge") if not path.exists()]
    missing += _missing_cgroups()
    if "overlay" not in Path("/proc/filesystems").read_text():
        missing.append("the kernel has no overlay file system: modprobe overlay")
    if _on_overlay(tempfile.gettempdir()):
        missing.append(
            f"{tempfile.gettempdir()} is an overlay, on which none can be laid: set TMPDIR to a folder on a disk"
        )
    return missing


def _missing_cgroups() -> list[str]:
    own = cgroups.own_cgroups()
    missing = []
    for name in (*cgroups.CONTROLLERS, cgroups.NAMED):
        if name not in own:
            missing.append(f"there is no cgroup v1 hierarchy {name}: boot with systemd.unified_cgroup_hierarchy=0")
        elif not os.access(own[name], os.W_OK):
            missing.append(f"{own[name]} cannot be written to: mount the cgroups read-write")
    return missing


def _on_overlay(path: str) -> bool:
    """Whether that path is on an overlay file system, as is everything in a container except volumes."""
    device = os.stat(path).st_dev
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        major, minor = head.split()[2].split(":")
        if os.makedev(int(major), int(minor)) == device:
            return tail.split()[0] == "overlay"
    return False
