"""How long a controller could work undisturbed. The checkers hold it to time limits only for this time."""

from datetime import datetime, timedelta

from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial_evidence import Happening, TrialEvidence

_RECONCILES_AGAIN_IN = timedelta(seconds=45)
"""After a fault a process lists everything again, and a failed reconcile waits for its requeue, at most 30 s."""
STREAM_LASTS = timedelta(seconds=900)
"""How long a watch may lag, because it lags until it is reopened."""

_WATCHES_LATE = frozenset({FaultKind.WATCH_LAG, FaultKind.WATCH_STALL})


_OF_PROCESSES = frozenset(
    {FaultKind.PROCESS_KILL, FaultKind.PROCESS_KILL_AFTER, FaultKind.PROCESS_FREEZE, FaultKind.CLOCK_JUMP}
)
"""They affect a controller process even if their actor is `world`, as the plan sets their moment."""


def holds_up(happening: Happening) -> bool:
    """The fault affected a controller process, or its connection to the API server."""
    return happening.fault.key.actor != "world" or happening.fault.key.kind in _OF_PROCESSES


class UndisturbedTime:
    """Computed from the faults that happened in a trial."""

    def __init__(self, evidence: TrialEvidence) -> None:
        self._evidence = evidence
        # In addition, the lease must expire, and the standby must notice that.
        self._recovers_in = _RECONCILES_AGAIN_IN + timedelta(seconds=1.5 * evidence.plan.lease_seconds)

    def seconds(self, since: datetime, until: datetime) -> float:
        """The seconds from `since` to `until` in which no fault held up any controller process."""
        undisturbed = max(timedelta(), until - since)
        reached = since
        for begins, ends in sorted(self._troubles()):
            lasts = min(ends, until) - max(begins, reached)
            if lasts > timedelta():
                undisturbed -= lasts
                reached = min(ends, until)
        return undisturbed.total_seconds()

    def clocks_jumped(self) -> bool:
        """The clock of some process was wrong at some time."""
        return any(each.fault.key.kind is FaultKind.CLOCK_JUMP for each in self._evidence.happenings)

    def clock_was_off(self, since: datetime, until: datetime) -> bool:
        """Some process may have written a wrong date in that time."""
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
            case FaultKind.CLOCK_JUMP:  # It lasts until the process restarts.
                starts = (
                    life.started_at for life in self._evidence.processes if life.actor == happening.fault.key.actor
                )
                later = [at for at in starts if at > happening.at]
                return min((*later, max(self._evidence.healing_from, happening.at))) + self._recovers_in
            case FaultKind.WATCH_LAG:
                return happening.at + STREAM_LASTS
        lasts = timedelta(seconds=max(0.0, happening.fault.seconds))
        return max(happening.until or happening.at, happening.at + lasts) + self._recovers_in
