"""Measurements of one run of the suite, for docs/benchmarks.md. There are no bounds: machines differ."""

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.cluster.real_nodes.cgroups import ROOT
from tests.cluster.scene import REPOSITORY
from tests.real_nodes.installation import Installation
from tests.real_nodes.trainings import JOINED_FILE, Training

FILE = REPOSITORY / "build" / "real-nodes.json"


async def of_training(test: str, training: Training) -> dict[str, Any]:
    """The phases of its incident according to the record, and the rendezvous as its ranks measured it, in seconds."""
    return {
        "test": test,
        "runtime": training.runtime,
        "phases": await phase_seconds(training),
        "rendezvous of the ranks": await rendezvous_seconds(training),
    }


async def phase_seconds(training: Training) -> dict[str, float]:
    """From the record of its only incident."""
    return phases_of(await training.record())


def phases_of(record: dict[str, Any]) -> dict[str, float]:
    """Seconds of each phase. Repeated phases are added up."""
    phases: dict[str, float] = {}
    for span in record["phases"]:
        seconds = _seconds(span["startedAt"], span["endedAt"])
        phases[span["phase"]] = round(phases.get(span["phase"], 0.0) + seconds, 3)
    return phases


async def of_replica(installation: Installation, pod: dict[str, Any]) -> dict[str, Any]:
    """Memory of its container's cgroup, and from the container's start to Ready, which Kubernetes dates in seconds."""
    stat = dict(line.split() for line in _memory_cgroup(installation.processes_of(pod)[0]).read_text().splitlines())
    [status] = pod["status"]["containerStatuses"]
    [ready] = [each for each in pod["status"]["conditions"] if each["type"] == "Ready"]
    return {
        "rss bytes": int(stat["total_rss"]),
        "start-up seconds": _seconds(status["state"]["running"]["startedAt"], ready["lastTransitionTime"]),
    }


def keep(figures: dict[str, list[dict[str, Any]]]) -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(figures, indent=1) + "\n")


def _seconds(began: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


async def rendezvous_seconds(training: Training) -> float:
    """As in the ledger, but dated by the machine: from the start of the last rank until the last one has joined."""
    begun, joined = [], []
    for rank in range(training.ranks):
        process = (await training.processes_of_rank(rank))[0]
        begun.append(_started_at(process))
        joined.append(Path(f"/proc/{process}/root{JOINED_FILE}").stat().st_mtime)
    return round(max(joined) - max(begun), 2)


def _started_at(process: int) -> float:
    """In seconds since the epoch, like time.time()."""
    ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def _memory_cgroup(process: int) -> Path:
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if names == "memory":
            return ROOT / "memory" / path.lstrip("/") / "memory.stat"
    raise AssertionError(f"process {process} is in no memory cgroup")
