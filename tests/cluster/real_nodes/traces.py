"""What real nodes could leave behind on a machine, as values to compare before and after."""

import os
from dataclasses import dataclass, fields
from pathlib import Path

from tests.cluster.real_nodes import cgroups, network

# Folders that kubelet, containerd or CNI plugins make wherever they run.
_FOLDERS = (
    "/etc/cni",
    "/opt/cni",
    "/opt/containerd",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
    "/run/containerd",
)
_SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/netfilter/nf_conntrack_max",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
_PROGRAMS = frozenset({"containerd", "containerd-shim", "coredns", "kube-proxy", "kubelet", "runc"})


@dataclass(frozen=True)
class Traces:
    """Each field is a set of lines that name one thing each. Equal fields mean that nothing was added or removed."""

    processes: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    links: frozenset[str]
    addresses: frozenset[str]
    routes: frozenset[str]
    sysctls: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def now(cls) -> "Traces":
        """The traces in this thread's network namespace, and on the machine for everything else."""
        return cls(
            processes=frozenset(_processes()),
            mounts=frozenset(line.split(" ", 4)[4] for line in _lines("/proc/self/mountinfo")),
            cgroups=frozenset(
                str(path) for own in cgroups.own_cgroups().values() for path in own.glob(f"{cgroups.PREFIX}*")
            ),
            links=frozenset(line.split(":")[1].strip() for line in network.run_ip("-o link").splitlines()),
            addresses=frozenset(" ".join(line.split()[1:4]) for line in network.run_ip("-4 -o addr").splitlines()),
            routes=frozenset(
                line.replace("linkdown", "").strip() for line in network.run_ip("-4 -o route").splitlines()
            ),
            sysctls=frozenset(f"{name} = {_text(Path('/proc/sys') / name)}" for name in _SYSCTLS),
            folders=frozenset(path for path in _FOLDERS if Path(path).exists()),
        )

    def difference(self, later: "Traces") -> list[str]:
        """One line for each thing that is only in `later`, or only in this one.

        Earlier processes and cgroups may be gone, because they may belong to other runs.
        """
        lines = []
        for field in fields(self):
            before, after = getattr(self, field.name), getattr(later, field.name)
            lines += [f"{field.name}: left behind: {each}" for each in sorted(after - before)]
            if field.name not in {"processes", "cgroups"}:
                lines += [f"{field.name}: gone: {each}" for each in sorted(before - after)]
        return lines


def _processes() -> list[str]:
    """The processes of the nodes' programs, and the children of this process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        status = dict(line.split(":\t", 1) for line in _lines(folder / "status") if ":\t" in line)
        name, parent = status.get("Name", ""), status.get("PPid", "")
        if name in _PROGRAMS or parent == str(os.getpid()):
            found.append(f"{folder.name} {name}")
    return found


def _lines(path: str | Path) -> list[str]:
    return _text(Path(path)).splitlines()


def _text(path: Path) -> str:
    """Empty: the file is not there, as for a process that has ended."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
