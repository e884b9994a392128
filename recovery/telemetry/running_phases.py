"""Until when the phase that a ledger shows as running has lasted for sure.

A counter of GPU-seconds accrues the running phase before the ledger books it. If it went beyond what is booked then,
it would fall with the next leader, who knows only the ledger, and Prometheus would take that for a restart of the
counter: `increase()` would count the whole value again. Two things say that a phase is over before the ledger does:

- this process has decided so, and its write has not come back yet;
- all members are Ready. The ledger ends the phase at that date, however late the reconcile comes that does it: a new
  leader's first scrape may precede its first reconcile.

What remains is a date that has not reached this process: Kubernetes dates Ready in whole seconds, and the phase ends a
second after that at the latest, so a watch and a queue that take less than the rest of that second leave nothing.
"""

from collections.abc import Collection
from datetime import datetime

import msgspec

from recovery.core.incident.phases import within_second
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Incident, Ledger, Phase, PhaseSpan
from recovery.telemetry.idle_cells import open_incident, running_span
from recovery.telemetry.jobs_found import FoundJob, FoundJobs


class _Ended(msgspec.Struct, frozen=True):
    """A phase that a decision has ended."""

    incident: str
    phase: Phase
    started_at: datetime
    ended_at: datetime


class RunningPhases:
    """What this process knows of the ends of phases, for all jobs."""

    def __init__(self, jobs: FoundJobs) -> None:
        self._jobs = jobs
        self._ended: dict[GroupKey, _Ended] = {}

    def decided(self, key: GroupKey, before: Ledger, after: Ledger) -> None:
        """A reconcile wants to write `after` in place of `before`. If the write fails, the next decision replaces
        this one; if it succeeds, this one holds until the cache shows it."""
        ended, span = _ended(before, after), running_span(before)
        if ended is not None:
            self._ended[key] = ended
        elif before.incident is not None and span is not None and self._shows_end(key, before.incident, span):
            del self._ended[key]

    def forget(self) -> None:
        """A term begins or ends."""
        self._ended.clear()

    def keep_only(self, keys: Collection[GroupKey]) -> None:
        """The other jobs are gone."""
        self._ended = {key: ended for key, ended in self._ended.items() if key in keys}

    def lasted_until(self, key: GroupKey, ledger: Ledger, now: datetime) -> datetime:
        """Of the phase that the ledger shows as running. Any date if none runs."""
        incident, span = open_incident(ledger), running_span(ledger)
        if incident is None or span is None:
            return now
        if self._shows_end(key, incident, span):
            return min(now, self._ended[key].ended_at)
        found = self._jobs.last_read(key)
        return now if found is None else _until_whole(found, incident, span, now)

    def _shows_end(self, key: GroupKey, incident: Incident, span: PhaseSpan) -> bool:
        """The latest end that was decided is that of this phase."""
        ended = self._ended.get(key)
        of_span = (incident.id, span.phase, span.started_at)
        return ended is not None and (ended.incident, ended.phase, ended.started_at) == of_span


def _ended(before: Ledger, after: Ledger) -> _Ended | None:
    incident, span = open_incident(before), running_span(before)
    if incident is None or span is None or after.incident is None or after.incident.id != incident.id:
        return None
    for each in after.incident.phases:
        if (each.phase, each.started_at) == (span.phase, span.started_at) and each.ended_at is not None:
            return _Ended(incident.id, each.phase, each.started_at, each.ended_at)
    return None


def _until_whole(found: FoundJob, incident: Incident, span: PhaseSpan, now: datetime) -> datetime:
    """Resuming begins when all are Ready. Members that were Ready before any other phase began do not end it."""
    ready = found.last_ready_at
    if ready is None or found.members_ready < incident.ranks or span.phase is Phase.RESUMING:
        return now
    return now if ready < span.started_at.replace(microsecond=0) else within_second(ready, now)
