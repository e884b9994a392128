"""Rules about waits that a controller must end: a Job without pods, and a suspension of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from recovery.core.model.annotations import RESUME_AT_ANNOTATION, TOUCHED_ANNOTATION
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.policy.spec import Mode, Restart
from recovery.ports import EVENTS, JOB_SETS, JOBS, PODS, RECOVERY_GROUPS, RECOVERY_POLICIES, TRAIN_JOBS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.controller_writes import mark_of, suspended, title
from recovery.sim.trials.checkers.group_views import GroupView, JobView, controller_uid, ours
from recovery.sim.trials.checkers.ledger_changes import LedgerState
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence, Violation

_WORKLOADS = frozenset({TRAIN_JOBS, JOB_SETS})
_REACTS_IN_SECONDS = 15.0
"""How long something that is due may take: a live read, a write, and the API's whole seconds."""


@dataclass
class _Wait:
    """A group whose Jobs should have pods by now, but have none."""

    jobs: frozenset[str]
    since: datetime
    attempt: int


class WatchdogTouches(CheckerRule):
    """In a recovery, the controller touches a Job without pods after 60 s, and begins a new attempt after 120 s, unless
    the Job is suspended or its pods are refused. The Job controller can overlook a recreated Job
    (kubernetes/kubernetes#131917)."""

    hears = frozenset({JOBS, PODS, JOB_SETS, TRAIN_JOBS, RECOVERY_GROUPS, RECOVERY_POLICIES, EVENTS})
    TOUCHED_AFTER_SECONDS = 60.0
    GIVEN_UP_AFTER_SECONDS = 120.0

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._waits: dict[GroupKey, _Wait] = {}
        self._refused: set[str] = set()
        """UIDs of Jobs whose pods are refused."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == EVENTS:
            if change.body.get("reason") != "FailedCreate":
                return
            self._refused.add(str(change.body.get("involvedObject", {}).get("uid", "")))
        if change.resource in (EVENTS, RECOVERY_POLICIES):
            keys = list(self._waits)
        else:
            key = self.world.group_of(change.resource, change.body)
            keys = [key] if key is not None else []
        for key in keys:
            yield from self._follow(key, at)

    def ended(self) -> Iterator[Violation]:
        for key, wait in self._waits.items():
            yield from self._judge(key, wait, self.evidence.ends_at)

    def _follow(self, key: GroupKey, at: datetime) -> Iterator[Violation]:
        wait, group = self._waits.get(key), self.world.group(key)
        state = self.world.ledgers.of_group(key)
        jobs = self._empty(group, state)
        attempt = _attempt_of(state)
        if wait is not None and wait.jobs == jobs and wait.attempt == attempt:
            if _is_touched(self.world.jobs_of(jobs)):
                yield from self._judge(key, wait, at)
            return
        if wait is not None:
            yield from self._judge(key, wait, at)
            del self._waits[key]
        if jobs:
            self._waits[key] = _Wait(jobs, at, attempt)

    def _empty(self, group: GroupView, state: LedgerState | None) -> frozenset[str]:
        """The Jobs that the watchdog must watch. Empty: it has nothing to do in this state."""
        incident = state.open_incident if state is not None else None
        if state is None or incident is None or state.ledger.phase is not Phase.SCHEDULING:
            return frozenset()
        if group.workload is None or group.workload["metadata"]["uid"] != state.workload_uid:
            return frozenset()  # The ledger belongs to an earlier workload of that name.
        if incident.mode != Mode.ENFORCE or incident.pinned.restart == Restart.NONE:
            return frozenset()
        if group.mode != Mode.ENFORCE or group.paused_since is not None or group.suspended or group.ended is not None:
            return frozenset()
        return frozenset(uid for uid, job in group.jobs.items() if self._is_empty(job))

    def _is_empty(self, job: JobView) -> bool:
        busy = job.pods or job.suspended or job.deleted_by or job.decisions or job.uid in self._refused
        return job.member and not busy

    def _judge(self, key: GroupKey, wait: _Wait, at: datetime) -> Iterator[Violation]:
        undisturbed = self.world.undisturbed.seconds(wait.since, at) - _REACTS_IN_SECONDS
        touched = _is_touched(self.world.jobs_of(wait.jobs))
        limit = self.GIVEN_UP_AFTER_SECONDS if touched else self.TOUCHED_AFTER_SECONDS
        if undisturbed > limit:
            done = "touched, but not given up" if touched else "not touched"
            names = ", ".join(sorted(job.name for job in self.world.jobs_of(wait.jobs)))
            sentence = f"Job {names} had no pods from {wait.since:%H:%M:%S} to {at:%H:%M:%S} and was {done}"
            yield self.found(at, sentence, key)


def _is_touched(jobs: Iterator[JobView]) -> bool:
    """One of the Jobs is touched. The watchdog handles the oldest one first."""
    return any(TOUCHED_ANNOTATION in (job.body["metadata"].get("annotations") or {}) for job in jobs)


def _attempt_of(state: LedgerState | None) -> int:
    incident = state.ledger.incident if state is not None else None
    return incident.attempt.number if incident is not None and incident.attempt is not None else 0


class SuspensionReleased(CheckerRule):
    """A suspension by the controller ends when its time has come, or with its incident. It is never taken for a
    suspension by the user. The user's suspension is neither ended nor taken over."""

    hears = _WORKLOADS | {RECOVERY_GROUPS}
    LATE_AFTER_SECONDS = 60.0

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._since: dict[GroupKey, tuple[datetime, Body]] = {}
        """Since when a workload carries our mark, and the workload as it was then."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_GROUPS or (change.resource == JOB_SETS and controller_uid(change.body)):
            return
        key = self.world.group_of(change.resource, change.body)
        if key is None:
            return
        if ours(change.actor):
            yield from self._overrides(change, at, key)
        marked = change.type != "DELETED" and bool(mark_of(change.body))
        known = self._since.get(key)
        if marked and known is None:
            self._since[key] = (at, change.body)
        elif not marked and known is not None:
            del self._since[key]
            yield from self._judge(key, known, at)

    def _overrides(self, change: ObjectChange, at: datetime, key: GroupKey) -> Iterator[Violation]:
        was_theirs = suspended(change.before) and not mark_of(change.before)
        if was_theirs and not suspended(change.body):
            yield self.found(at, f"{change.actor} resumes {title(change)}, which its user had suspended", key)
        elif was_theirs and mark_of(change.body):
            yield self.found(at, f"{change.actor} marks {title(change)} as its own, which its user had suspended", key)

    def heard(self, record: RequestRecord) -> Iterator[Violation]:
        made = self.world.ledgers.newest
        if record.request.resource != RECOVERY_GROUPS or not record.applied or record.fault is not None:
            return
        if made is None or made.revision != record.revision or not made.closed or made.after.incident is None:
            return
        closing, known = made.after.incident.closing, self._since.get(made.group)
        if closing is None or known is None or closing.outcome != Outcome.SUPERSEDED:
            return
        workload = self.world.group(made.group).workload
        if closing.outcome_reason == "JobSuspended" and suspended(workload):
            sentence = (
                f"{made.actor} closes incident {made.after.incident.id} as {closing.outcome}, JobSuspended, "
                f"but the suspension is our own, of incident {mark_of(workload)}, since {known[0]:%H:%M:%S}"
            )
            yield self.found(record.at, sentence, made.group)

    def ended(self) -> Iterator[Violation]:
        for key, known in self._since.items():
            yield from self._judge(key, known, self.evidence.ends_at)

    def _judge(self, key: GroupKey, known: tuple[datetime, Body], at: datetime) -> Iterator[Violation]:
        since, body = known
        due, why = self._due(key, since, body)
        if due is None:
            return
        late = self.world.undisturbed.seconds(due, at)
        if late > self.LATE_AFTER_SECONDS:
            sentence = f"its suspension by {mark_of(body)} lasted until {at:%H:%M:%S}, though {why} at {due:%H:%M:%S}"
            yield self.found(at, sentence, key)

    def _due(self, key: GroupKey, since: datetime, body: Body) -> tuple[datetime | None, str]:
        """When the suspension should have ended, and why. None: nothing known here ends it."""
        group, mark = self.world.group(key), mark_of(body)
        state = self.world.ledgers.of(body["metadata"]["uid"])
        closed_at = state.closed_at.get(mark) if state is not None else None
        if closed_at is not None:
            return max(closed_at, since), f"incident {mark} was closed"
        until = str((body["metadata"].get("annotations") or {}).get(RESUME_AT_ANNOTATION, ""))
        if not until or until == "never":
            return None, ""
        # The controller resumes it once the old Jobs are deleted and a recreated JobSet exists.
        old = [job for job in group.jobs.values() if self.world.ledgers.aimed(job.uid) is not None]
        if old or group.jobset is None:
            return None, ""
        moments = (datetime.fromisoformat(until), since, group.removed_at, group.jobset_made_at)
        return max(moment for moment in moments if moment is not None), "its time had come"
