"""Estimates the memory and time that the trial of a scenario needs.

A trial keeps everything that happened until its end, for the invariants and the timeline. So memory grows with the pods
that are created and with the requests of the controllers. Time grows faster than the square of the pods, because for
each pod that changes the controller reads its whole group, and the scheduler all nodes. docs/simulation.md has the
measurements behind these figures.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BASE_MIB = 110.0
"""The program itself."""
POD_MIB = 0.13
"""For each pod that is created: those of a job, and those of each of its restarts."""
RESTART_MIB = 0.7
"""For each restart of a job, in addition to its pods."""
JOB_MIB = 0.3
NODE_MIB = 0.03
NODE_HOUR_MIB = 0.01
REPLICA_HOUR_MIB = 5.0
"""For the requests of each controller in a simulated hour."""

REPLICA_HOUR_SECONDS = 0.35
JOB_SECONDS = 0.06
PAIR_SECONDS = 3e-5
"""For each created pod, times the number of pods."""
TRIPLE_SECONDS = 3e-8
"""For each created pod, times the square of the number of pods."""

REFUSED_SHARE = 0.9
"""The share of the free memory that a trial may need at most. The figures above are accurate to about a fifth."""
WARNED_SHARE = 0.5
WARNED_SECONDS = 600.0


@dataclass(frozen=True)
class SizedJob:
    path: str
    """In the file."""
    pods: int
    restarts: int
    """How many restarts its chaos can cause, at most."""

    @property
    def mib(self) -> float:
        return JOB_MIB + self.pods * POD_MIB + self.restarts * (self.pods * POD_MIB + RESTART_MIB)


@dataclass(frozen=True)
class ScenarioSize:
    """What memory and time depend on."""

    jobs: tuple[SizedJob, ...]
    more_nodes: int
    """Nodes in addition to one for each pod."""
    hours: float
    replicas: int

    @property
    def mib(self) -> float:
        return BASE_MIB + sum(mib for _, mib in self.parts())

    @property
    def seconds(self) -> float:
        """On one x86-64 core of 2026. Accurate to a factor of two."""
        pods = sum(job.pods for job in self.jobs)
        made = sum(job.pods * (1 + job.restarts) for job in self.jobs)
        return (
            self.hours * self.replicas * REPLICA_HOUR_SECONDS
            + len(self.jobs) * JOB_SECONDS
            + made * pods * (PAIR_SECONDS + pods * TRIPLE_SECONDS)
        )

    def parts(self) -> Iterator[tuple[str, float]]:
        """The MiB that each field adds, by path."""
        for job in self.jobs:
            yield f"{job.path}.pods", job.mib + job.pods * (NODE_MIB + NODE_HOUR_MIB * self.hours)
        yield "cluster", self.more_nodes * (NODE_MIB + NODE_HOUR_MIB * self.hours)
        yield "duration", self.replicas * self.hours * REPLICA_HOUR_MIB


def too_large(size: ScenarioSize, free_mib: float) -> dict[str, float]:
    """The fields that need too much memory: each field that does by itself, else the one that needs most.

    The value is the share of the field that would fit. 0: the rest by itself needs too much.
    """
    parts, most_mib = dict(size.parts()), free_mib * REFUSED_SHARE
    if size.mib <= most_mib:
        return {}
    alone = [path for path, mib in parts.items() if mib > most_mib]
    largest = max(parts, key=lambda path: parts[path])
    return {path: max(0.0, 1 - (size.mib - most_mib) / parts[path]) for path in alone or [largest] if parts[path] > 0}


def warnings(size: ScenarioSize, free_mib: float) -> Iterator[str]:
    """Warnings about a scenario that is not refused."""
    if size.mib > free_mib * WARNED_SHARE:
        yield f"this trial needs about {in_gib(size.mib)} of memory, and {in_gib(free_mib)} are free"
    if size.seconds > WARNED_SECONDS:
        yield f"this trial takes about {_in_time(size.seconds)}; fewer pods, jobs or faults make it shorter"


def free_memory_mib() -> float:
    """What this process can still get within the limits of the machine and its container."""
    return min(_in_all_mib(), *_of_machine(), *_of_container())


def _in_all_mib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20


def _of_machine() -> Iterator[float]:
    for line in _text_of(Path("/proc/meminfo")).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            yield int(rest.split()[0]) / 1024


def _of_container() -> Iterator[float]:
    """What the limit of cgroup version 2 leaves."""
    folder = Path("/sys/fs/cgroup")
    most, used = _text_of(folder / "memory.max").strip(), _text_of(folder / "memory.current").strip()
    if most.isdecimal() and used.isdecimal():
        yield (int(most) - int(used)) / 2**20


def _text_of(path: Path) -> str:
    """The text of a file. Empty: it cannot be read, as on systems other than Linux."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def in_gib(mib: float) -> str:
    return f"{mib / 1024:,.1f} GiB"


def _in_time(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} min"
