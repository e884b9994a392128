"""The rendezvous that the agents of one group report, each of them once.

A report repeats the latest rendezvous of its barrier, several epochs may lie between two reports, and the next leader
gets all of them again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.agent_view import SILENT_AFTER
from recovery.core.model.agent_facts import AgentFacts, AgentRendezvous, AgentState
from recovery.core.model.ledger import Attempt, AttemptAction
from recovery.telemetry.catalogue.label_values import INTERRUPTED, JOINED_ALL, START

_BARRIERS = 4
"""Barriers that are remembered: a pod that is being deleted may still report beside its successor."""
_HOUR = timedelta(hours=1)
_OBSERVED_IN_HOUR = 60
"""More would not be the restarts of one job. A report is the tenant's word, and the histograms are of all jobs."""
PROCESSES_RUN = frozenset({AgentState.GATHERING, AgentState.RUNNING, AgentState.STARTING})


class Measured(msgspec.Struct, frozen=True):
    """A rendezvous that is over."""

    cause: str
    outcome: str
    seconds: float
    """From the first arrival until all had joined, or until the rendezvous was interrupted."""
    since_trigger_seconds: float | None = None
    """From the trigger of the restart until all had joined. None: it was not joined, or follows no known trigger."""


@dataclass
class _Barrier:
    """A barrier of the group's agents."""

    cause: str = START
    """Of its first epoch. All later ones follow restarts in place."""
    trigger_at: datetime | None = None
    through: int = 0
    """The rendezvous of this epoch, and of all before it, are over."""
    pending: AgentRendezvous | None = None
    heard_at: datetime | None = None


@dataclass
class AgentGroup:
    """What the agents of one group have reported in this term."""

    attempts: tuple[Attempt, ...] = ()
    """Of the latest incident that had some. They stay when the incident is recorded: the restarted ranks may join
    later."""
    facts: AgentFacts | None = None
    """The latest report."""
    _barriers: dict[str, _Barrier] = field(default_factory=dict)
    """In the order of their latest reports."""
    _explained_at: datetime | None = None
    """The start of the latest attempt that was the cause of a rendezvous. It causes no other one: a job that its user
    has suspended and resumed starts."""
    _hour_began_at: datetime | None = None
    _observed: int = 0
    """In that hour."""

    def heard(self, facts: AgentFacts, since: datetime) -> list[Measured]:
        """Take in a report. Returns the rendezvous that have ended, after `since`, and were not returned before."""
        self.facts = facts
        over: list[tuple[datetime, Measured]] = []
        barrier = self._barriers.get(facts.barrier)
        if barrier is None:
            over += self._left_behind()
            barrier = _Barrier()
        self._barriers = {key: each for key, each in self._barriers.items() if key != facts.barrier}
        self._barriers[facts.barrier] = barrier
        for oldest in tuple(self._barriers)[:-_BARRIERS]:
            del self._barriers[oldest]
        barrier.heard_at, barrier.pending = facts.received_at, None
        for each in facts.rendezvous:
            if each.epoch > barrier.through:
                over += self._ended(barrier, facts, each)
        return [measured for at, measured in over if at > since and self._has_room(facts.received_at)]

    def present(self, now: datetime) -> AgentFacts | None:
        """The latest report, unless the agents have been silent for too long."""
        return self.facts if self.facts is not None and now - self.facts.received_at < SILENT_AFTER else None

    def _ended(
        self, barrier: _Barrier, facts: AgentFacts, rendezvous: AgentRendezvous
    ) -> Iterator[tuple[datetime, Measured]]:
        """The rendezvous and its end, if it has ended."""
        epoch, first_at = rendezvous.epoch, rendezvous.first_at
        ends = {each.epoch: each.ended_at for each in facts.ended}
        if epoch == 1 and barrier.trigger_at is None:
            self._explain(barrier, first_at)
        cause, trigger_at = barrier.cause, barrier.trigger_at
        if epoch > 1:
            cause, trigger_at = str(AttemptAction.RESTART_IN_PLACE), ends.get(epoch - 1)
        joined_at = rendezvous.joined_at
        if joined_at is not None:
            barrier.through = epoch
            since_trigger = None if trigger_at is None else _seconds(trigger_at, joined_at)
            yield joined_at, Measured(cause, JOINED_ALL, _seconds(first_at, joined_at), since_trigger)
        elif epoch in ends:
            barrier.through = epoch
            yield ends[epoch], Measured(cause, INTERRUPTED, _seconds(first_at, ends[epoch]))
        elif epoch < facts.epoch:
            barrier.through = epoch  # when it ended is not reported any more
        else:
            barrier.pending = rendezvous

    def _explain(self, barrier: _Barrier, first_at: datetime) -> None:
        """Find the attempt after which the group meets here for the first time."""
        since = self._explained_at
        new = [
            each
            for each in self.attempts
            if (since is None or since < each.started_at)
            and each.started_at <= first_at
            and each.action is not AttemptAction.RESTART_IN_PLACE
        ]
        if not new:
            return
        # What is left to the platform beside a restart, such as a pod that its Job replaces, is part of that restart.
        cause = next((each for each in reversed(new) if each.action is not AttemptAction.NONE), new[-1])
        barrier.cause, barrier.trigger_at = str(cause.action), cause.started_at
        self._explained_at = new[-1].started_at

    def _left_behind(self) -> Iterator[tuple[datetime, Measured]]:
        """The rendezvous that was going on when another barrier took the place of its own. The restart ended it, if the
        ledger has one, else the latest report is the last that is known of it."""
        last = next(reversed(self._barriers.values()), None)
        if last is None or last.pending is None or last.heard_at is None:
            return
        pending, last.pending = last.pending, None
        last.through = pending.epoch
        restarts = (each.started_at for each in self.attempts if each.started_at > pending.first_at)
        ended_at = next(restarts, last.heard_at)
        cause = last.cause if pending.epoch == 1 else str(AttemptAction.RESTART_IN_PLACE)
        yield ended_at, Measured(cause, INTERRUPTED, _seconds(pending.first_at, ended_at))

    def _has_room(self, now: datetime) -> bool:
        if self._hour_began_at is None or not timedelta() <= now - self._hour_began_at < _HOUR:
            self._hour_began_at, self._observed = now, 0
        self._observed += 1
        return self._observed <= _OBSERVED_IN_HOUR


def meets_now(facts: AgentFacts) -> bool:
    """Ranks of the present epoch have arrived at their rendezvous, and not all have joined. Where ranks make steps, the
    others need no rendezvous."""
    present = facts.present_rendezvous
    waits = present is not None and present.joined_at is None and facts.steps is None
    return waits and facts.state in PROCESSES_RUN


def _seconds(begin: datetime, end: datetime) -> float:
    return max(0.0, (end - begin).total_seconds())
