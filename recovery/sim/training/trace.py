"""What really happened to the training, as only the model can know it: the checkers' own evidence.

The controller claims recoveries in status and metrics; this trace is what those claims are held against, so it takes
nothing from the API server.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec


class EventKind(StrEnum):
    PROCESS_STARTED = "process_started"
    ROUND_FORMED = "round_formed"
    """All ranks of the JobSet's Jobs have met; step counting goes on from the last checkpoint."""
    RANK_LOST = "rank_lost"
    """A rank of a training round died: the round makes no more steps."""
    RANK_HUNG = "rank_hung"
    """A survivor of that round, from now on stuck in a collective operation."""
    PROCESS_EXITED = "process_exited"
    CHECKPOINT = "checkpoint"
    REPORTED = "reported"
    """Rank 0 has reported progress; whether the report arrives is another matter."""
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class TraceRecord:
    """One event. Those of a whole training leave the fields of a process empty."""

    at: datetime
    kind: EventKind
    training: str
    """Namespace and name of the JobSet, joined by a slash: the same for all incarnations."""
    job_uid: str
    """What happens to a whole training is recorded once for each of its Jobs."""
    step: int
    """Steps that the training had done by then."""
    member: str = ""
    """Which of the JobSet's Jobs it belongs to: the ReplicatedJob and the index, as in `node-0`."""
    pod: str = ""
    pod_uid: str = ""
    restart_count: int = 0
    index: int | None = None
    node: str = ""
    exit_code: int | None = None
    """None: not an exit."""


@dataclass(frozen=True)
class Overlap:
    """Processes of several Jobs that were one member of a training ran at once. `until` None: they still do."""

    job_uids: tuple[str, ...]
    since: datetime
    until: datetime | None


class Trace:
    """All records in the order in which things happened; `sink`, if any, gets each as a line of JSON."""

    def __init__(self, sink: Callable[[bytes], None] | None = None) -> None:
        self.records: list[TraceRecord] = []
        self._sink = sink

    def add(self, record: TraceRecord) -> None:
        self.records.append(record)
        if self._sink:
            self._sink(msgspec.json.encode(record) + b"\n")

    def of(self, training: str, *kinds: EventKind) -> list[TraceRecord]:
        """The records of one training; no kinds: all."""
        return [
            record for record in self.records if record.training == training and (not kinds or record.kind in kinds)
        ]

    def overlaps(self, training: str) -> list[Overlap]:
        """The times in which processes of more than one Job UID of a member ran, hung and dying ones included."""
        return list(_overlaps(self.of(training, EventKind.PROCESS_STARTED, EventKind.PROCESS_EXITED)))


def _overlaps(records: Iterable[TraceRecord]) -> Iterable[Overlap]:
    alive: dict[str, Counter[str]] = {}
    together: tuple[str, ...] = ()
    since: datetime | None = None
    for record in records:
        member = alive.setdefault(record.member, Counter())
        member[record.job_uid] += 1 if record.kind is EventKind.PROCESS_STARTED else -1
        running = ([uid for uid, processes in jobs.items() if processes > 0] for jobs in alive.values())
        now = tuple(uid for uids in running if len(uids) > 1 for uid in uids)
        if now == together:
            continue
        if since:
            yield Overlap(together, since, record.at)
        together, since = now, record.at if now else None
    if since:
        yield Overlap(together, since, None)
