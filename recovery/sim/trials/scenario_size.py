"""What the trial of a scenario needs of this machine, and whether it has that.

A trial keeps all that happened until its end, for the invariants and the timeline. So memory grows with the pods that
are made and with the requests of the controllers. Time grows faster than the square of the pods: for each pod that
changes the controller looks at its whole group, and the scheduler at all nodes. docs/simulation.md has the measurements
behind these figures.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BASE_MIB = 110.0
"""The program itself."""
POD_MIB = 0.13
"""Each pod that is made: those of a job, and those of each of its restarts."""
RESTART_MIB = 0.7
"""Each restart of a job, besides its pods."""
JOB_MIB = 0.3
NODE_MIB = 0.03
NODE_HOUR_MIB = 0.01
REPLICA_HOUR_MIB = 5.0
"""Each controller, for the requests of a simulated hour."""

REPLICA_HOUR_SECONDS = 0.35
JOB_SECONDS = 0.06
PAIR_SECONDS = 3e-5
"""Each pod that is made, for each pod that there is."""
TRIPLE_SECONDS = 3e-8
"""The same, for each two pods that there are."""

REFUSED_SHARE = 0.9
"""Of the memory that is free: what a trial may need at most. The figures above are good to about a fifth."""
WARNED_SHARE = 0.5
WARNED_SECONDS = 600.0


@dataclass(frozen=True)
class SizedJob:
    path: str
    """In the file."""
    pods: int
    restarts: int
    """That its chaos can lead to."""

    @property
    def mib(self) -> float:
        return JOB_MIB + self.pods * POD_MIB + self.restarts * (self.pods * POD_MIB + RESTART_MIB)


@dataclass(frozen=True)
class ScenarioSize:
    """What memory and time depend on."""

    jobs: tuple[SizedJob, ...]
    more_nodes: int
    """Besides one for each pod."""
    hours: float
    replicas: int

    @property
    def mib(self) -> float:
        return BASE_MIB + sum(mib for _, mib in self.parts())

    @property
    def seconds(self) -> float:
        """Of one core of x86-64 in 2026. Good to a factor of two."""
        pods = sum(job.pods for job in self.jobs)
        made = sum(job.pods * (1 + job.restarts) for job in self.jobs)
        return (
            self.hours * self.replicas * REPLICA_HOUR_SECONDS
            + len(self.jobs) * JOB_SECONDS
            + made * pods * (PAIR_SECONDS + pods * TRIPLE_SECONDS)
        )

    def parts(self) -> Iterator[tuple[str, float]]:
        """What each field adds, by its path."""
        for job in self.jobs:
            yield f"{job.path}.pods", job.mib + job.pods * (NODE_MIB + NODE_HOUR_MIB * self.hours)
        yield "cluster", self.more_nodes * (NODE_MIB + NODE_HOUR_MIB * self.hours)
        yield "duration", self.replicas * self.hours * REPLICA_HOUR_MIB


def too_large(size: ScenarioSize, free_mib: float) -> dict[str, float]:
    """The fields that need the memory that is not there: each that does alone, else the one that needs most.

    With the share of it that would fit; 0: the rest alone needs too much.
    """
    parts, most_mib = dict(size.parts()), free_mib * REFUSED_SHARE
    if size.mib <= most_mib:
        return {}
    alone = [path for path, mib in parts.items() if mib > most_mib]
    largest = max(parts, key=lambda path: parts[path])
    return {path: max(0.0, 1 - (size.mib - most_mib) / parts[path]) for path in alone or [largest] if parts[path] > 0}


def warnings(size: ScenarioSize, free_mib: float) -> Iterator[str]:
    """About a scenario that is not refused."""
    if size.mib > free_mib * WARNED_SHARE:
        yield f"this trial needs about {in_gib(size.mib)} of memory, and {in_gib(free_mib)} are free"
    if size.seconds > WARNED_SECONDS:
        yield f"this trial takes about {_in_time(size.seconds)}; fewer pods, jobs or faults make it shorter"


def free_memory_mib() -> float:
    """What this process can still get, by the machine and by its container."""
    return min(_in_all_mib(), *_of_machine(), *_of_container())


def _in_all_mib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20


def _of_machine() -> Iterator[float]:
    for line in _text_of(Path("/proc/meminfo")).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            yield int(rest.split()[0]) / 1024


def _of_container() -> Iterator[float]:
    """By cgroup version 2."""
    folder = Path("/sys/fs/cgroup")
    most, used = _text_of(folder / "memory.max").strip(), _text_of(folder / "memory.current").strip()
    if most.isdecimal() and used.isdecimal():
        yield (int(most) - int(used)) / 2**20


def _text_of(path: Path) -> str:
    """Empty: it cannot be read, as on systems other than Linux."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def in_gib(mib: float) -> str:
    return f"{mib / 1024:,.1f} GiB"


def _in_time(seconds: float) -> str:
    return f"{seconds / 3600:.0f} h" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} min"
