"""The rule about the processes of a training, judged by the trace that only the training model writes."""

from collections.abc import Iterator
from dataclasses import dataclass

from recovery.core.model.facts import GroupKey
from recovery.sim.training.trace import EventKind, TraceRecord
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import JobView, controller_uid, ours
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial_evidence import Violation

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


@dataclass(frozen=True)
class _Rank:
    """A rank of a training, no matter which pod has it."""

    training: str
    job_name: str
    index: int | None


class OneIncarnation(CheckerRule):
    """Processes of two incarnations of one rank never run at once. No process of an earlier incarnation meets the
    others, or commits a checkpoint, after one of a later incarnation has. An incarnation is the set of pods of one Job
    UID.

    The rule applies where a controller took the earlier incarnation down. It does not cover deletes by others, and pods
    that were force-deleted, cut off, or lost with their node. Nor does it cover pods whose own grace period is 0,
    because every delete of such a pod is a force-delete (`CheckGracefulDelete` of the API server).
    """

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
                alive.setdefault(rank, {}).pop(process, None)
            elif record.kind in _WORKS_TOGETHER:
                newer = latest.setdefault((record.training, job.name), job)
                if self._order[newer.uid] <= self._order[job.uid]:
                    latest[record.training, job.name] = job
                elif job.uid not in self._spoiled_jobs and self._ours(job) and not self._has_no_grace(job):
                    what = "formed a round" if record.kind is EventKind.ROUND_FORMED else "committed a checkpoint"
                    sentence = f"Job {job.uid} of {record.training} {what} after its successor {newer.uid} had"
                    yield self.found(record.at, sentence, job.group)

    def _overlaps(self, started: TraceRecord, alive: dict[tuple[str, int], TraceRecord]) -> Iterator[Violation]:
        if started.pod_uid in self._out_of_reach:
            return  # Its kubelet restarts it, because it does not know yet that the pod is being deleted.
        for other in alive.values():
            job = self.world.jobs[other.job_uid]
            if other.job_uid == started.job_uid or other.pod_uid in self._out_of_reach or self._has_no_grace(job):
                continue
            if self._ours(job):
                sentence = (
                    f"pod {started.pod} of Job {started.job_uid} started on rank {started.index} of {started.training} "
                    f"while pod {other.pod} of Job {other.job_uid} still ran, since {other.at:%H:%M:%S}"
                )
                yield self.found(started.at, sentence, _key(started.training))

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
