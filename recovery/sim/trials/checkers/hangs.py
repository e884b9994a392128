"""When the ranks of a training hung, by the trace, and when the API server showed what made them hang."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind, TraceRecord
from recovery.sim.trials.checkers.member_losses import container_of

Process = tuple[str, int]
"""A run of a container that trains: the UID of its pod, and how often the container had restarted."""


def process_of(record: TraceRecord) -> Process:
    return record.pod_uid, record.restart_count


@dataclass
class Hang:
    """A round that lost a rank, and whose other ranks hang until each of them has ended."""

    lost: TraceRecord
    hung: dict[Process, datetime | None] = field(default_factory=dict)
    """When each rank that hangs has ended. None: it still hangs."""


def hangs(records: Iterable[TraceRecord]) -> list[Hang]:
    """All hangs of one training, oldest first. A round whose ranks all ended at the same time is none."""
    found: list[Hang] = []
    of_process: dict[Process, Hang] = {}
    for record in records:
        if record.kind is EventKind.RANK_LOST:
            found.append(Hang(record))
        elif record.kind is EventKind.RANK_HUNG:
            # The trace names the lost rank first, then each rank that hangs because of it.
            of_process[process_of(record)] = found[-1]
            found[-1].hung[process_of(record)] = None
        elif record.kind is EventKind.PROCESS_EXITED and process_of(record) in of_process:
            of_process.pop(process_of(record)).hung[process_of(record)] = record.at
    return [hang for hang in found if hang.hung]


def ended_processes(change: ObjectChange, container: str) -> Iterator[Process]:
    """The processes that have ended, as far as the pod shows after this change."""
    metadata, status = change.body["metadata"], change.body.get("status") or {}
    found = container_of(change.body, container) or {}
    restarts = found.get("restartCount", 0)
    over = change.type == "DELETED" or status.get("phase") in {"Failed", "Succeeded"}
    waits = "waiting" in (found.get("state") or {}) and "terminated" in (found.get("lastState") or {})
    if over or waits or "terminated" in (found.get("state") or {}):
        yield metadata["uid"], restarts
    if restarts:
        yield metadata["uid"], restarts - 1


def running_process(change: ObjectChange, container: str) -> Process | None:
    """The process that runs, as far as the pod shows after this change. None: none does."""
    found = container_of(change.body, container) or {}
    runs = "running" in (found.get("state") or {})
    return (change.body["metadata"]["uid"], found.get("restartCount", 0)) if runs else None
