"""The rule about the processes of a training, judged by the trace that only the training model writes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recovery.core.model.annotations import SUSPENDED_BY_ANNOTATION
from recovery.core.model.facts import GroupKey
from recovery.ports import PODS
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind, TraceRecord
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import JobView, controller_uid, deletion_begins, ours
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation

_OUT_OF_REACH = frozenset(
    {
        FaultKind.POD_FORCE_DELETE,
        FaultKind.NODE_PARTITION,
        FaultKind.NODE_POWER_LOSS,
        FaultKind.NODE_OUT_OF_SERVICE,
        FaultKind.RACK_POWER_LOSS,
        FaultKind.NODE_REMOVE,
    }
)
"""After these faults the API server and the machine no longer agree on what runs, no matter who acts."""

_WORKS_TOGETHER = frozenset({EventKind.ROUND_FORMED, EventKind.CHECKPOINT})


class OverlapCause(StrEnum):
    """What others did so that two pods of one rank ran at once: the accounts of that time."""

    REPLACED = "a pod ran on beside its replacement"
    """Its Job replaces a pod when its deletion is requested, unless `podReplacementPolicy` says Failed."""
    SUSPENDED = "pods of a suspended run ran on beside the next"
    """Others resumed the Job before its pods had ended."""
    DELETED = "pods of a Job that others deleted ran on beside the next"


@dataclass(frozen=True)
class _Rank:
    """A rank of a training, no matter which pod has it."""

    training: str
    job_name: str
    index: int | None


class OneIncarnation(CheckerRule):
    """Processes of two pods of one rank never run at once. No process of an earlier incarnation meets the others, or
    commits a checkpoint, after one of a later incarnation has. An incarnation is the set of pods of one Job UID.

    The rule applies where a controller took the earlier pod or its Job down, or suspended the Job. Where others did,
    the time is only counted: a Job may replace a pod before its processes have ended. The rule does not cover pods that
    were force-deleted, cut off, or lost with their node. Nor does it cover pods whose own grace period is 0, because
    every delete of such a pod is a force-delete (`CheckGracefulDelete` of the API server).
    """

    hears = frozenset({PODS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._ended_by_us: set[str] = set()
        """UIDs of the pods that a controller asked to end, also by a suspension of the workload."""
        self._suspended: set[str] = set()
        """UIDs of the pods that a suspension by others asked to end."""

    def saw(self, change: ObjectChange, at: datetime) -> Iterable[Violation]:
        job = self.world.jobs.get(controller_uid(change.body))
        if job is not None and deletion_begins(change):
            uid = change.body["metadata"]["uid"]
            if ours(change.actor) or self._suspended_by_us(job):
                self._ended_by_us.add(uid)
            elif job.suspended or job.resumed:
                self._suspended.add(uid)
        return ()

    def _suspended_by_us(self, job: JobView) -> bool:
        return job.suspended and SUSPENDED_BY_ANNOTATION in self.world.group(job.group).annotations

    def ended(self) -> Iterator[Violation]:
        self._out_of_reach = {
            uid for each in self.evidence.happenings if each.fault.key.kind in _OUT_OF_REACH for uid in each.pod_uids
        }
        self._spoiled_jobs = {r.job_uid for r in self.evidence.trace.records if r.pod_uid in self._out_of_reach}
        self._order = {uid: number for number, uid in enumerate(self.world.jobs)}
        alive: dict[_Rank, dict[tuple[str, int], TraceRecord]] = {}
        latest: dict[tuple[str, str], JobView] = {}
        for record in self.evidence.trace.records:
            job = self.world.jobs.get(record.job_uid)
            if job is None:
                continue
            rank = _Rank(record.training, job.name, record.index)
            process = (record.pod_uid, record.restart_count)
            if record.kind is EventKind.PROCESS_STARTED:
                yield from self._overlaps(record, alive.setdefault(rank, {}))
                alive[rank][process] = record
            elif record.kind is EventKind.PROCESS_EXITED:
                self._count(record, alive.setdefault(rank, {}))
                alive[rank].pop(process, None)
            elif record.kind in _WORKS_TOGETHER:
                newer = latest.setdefault((record.training, job.name), job)
                if self._order[newer.uid] <= self._order[job.uid]:
                    latest[record.training, job.name] = job
                elif job.uid not in self._spoiled_jobs and self._ours(job) and not self._has_no_grace(job):
                    what = "formed a round" if record.kind is EventKind.ROUND_FORMED else "committed a checkpoint"
                    sentence = f"Job {job.uid} of {record.training} {what} after its successor {newer.uid} had"
                    yield self.found(record.at, sentence, job.group)

    def _overlaps(self, started: TraceRecord, alive: dict[tuple[str, int], TraceRecord]) -> Iterator[Violation]:
        for other in alive.values():
            if self._is_covered(started, other) and self._account(started, other) is None:
                sentence = (
                    f"pod {started.pod} of Job {started.job_uid} started on rank {started.index} of {started.training} "
                    f"while pod {other.pod} of Job {other.job_uid} still ran, since {other.at:%H:%M:%S}"
                )
                yield self.found(started.at, sentence, _key(started.training))

    def _count(self, ended: TraceRecord, alive: dict[tuple[str, int], TraceRecord]) -> None:
        """Counts the time for which a process that has ended ran beside later ones, if no controller caused that."""
        began = alive.get((ended.pod_uid, ended.restart_count))
        if began is None:
            return
        processes = list(alive.values())
        later = processes[processes.index(began) + 1 :]
        first = next((each for each in later if self._is_covered(each, began)), None)
        account = self._account(first, began) if first is not None else None
        if first is not None and account is not None:
            counted = self.evidence.lost_seconds
            counted[account] = counted.get(account, 0.0) + (ended.at - first.at).total_seconds()

    def _is_covered(self, started: TraceRecord, other: TraceRecord) -> bool:
        """They are two pods, and nothing but their deletion decides whether both run."""
        if other.pod_uid == started.pod_uid or other.pod_uid in self._out_of_reach:
            return False
        # The kubelet of a node out of reach restarts it, because it does not know yet that the pod is being deleted.
        return started.pod_uid not in self._out_of_reach and not self._has_no_grace(self.world.jobs[other.job_uid])

    def _account(self, started: TraceRecord, other: TraceRecord) -> str | None:
        """What others did that let both run. None: a controller caused it."""
        job = self.world.jobs[other.job_uid]
        if other.job_uid != started.job_uid:
            return None if self._ours(job) else OverlapCause.DELETED
        if other.pod_uid in self._ended_by_us:
            return None
        return OverlapCause.SUSPENDED if other.pod_uid in self._suspended else OverlapCause.REPLACED

    def _has_no_grace(self, job: JobView) -> bool:
        """The grace period of its pods is 0, so any delete removes the object before the processes end."""
        plan = self.evidence.jobs.get(job.group)
        return plan is not None and plan.grace_seconds == 0

    def _ours(self, job: JobView) -> bool:
        """A controller deleted the Job itself, or its JobSet."""
        return ours(job.deleted_by) or self.world.ledgers.aimed(controller_uid(job.body)) is not None


def _key(training: str) -> GroupKey:
    namespace, _, name = training.partition("/")
    return GroupKey(namespace, name)
