"""How long a controller could work undisturbed: what a bound on its time is held against."""

from datetime import datetime, timedelta

from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial_evidence import Happening, TrialEvidence

_RECONCILES_AGAIN_IN = timedelta(seconds=45)
"""After a fault a process lists all there is again, and a reconcile that failed waits for its turn: 30 s at most."""
STREAM_LASTS = timedelta(seconds=900)
"""A watch that lags does so until it is opened again."""

_WATCHES_LATE = frozenset({FaultKind.WATCH_LAG, FaultKind.WATCH_STALL})


_OF_PROCESSES = frozenset(
    {FaultKind.PROCESS_KILL, FaultKind.PROCESS_KILL_AFTER, FaultKind.PROCESS_FREEZE, FaultKind.CLOCK_JUMP}
)
"""They affect a controller process even where the world's plan has set their moment."""


def holds_up(happening: Happening) -> bool:
    """It affected a controller process, or its way to the API server."""
    return happening.fault.key.actor != "world" or happening.fault.key.kind in _OF_PROCESSES


class UndisturbedTime:
    """Reads the happenings of a trial."""

    def __init__(self, evidence: TrialEvidence) -> None:
        self._evidence = evidence
        # Besides, the lease has to run out, and the standby to notice.
        self._recovers_in = _RECONCILES_AGAIN_IN + timedelta(seconds=1.5 * evidence.plan.lease_seconds)

    def seconds(self, since: datetime, until: datetime) -> float:
        """Of the time from `since` until then, that in which no fault held up any controller process."""
        undisturbed = max(timedelta(), until - since)
        reached = since
        for begins, ends in sorted(self._troubles()):
            lasts = min(ends, until) - max(begins, reached)
            if lasts > timedelta():
                undisturbed -= lasts
                reached = min(ends, until)
        return undisturbed.total_seconds()

    def clocks_jumped(self) -> bool:
        """Some process's dates were wrong."""
        return any(each.fault.key.kind is FaultKind.CLOCK_JUMP for each in self._evidence.happenings)

    def clock_was_off(self, since: datetime, until: datetime) -> bool:
        """Some process may have given a wrong date to something in that time."""
        jumps = (each for each in self._evidence.happenings if each.fault.key.kind is FaultKind.CLOCK_JUMP)
        for jump in jumps:
            off = timedelta(seconds=abs(jump.fault.seconds))
            if jump.at - off <= until and since <= self._end(jump) + off:
                return True
        return False

    def watch_lag(self) -> timedelta:
        """How late, at most, a process learned of anything through a watch."""
        late = [each.fault.seconds for each in self._evidence.happenings if each.fault.key.kind in _WATCHES_LATE]
        return timedelta(seconds=max(late, default=0.0) + 5)

    def _troubles(self) -> list[tuple[datetime, datetime]]:
        began_at = self._evidence.began_at
        applied = (each for each in self._evidence.happenings if holds_up(each))
        return [(began_at, began_at + self._recovers_in), *((each.at, self._end(each)) for each in applied)]

    def _end(self, happening: Happening) -> datetime:
        match happening.fault.key.kind:
            case FaultKind.CLOCK_JUMP:  # until it is started again
                starts = (
                    life.started_at for life in self._evidence.processes if life.actor == happening.fault.key.actor
                )
                later = [at for at in starts if at > happening.at]
                return min((*later, max(self._evidence.healing_from, happening.at))) + self._recovers_in
            case FaultKind.WATCH_LAG:
                return happening.at + STREAM_LASTS
        lasts = timedelta(seconds=max(0.0, happening.fault.seconds))
        return max(happening.until or happening.at, happening.at + lasts) + self._recovers_in
