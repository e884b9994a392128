"""What each rank is doing, computed from the training's trace. Nothing here comes from the controller."""

from collections.abc import Collection
from enum import StrEnum

from recovery.sim.training.trace import EventKind, Trace, TraceRecord


class RankLetter(StrEnum):
    """The letter of a rank in the view."""

    TRAINING = "T"
    WAITING = "W"
    """Its process runs and waits for the others."""
    HUNG = "H"
    """It has lost a peer and is stuck in a collective operation."""
    STARTING = "S"
    """Its pod exists, but its process does not run yet."""
    GONE = "-"


class RankBoard:
    """The state of every rank of one training. Each call reads the new records of the trace."""

    def __init__(self, trace: Trace, training: str, ranks: int) -> None:
        self._trace = trace
        self._training = training
        self._read = 0
        """How many records have been read."""
        self._alive: list[dict[tuple[str, int], tuple[str, RankLetter]]] = [{} for _ in range(ranks)]
        """For each rank: Job UID and state of each process, by pod UID and restart count, the newest last."""

    def states(self, starting: Collection[int]) -> list[RankLetter]:
        """The state of each rank. `starting`: the ranks with a pod that is not running yet."""
        records = self._trace.records
        for record in records[self._read :]:
            if record.training == self._training:
                self._follow(record)
        self._read = len(records)
        return [self._state(index, starting) for index in range(len(self._alive))]

    def _state(self, index: int, starting: Collection[int]) -> RankLetter:
        processes = self._alive[index]
        if processes:
            return next(reversed(processes.values()))[1]
        return RankLetter.STARTING if index in starting else RankLetter.GONE

    def _follow(self, record: TraceRecord) -> None:
        if record.kind is EventKind.ROUND_FORMED:
            for processes in self._alive:
                for process, (job_uid, _) in processes.items():
                    if job_uid == record.job_uid:
                        processes[process] = (job_uid, RankLetter.TRAINING)
            return
        if record.index is None:
            return
        processes, process = self._alive[record.index], (record.pod_uid, record.restart_count)
        match record.kind:
            case EventKind.PROCESS_STARTED:
                processes[process] = (record.job_uid, RankLetter.WAITING)
            case EventKind.RANK_HUNG:
                processes[process] = (record.job_uid, RankLetter.HUNG)
            case EventKind.PROCESS_EXITED:
                processes.pop(process, None)
