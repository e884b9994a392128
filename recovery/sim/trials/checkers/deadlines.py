"""The rule about how long a job may train: as long as its user, or Kueue, has asked for."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.ports import JOB_SETS, TRAIN_JOBS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.controller_writes import WORKLOADS, suspended, title
from recovery.sim.trials.checkers.group_views import controller_uid, is_true, ours
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation

_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_KUEUE_MANAGER = "kueue.x-k8s.io/manager"
_LATE = timedelta(seconds=10)
"""How late Trainer may act: it counts in whole seconds, and takes a moment."""


@dataclass
class _Clock:
    """How long a TrainJob has been active."""

    deadline: timedelta
    since: datetime | None = None
    """When someone other than our controller last let it run. None: they keep it suspended."""
    suspended_by_us: bool = False


class DeadlineHolds(CheckerRule):
    """No controller suspends a job that Kueue starts, or a job with a deadline, because Trainer counts a deadline from
    the last resume. No TrainJob is active for longer than its `activeDeadlineSeconds` since others let it run."""

    hears = WORKLOADS

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._clocks: dict[str, _Clock] = {}
        """The TrainJobs that have a deadline and have not ended, by UID."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == JOB_SETS and controller_uid(change.body):
            return
        begins = suspended(change.body) and change.before is not None and not suspended(change.before)
        why = _not_ours_to_suspend(change.body)
        if begins and ours(change.actor) and why is not None:
            key = self.world.group_of(change.resource, change.body)
            yield self.found(at, f"{change.actor} suspends {title(change)}, though {why}", key)
        if change.resource == TRAIN_JOBS:
            yield from self._count(change, at)

    def _count(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        body, uid = change.body, change.body["metadata"]["uid"]
        seconds = body["spec"].get("activeDeadlineSeconds")
        if seconds is None or (change.type != "ADDED" and uid not in self._clocks):
            return
        clock = self._clocks.setdefault(uid, _Clock(timedelta(seconds=seconds)))
        now = suspended(body)
        if change.before is None:
            clock.since = None if now else at
        elif now and not suspended(change.before):
            clock.suspended_by_us = ours(change.actor)
            clock.since = clock.since if clock.suspended_by_us else None
        elif not now and suspended(change.before) and not clock.suspended_by_us:
            clock.since = at
        over = is_true(body, "Complete", "Failed") is not None or "deletionTimestamp" in body["metadata"]
        if over or change.type == "DELETED":
            del self._clocks[uid]
            yield from self._judge(clock, change, at)

    def _judge(self, clock: _Clock, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        active = at - clock.since if clock.since is not None else timedelta()
        if active > clock.deadline + _LATE + self._stalled():
            key = self.world.group_of(change.resource, change.body)
            sentence = f"{title(change)} was active for {active.total_seconds():.0f} s since others let it run"
            yield self.found(at, f"{sentence}; its deadline is {clock.deadline.total_seconds():.0f} s", key)

    def _stalled(self) -> timedelta:
        """How long Trainer could not act."""
        stalls = (each.fault for each in self.evidence.happenings if each.fault.key.kind is FaultKind.TRAINER_STALL)
        return timedelta(seconds=sum(fault.seconds for fault in stalls))

    def ended(self) -> Iterator[Violation]:
        newest = {
            change.body["metadata"]["uid"]: change
            for change in self.evidence.changes
            if change.resource == TRAIN_JOBS and change.body["metadata"]["uid"] in self._clocks
        }
        for uid, clock in self._clocks.items():
            yield from self._judge(clock, newest[uid], self.evidence.ends_at)


def _not_ours_to_suspend(body: Body) -> str | None:
    """Why the controller must not suspend it, in words. None: it may."""
    spec = body["spec"]
    if spec.get("activeDeadlineSeconds") is not None:
        return f"its deadline of {spec['activeDeadlineSeconds']} s counts from the last resume"
    managers = [patch.get("manager") for patch in spec.get("runtimePatches") or ()]
    if _QUEUE_LABEL in (body["metadata"].get("labels") or {}) or _KUEUE_MANAGER in managers:
        return "Kueue decides about its suspension"
    return None
