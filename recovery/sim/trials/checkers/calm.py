"""How long a controller could work undisturbed: what a bound on its time is held against."""

from datetime import datetime, timedelta

from recovery.sim.trials.evidence import Evidence, Happening
from recovery.sim.trials.faults import FaultKind

RECOVERS_IN = timedelta(seconds=60)
"""After a fault of its own a controller needs up to this long: the lease runs out (15 s), another process lists all
there is, and a look that failed waits for its turn (30 s at most)."""
STREAM_LASTS = timedelta(seconds=900)
"""A watch that lags does so until it is opened anew."""

_WATCHES_LATE = frozenset({FaultKind.WATCH_LAG, FaultKind.WATCH_STALL})


class Calm:
    """Reads the happenings of a trial."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

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

    def watch_lag(self) -> timedelta:
        """How late, at most, a process learned of anything through a watch."""
        late = [each.fault.seconds for each in self._evidence.happenings if each.fault.key.kind in _WATCHES_LATE]
        return timedelta(seconds=max(late, default=0.0) + 5)

    def _troubles(self) -> list[tuple[datetime, datetime]]:
        began_at = self._evidence.began_at
        befell = (each for each in self._evidence.happenings if each.fault.key.actor != "world")
        return [(began_at, began_at + RECOVERS_IN), *((each.at, self._end(each)) for each in befell)]

    def _end(self, happening: Happening) -> datetime:
        match happening.fault.key.kind:
            case FaultKind.CLOCK_JUMP:  # until it is started anew
                starts = (
                    life.started_at for life in self._evidence.processes if life.actor == happening.fault.key.actor
                )
                later = [at for at in starts if at > happening.at]
                return min((*later, max(self._evidence.healing_from, happening.at))) + RECOVERS_IN
            case FaultKind.WATCH_LAG:
                return happening.at + STREAM_LASTS
        lasts = timedelta(seconds=max(0.0, happening.fault.seconds))
        return max(happening.until or happening.at, happening.at + lasts) + RECOVERS_IN
