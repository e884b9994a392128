"""Remembers facts about a Job that its objects no longer show, for as long as its UID exists.

There are five such facts, and `group_objects` keeps a sixth: a Job that had trained is gone.
- A pod vanished while its Job still exists. With the object, the evidence is gone that a member was lost, and how.
- Whether the group has trained. The moment at which all members ran may be over before the next reconcile, and the
  next restart of a container overwrites its trace in the pod.
- How many members the group had then. A rank that was added later has replaced none.
- When the Job was last suspended. Its pods are deleted then, but may end only after it is resumed, and the Job shows
  only the date of the resume.
- Which ranks have trained to their end. Other containers may make their pods fail, and those pods may be deleted,
  replaced and deleted again.

All of them are lost with this process. The ledger keeps what an incident has concluded from them, and when the group
was last suspended. `core.diagnosis.trained` infers the second from what the objects still show.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from recovery.core.diagnosis.finishing import ended_by_itself
from recovery.core.diagnosis.membership import member_count
from recovery.core.diagnosis.trained import all_ran_at, pods_of_run, suspended_at, trained_at
from recovery.core.model.facts import JobFacts, PodFacts


class GoneJob(msgspec.Struct, frozen=True):
    """A Job that is gone and had trained."""

    facts: JobFacts
    trained_at: datetime


class _JobHistory:
    """The memory of one Job UID. `job` None: the Job has not been seen yet, or is gone, but it has pods."""

    def __init__(self) -> None:
        self.job: JobFacts | None = None
        self.running: dict[int, str] = {}
        """UID of the running pod, by completion index."""
        self.gone: dict[int | None, PodFacts] = {}
        """The newest vanished pod by completion index, so there are at most as many as the Job has members."""
        self.done: dict[int, PodFacts] = {}
        """The pod in which the rank has trained to its end, by completion index."""
        self.trained_at: datetime | None = None
        self.trained_members: int | None = None
        """The largest number of members with which the group has trained. None: it has not trained."""
        self.suspended_at: datetime | None = None
        self.present: set[str] = set()
        """UIDs of the pods that exist."""
        self.seen_from_start = False
        """The Job was seen before its present run had any pod."""
        self.failed_before = 0
        """How many failures the Job had counted before that run."""
        self.ended = 0
        """How many pods of that run were seen to disappear."""

    @property
    def whole(self) -> bool:
        return self.job is not None and 0 < member_count(self.job) <= len(self.running)

    def has_seen_all(self, pods: Iterable[PodFacts]) -> bool:
        """No member was lost unseen. While a watch is interrupted, a pod may come and go, but the Job counts it."""
        # A Job that fails counts the pods that it is still deleting.
        ends = (pod.phase == "Failed" or pod.deleting_since is not None for pod in pods if pod.gone_at is None)
        if not self.seen_from_start or self.job is None:
            return False
        return self.job.failed - self.failed_before <= self.ended + sum(ends)

    def take_in(self, job: JobFacts) -> None:
        """The newest state of the Job. A suspended Job whose pods are gone has its next run before it. Without an index
        a pod is not remembered, so nothing shows that."""
        before = self.job
        if before is None:
            self.seen_from_start = not (job.active or job.failed or job.succeeded or self.running)
        elif before.suspended and before.completions is not None and not self.present:
            self.seen_from_start, self.failed_before, self.ended = True, before.failed, 0
        self.job = job

    def whole_at_last(self) -> bool:
        """Whether the group is whole and has not trained before. For one that has, its present size is recorded."""
        if self.job is None or not self.whole:
            return False
        if self.trained_members is not None:
            self.trained_members = max(self.trained_members, member_count(self.job))
        return self.trained_at is None


class JobHistories:
    """The memory of all Jobs. Each pod event is constant work, except for the one that makes a group whole."""

    def __init__(self) -> None:
        self._by_job: dict[str, _JobHistory] = {}

    def job_seen(self, job: JobFacts) -> bool:
        """Record the state of a Job. True: its group may just have become whole, so `train` is worth a call.

        A suspended Job deletes its own pods, and a Job that was made smaller deletes the highest indexes. Neither is a
        loss. The next run of a suspended Job has not trained yet.
        """
        mine = self._by_job.setdefault(job.uid, _JobHistory())
        mine.take_in(job)
        mine.suspended_at = suspended_at(job) or mine.suspended_at
        if job.suspended:
            mine.gone.clear()
            mine.done.clear()
            mine.trained_at = mine.trained_members = None
        if mine.trained_members is not None:
            mine.trained_members = min(mine.trained_members, member_count(job))
        for index in [index for index in mine.gone if index is not None and index >= member_count(job)]:
            del mine.gone[index]
        for index in [index for index in mine.done if index >= member_count(job)]:
            del mine.done[index]
        return mine.whole_at_last()

    def with_suspension(self, job: JobFacts) -> JobFacts:
        """The Job with the date of its last suspension, if one was seen."""
        mine = self._by_job.get(job.uid)
        seen = mine.suspended_at if mine is not None else None
        return job if seen == job.suspended_at else msgspec.structs.replace(job, suspended_at=seen)

    def job_gone(self, job_uid: str, now: datetime) -> GoneJob | None:
        """Forget the Job. Its UID is never used again. Returns what it was if it has trained, else None."""
        gone = self.as_gone(job_uid, now)
        self._by_job.pop(job_uid, None)
        return gone

    def as_gone(self, job_uid: str, now: datetime) -> GoneJob | None:
        """The Job as one that is gone since now. None: it has not trained in its present run."""
        mine = self._by_job.get(job_uid)
        if mine is None or mine.job is None or mine.trained_at is None:
            return None
        job = msgspec.structs.replace(mine.job, gone_at=now, suspended_at=mine.suspended_at)
        return GoneJob(job, mine.trained_at)

    def pod_seen(self, pod: PodFacts) -> bool:
        """Record the state of a pod. True: its group may just have become whole, so `train` is worth a call."""
        if pod.index is None or not pod.job_uid:
            return False
        mine = self._by_job.setdefault(pod.job_uid, _JobHistory())
        mine.present.add(pod.uid)
        if ended_by_itself(pod) and mine.job is not None and not mine.job.suspended:
            mine.done[pod.index] = pod
        if pod.running:
            mine.running[pod.index] = pod.uid
        else:
            self._no_longer_running(mine, pod)
        return mine.whole_at_last()

    def pod_gone(self, pod: PodFacts, now: datetime) -> None:
        """Record that a pod's object is gone. It counts as vanished, with `now` as its `gone_at`, unless its Job is
        unknown, suspended or being deleted."""
        mine = self._by_job.get(pod.job_uid)
        if mine is None:
            return
        mine.present.discard(pod.uid)
        self._no_longer_running(mine, pod)
        job = mine.job
        if job is None:
            self._forget_if_empty(pod.job_uid, mine)
            return
        if job.deleting_since is not None or job.suspended:
            return
        mine.ended += 1
        before = mine.gone.get(pod.index)
        if before is None or before.created_at <= pod.created_at:
            mine.gone[pod.index] = msgspec.structs.replace(pod, gone_at=now)

    def pod_left(self, pod: PodFacts) -> None:
        """Record that a pod now belongs to another Job, or to none. It still exists, so it is no loss."""
        mine = self._by_job.get(pod.job_uid)
        if mine is not None:
            mine.present.discard(pod.uid)
            self._no_longer_running(mine, pod)
            self._forget_if_empty(pod.job_uid, mine)

    def vanished(self, job_uid: str) -> Iterable[PodFacts]:
        """The last known states of the Job's vanished pods."""
        mine = self._by_job.get(job_uid)
        return mine.gone.values() if mine is not None else ()

    def saw_all_pods(self, job_uid: str, pods: Iterable[PodFacts]) -> bool:
        """Whether no pod of the Job has come and gone unseen, and of each rank the newest ones are known. `pods`: those
        of the Job and of others."""
        mine = self._by_job.get(job_uid)
        if mine is None or mine.job is None:
            return False
        # Without an index only the last vanished pod is kept, and no rank shows which one that was.
        kept = mine.job.completions is not None or mine.ended == len(mine.gone)
        return kept and mine.has_seen_all(pod for pod in pods if pod.job_uid == job_uid)

    def done(self, job_uid: str) -> tuple[PodFacts, ...]:
        """The pods in which ranks of the Job have trained to their end, by index."""
        mine = self._by_job.get(job_uid)
        return tuple(pod for _, pod in sorted(mine.done.items())) if mine is not None else ()

    def train(self, job: JobFacts, pods: Iterable[PodFacts]) -> datetime | None:
        """When all members were seen to run at the same time, remembered until the Job is suspended. None: never.

        `pods`: the pods of the Job, including vanished ones.
        """
        mine, members, job = self._by_job.get(job.uid), tuple(pods), self.with_suspension(job)
        remembered = mine.trained_at if mine is not None else None
        if remembered is None:
            moment = all_ran_at(job, members, watched=mine is not None and mine.has_seen_all(members))
        else:
            moment = trained_at(job, members, remembered)
            if moment is None and not pods_of_run(job, members):
                return None  # The Job may be gone, which its watch has yet to show. Then it is a Job that had trained.
        if mine is not None:
            mine.trained_at = moment
            if moment != remembered:
                mine.trained_members = member_count(job) if moment is not None else None
            if remembered is not None and moment is None:
                mine.done.clear()  # a run is over whose end the Job does not show, and its ranks train again
        return moment

    def trained_members(self, job: JobFacts) -> int:
        """The largest number of members with which the Job's group has trained, less those scaled away since. Where
        nothing is remembered, the present number."""
        mine = self._by_job.get(job.uid)
        known = mine.trained_members if mine is not None else None
        return member_count(job) if known is None else known

    def _forget_if_empty(self, job_uid: str, mine: _JobHistory) -> None:
        """Without a known Job, only running pods keep the memory."""
        if mine.job is None and not mine.running:
            del self._by_job[job_uid]

    def _no_longer_running(self, mine: _JobHistory, pod: PodFacts) -> None:
        if pod.index is not None and mine.running.get(pod.index) == pod.uid:
            del mine.running[pod.index]
