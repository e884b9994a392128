"""What really happened to the training, as only the model can know it: evidence for the checkers.

The controller reports recoveries in status and metrics. The checkers compare those reports with this trace, so it uses
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
    """All ranks of the JobSet's Jobs have met. Step counting continues from the last checkpoint."""
    RANK_LOST = "rank_lost"
    """A rank of a round died: the round makes no more steps."""
    RANK_HUNG = "rank_hung"
    """A surviving rank of that round is stuck in a collective operation from now on."""
    PROCESS_EXITED = "process_exited"
    CHECKPOINT = "checkpoint"
    REPORTED = "reported"
    """Rank 0 has sent a progress report. It may not have arrived."""
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class TraceRecord:
    """One event. For events of a whole training the fields of a process are empty."""

    at: datetime
    kind: EventKind
    training: str
    """`namespace/name` of the JobSet: the same for all incarnations."""
    job_uid: str
    """UID of the Job. Events of a whole training are recorded once for each of its Jobs."""
    step: int
    """Steps that the training had done by then."""
    member: str = ""
    """Which Job of the JobSet the process belongs to: the ReplicatedJob and the index, as in `node-0`."""
    pod: str = ""
    pod_uid: str = ""
    restart_count: int = 0
    index: int | None = None
    node: str = ""
    exit_code: int | None = None
    """None: the event is not an exit."""


@dataclass(frozen=True)
class Overlap:
    """A time when processes of several Jobs of one member ran at once. `until` None: they still do."""

    job_uids: tuple[str, ...]
    since: datetime
    until: datetime | None


class Trace:
    """All records in the order of the events. `sink`, if any, gets each as a line of JSON."""

    def __init__(self, sink: Callable[[bytes], None] | None = None) -> None:
        self.records: list[TraceRecord] = []
        self._sink = sink

    def add(self, record: TraceRecord) -> None:
        self.records.append(record)
        if self._sink:
            self._sink(msgspec.json.encode(record) + b"\n")

    def of(self, training: str, *kinds: EventKind) -> list[TraceRecord]:
        """The records of one training. Without kinds: all of them."""
        return [
            record for record in self.records if record.training == training and (not kinds or record.kind in kinds)
        ]

    def overlaps(self, training: str) -> list[Overlap]:
        """The times when processes of more than one Job UID of a member ran, including hung and dying ones."""
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
