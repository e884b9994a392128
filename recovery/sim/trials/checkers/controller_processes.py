"""Rules about controller processes: they neither crash nor loop without progress."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from recovery.controller.readable_ledger import LedgerUnreadableError
from recovery.controller.reconciler import RestlessGroupError
from recovery.core.model.facts import GroupKey
from recovery.ports import (
    EVENTS,
    JOB_SETS,
    JOBS,
    PODS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    TRAIN_JOBS,
    ApiError,
)
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.ledger_changes import LedgerState
from recovery.sim.trials.checkers.undisturbed_time import holds_up
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence, Violation

_OF_A_GROUP = frozenset({TRAIN_JOBS, JOB_SETS, JOBS, PODS, RECOVERY_GROUPS, RECOVERY_INCIDENTS, EVENTS})
_ENDS_WELL = frozenset({"", "killed", "stopped"})


def _names(error: type[Exception]) -> frozenset[str]:
    """The names of the class and of all its subclasses."""
    return frozenset({error.__name__}).union(*(_names(each) for each in error.__subclasses__()))


class NoUnhandledException(CheckerRule):
    """No reconcile ends in an unexpected error, and no process ends in an exception."""

    _EXPECTED = _names(ApiError) | {RestlessGroupError.__name__, LedgerUnreadableError.__name__}

    def ended(self) -> Iterator[Violation]:
        for failed in self.evidence.failed_reconciles:
            if failed.error not in self._EXPECTED:
                yield self.found(failed.at, f"a reconcile by {failed.actor} ended in {failed.error}", failed.group)
        for life in self.evidence.processes:
            if life.ended_at is not None and life.how not in _ENDS_WELL:
                yield self.found(life.ended_at, f"process {life.process} of {life.actor} ended by {life.how}")


@dataclass
class _Effort:
    """Requests and failed reconciles of one group since anything about it last changed."""

    moments: deque[datetime] = field(default_factory=deque)
    reported: bool = False


class NoLivelock(CheckerRule):
    """The controller does not ask about a group again and again while neither the group nor its ledger changes: at most
    400 requests and 30 failed reconciles within a minute."""

    hears = _OF_A_GROUP
    REQUESTS_MOST = 400
    RECONCILES_MAX = 30
    WITHIN = timedelta(seconds=60)

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._efforts: dict[GroupKey, _Effort] = {}

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        key = self.world.group_of(change.resource, change.body)
        if key is not None:
            self._efforts.pop(key, None)
        yield from ()

    def heard(self, record: RequestRecord) -> Iterator[Violation]:
        key = self.world.group_of_request(record)
        if key is None:
            return
        effort = self._efforts.setdefault(key, _Effort())
        moments = effort.moments
        moments.append(record.at)
        while record.at - moments[0] > self.WITHIN:
            moments.popleft()
        if len(moments) > self.REQUESTS_MOST and not effort.reported:
            effort.reported = True
            sentence = (
                f"{len(moments)} requests since {moments[0]:%H:%M:%S} changed nothing; the last is {record.request}"
            )
            yield self.found(record.at, sentence, key)

    def ended(self) -> Iterator[Violation]:
        by_group: dict[GroupKey, deque[datetime]] = {}
        reported: set[GroupKey] = set()
        for failed in self.evidence.failed_reconciles:
            moments = by_group.setdefault(failed.group, deque())
            moments.append(failed.at)
            while failed.at - moments[0] > self.WITHIN:
                moments.popleft()
            if len(moments) > self.RECONCILES_MAX and failed.group not in reported:
                reported.add(failed.group)
                sentence = (
                    f"{len(moments)} reconciles failed since {moments[0]:%H:%M:%S}, the last of them in {failed.error}"
                )
                yield self.found(failed.at, sentence, failed.group)


class BoundedRequests(CheckerRule):
    """The number of requests for an incident is bounded by its attempts, its ranks, its length, and the faults that
    occur during it."""

    BASE = 200
    PER_ATTEMPT = 100
    PER_ATTEMPT_AND_RANK = 10
    PER_MINUTE = 40
    PER_FAULT = 40

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._requests: dict[tuple[GroupKey, str], int] = {}
        self._reported: set[str] = set()

    def heard(self, record: RequestRecord) -> Iterator[Violation]:
        key = self.world.group_of_request(record)
        state = self.world.ledgers.of_group(key) if key is not None else None
        incident = state.ledger.incident if state is not None else None
        if key is None or state is None or incident is None:
            return
        count = self._requests[key, incident.id] = self._requests.get((key, incident.id), 0) + 1
        if count > self.BASE and count % 100 == 0 and incident.id not in self._reported:
            most = self._most(state, record.at)
            if count > most:
                self._reported.add(incident.id)
                yield self.found(
                    record.at, f"incident {incident.id} has cost {count} requests, {most} are allowed", key
                )

    def _most(self, state: LedgerState, now: datetime) -> int:
        incident, opened_at = state.ledger.incident, state.spans[-1][1]
        assert incident is not None, "it is counted for"
        attempts = 1 + (incident.attempt.number if incident.attempt is not None else 0)
        minutes = (now - opened_at).total_seconds() / 60
        faults = sum(
            holds_up(each) and each.at >= opened_at - timedelta(minutes=1) for each in self.evidence.happenings
        )
        each_attempt = self.PER_ATTEMPT + self.PER_ATTEMPT_AND_RANK * incident.ranks
        return int(self.BASE + attempts * each_attempt + minutes * self.PER_MINUTE + faults * self.PER_FAULT)
