"""Indexes the objects of all groups as the watches report them: TrainJobs, JobSets, Jobs and pods, by group.

An event costs the same in every cluster: each index is updated from the old and the new state of that one object. Only
an event that changes a fact notifies the group.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from recovery.core.diagnosis.loss_signs import job_may_be_lost, jobset_may_be_lost, pod_may_be_lost
from recovery.core.diagnosis.training_container import Selection, assigned, select
from recovery.core.model.facts import GroupKey, JobFacts, JobSetFacts, PodFacts, WorkloadFacts
from recovery.core.model.progress import Progress
from recovery.kube.first_deletions import remembering
from recovery.kube.gpus_in_use import GpusInUse
from recovery.kube.job_history import GoneJob, JobHistories
from recovery.kube.nested_index import remove
from recovery.kube.pending_groups import PodsToPlace
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.pods import PodRecord
from recovery.kube.projections.workloads import JobRecord, JobSetRecord
from recovery.kube.snapshots import Parts
from recovery.ports import Clock, GroupChanged
from recovery.workloads import adapter_of


class GroupObjects:
    """Informers put and drop objects here as they receive them. Each group that changes is notified."""

    def __init__(
        self,
        clock: Clock,
        *,
        notify: GroupChanged,
        resumes: Callable[[GroupKey, str], bool],
        lists_pods: Callable[[], bool],
    ) -> None:
        """`notify`: called when a fact of a group has changed. `resumes`: whether the incident of the workload of that
        UID waits for the training to report. `lists_pods`: whether the pods being put come from a list, which has no
        order and ends with `pods_taken_over`."""
        self._clock = clock
        self._notify = notify
        self._resumes = resumes
        self._lists_pods = lists_pods
        self.histories = JobHistories()
        self.to_place = PodsToPlace()
        self.in_use = GpusInUse()
        self._selections: dict[str, Selection] = {}
        """Which containers train, by Job UID."""
        self._train_jobs: dict[GroupKey, WorkloadFacts] = {}
        self._bare: set[GroupKey] = set()
        """The JobSets that nothing controls: workloads, unless a TrainJob has the name."""
        self._jobsets: dict[GroupKey, JobSetRecord] = {}
        self._jobs: dict[GroupKey, dict[str, JobFacts]] = {}
        self._gone_jobs: dict[GroupKey, dict[str, GoneJob]] = {}
        """By name the newest Job that is gone and had trained, as long as the group has a workload."""
        self._pods: dict[GroupKey, dict[str, PodRecord]] = {}
        self._pods_on_node: dict[str, dict[GroupKey, int]] = {}
        self._whole: dict[str, GroupKey] = {}
        """UIDs of Jobs whose members all run, as far as the list that is being put shows."""

    def workloads(self) -> Iterable[GroupKey]:
        """The groups that have a workload."""
        return (*self._train_jobs, *(key for key in self._bare if key not in self._train_jobs))

    def parts(self, key: GroupKey) -> Parts:
        """The objects of the group, without those that cannot be read."""
        return Parts(
            train_job=self._train_jobs.get(key),
            jobset=self._jobsets.get(key),
            jobs=tuple(self._jobs.get(key, {}).values()),
            pods=tuple(self._pods.get(key, {}).values()),
            gone_jobs=tuple(self._gone_jobs.get(key, {}).values()),
        )

    def progress(self, key: GroupKey) -> Progress | None:
        """The last report of the group's training. None: there is none."""
        workload = self._train_jobs.get(key)
        return workload.progress if workload is not None else None

    def member(self, entry: ObjectEntry[PodRecord] | None) -> tuple[GroupKey, PodFacts] | None:
        """The pod with its group, if its Job exists and is one of those that train. None: it is none, or not there."""
        if entry is None:
            return None
        pod, parts = entry.value, self.parts(entry.value.group)
        job = next((job for job in parts.jobs if job.uid == pod.facts.job_uid), None)
        jobset = parts.jobset.facts if parts.jobset is not None else None
        trains = job is not None and adapter_of(parts.workload).is_member(pod.replicated_job, jobset, job)
        return (pod.group, pod.facts) if trains else None

    def on_node(self, name: str) -> tuple[GroupKey, ...]:
        """The groups that have pods on the node."""
        return tuple(self._pods_on_node.get(name, ()))

    def put_train_job(self, entry: ObjectEntry[WorkloadFacts]) -> None:
        key = GroupKey(entry.namespace, entry.name)
        known, workload = self._train_jobs.get(key), entry.value
        self._train_jobs[key] = workload
        self._select_again(key)
        if known is None or not _same(msgspec.structs.replace(known, progress=workload.progress), workload):
            self._notify(key, loss=False)
        elif known.progress != workload.progress:
            self._reported(key, workload.uid)

    def _reported(self, key: GroupKey, workload_uid: str) -> None:
        """Training processes report every few seconds. Only a recovery that waits for a report has to know."""
        if self._resumes(key, workload_uid):
            self._notify(key, loss=False)

    def drop_train_job(self, entry: ObjectEntry[WorkloadFacts]) -> None:
        key = GroupKey(entry.namespace, entry.name)
        self._train_jobs.pop(key, None)
        self._forget_gone_jobs(key)
        self._notify(key, loss=False)

    def put_jobset(self, entry: ObjectEntry[JobSetRecord]) -> None:
        key = GroupKey(entry.namespace, entry.name)
        known = self._jobsets.get(key)
        self._jobsets[key] = entry.value
        if entry.value.workload is not None:
            self._bare.add(key)
        else:
            self._bare.discard(key)
        self._select_again(key)
        if known is None or not _same_jobset(known, entry.value):
            before = known.facts if known is not None else None
            self._notify(key, loss=jobset_may_be_lost(before, entry.value.facts))

    def drop_jobset(self, entry: ObjectEntry[JobSetRecord]) -> None:
        key = GroupKey(entry.namespace, entry.name)
        self._jobsets.pop(key, None)
        self._bare.discard(key)
        self._forget_gone_jobs(key)
        self._notify(key, loss=True)

    def put_job(self, entry: ObjectEntry[JobRecord]) -> None:
        key, job = entry.value.group, entry.value.facts
        mine = self._jobs.setdefault(key, {})
        known = mine.get(entry.name)
        mine[entry.name] = job
        whole = self.histories.job_seen(job)
        self._select_again(key)
        if whole:
            self._train(key, job)
        if known is None or not _same(known, job):
            self._notify(key, loss=job_may_be_lost(known, job))

    def replace_job(self, before: ObjectEntry[JobRecord], after: ObjectEntry[JobRecord]) -> None:
        """A Job whose group label changed now belongs to another group. Its history stays with its UID."""
        key = before.value.group
        if key != after.value.group:
            remove(self._jobs, key, before.name)
            self._notify(key, loss=True)

    def drop_job(self, entry: ObjectEntry[JobRecord]) -> None:
        key = entry.value.group
        gone = self.histories.job_gone(entry.uid, self._clock.now())
        if gone is not None and self._has_workload(key):
            self._gone_jobs.setdefault(key, {})[entry.name] = gone
        self._selections.pop(entry.uid, None)
        remove(self._jobs, key, entry.name)
        self._notify(key, loss=True)

    def _has_workload(self, key: GroupKey) -> bool:
        return key in self._train_jobs or key in self._bare

    def _forget_gone_jobs(self, key: GroupKey) -> None:
        """Without its workload the group is over, whichever of the two the watches report first."""
        if not self._has_workload(key):
            self._gone_jobs.pop(key, None)

    def put_pod(self, entry: ObjectEntry[PodRecord]) -> None:
        key = entry.value.group
        mine = self._pods.setdefault(key, {})
        before = mine.get(entry.name)
        record = mine[entry.name] = remembering(entry.value, before)
        pod = record.facts
        self.to_place.changed(key, before, record)
        self.in_use.pod_changed(before, record)
        before_node = before.facts.node if before is not None else ""
        if before_node != pod.node:
            self._count_on_node(before_node, key, -1)
            self._count_on_node(pod.node, key, 1)
        self._pod_seen(key, pod)
        if before is None or not _same(before.facts, pod):
            self._notify(key, loss=pod_may_be_lost(before.facts if before is not None else None, pod))

    def replace_pod(self, before: ObjectEntry[PodRecord], after: ObjectEntry[PodRecord]) -> None:
        """A pod whose group label changed now belongs to another group. It still exists, so its old group lost none."""
        if before.value.facts.job_uid != after.value.facts.job_uid:
            self.histories.pod_left(before.value.facts)
        if before.value.group != after.value.group:
            self._take_out(before.value.group, before.name)
            self._notify(before.value.group, loss=True)

    def _take_out(self, key: GroupKey, pod_name: str) -> PodRecord | None:
        """Remove the pod from the indexes. Returns its last known state."""
        before = remove(self._pods, key, pod_name)
        if before is not None:
            self.to_place.changed(key, before, None)
            self.in_use.pod_changed(before, None)
            self._count_on_node(before.facts.node, key, -1)
        return before

    def drop_pod(self, entry: ObjectEntry[PodRecord]) -> None:
        key = entry.value.group
        last = remembering(entry.value, self._take_out(key, entry.name))
        self.histories.pod_gone(last.facts, self._clock.now())
        self._notify(key, loss=True)

    def _pod_seen(self, key: GroupKey, pod: PodFacts) -> None:
        """Record the pod. Its training containers, which its Job defines, decide whether it runs."""
        job = next((job for job in self._jobs.get(key, {}).values() if job.uid == pod.job_uid), None)
        selection = self._selections.get(pod.job_uid)
        whole = self.histories.pod_seen(pod if selection is None else assigned(pod, selection))
        if not whole or job is None:
            return
        if self._lists_pods():
            # Not yet: the rest of the list may show that all members ran only earlier, and a pod has ended since.
            self._whole[job.uid] = key
        else:
            self._train(key, job)

    def pods_taken_over(self) -> None:
        """The whole list is put. Record the training of groups whose members all run, as of the earliest moment."""
        whole, self._whole = self._whole, {}
        for job_uid, key in whole.items():
            job = next((job for job in self._jobs.get(key, {}).values() if job.uid == job_uid), None)
            if job is not None:
                self._train(key, job)

    def _select_again(self, key: GroupKey) -> None:
        """The group's Jobs or its workload have changed. Rarely, this changes which containers train."""
        workload = self.parts(key).workload
        for job in self._jobs.get(key, {}).values():
            selection = select(job, workload)
            if self._selections.get(job.uid) == selection:
                continue
            self._selections[job.uid] = selection
            for pod in self._pods.get(key, {}).values():
                if pod.facts.job_uid == job.uid:
                    self._pod_seen(key, pod.facts)

    def _train(self, key: GroupKey, job: JobFacts) -> None:
        pods = [pod.facts for pod in self._pods.get(key, {}).values() if pod.facts.job_uid == job.uid]
        known = (*pods, *self.histories.vanished(job.uid))
        selection = self._selections[job.uid]
        self.histories.train(job, [assigned(pod, selection) for pod in known])

    def _count_on_node(self, node: str, key: GroupKey, change: int) -> None:
        if not node:
            return
        groups = self._pods_on_node.setdefault(node, {})
        groups[key] = groups.get(key, 0) + change
        if not groups[key]:
            remove(self._pods_on_node, node, key)


_Facts = TypeVar("_Facts", WorkloadFacts, JobSetFacts, JobFacts, PodFacts)


def _same(before: _Facts, after: _Facts) -> bool:
    """Whether only the resourceVersion has changed, or what no decision reads and the projections drop.

    Most changes of a large cluster are of this kind. A group with one of them needs no reconcile: a write that names
    the old resourceVersion is refused, and reads again.
    """
    return msgspec.structs.replace(after, resource_version=before.resource_version) == before


def _same_jobset(before: JobSetRecord, after: JobSetRecord) -> bool:
    if before.owner_uid != after.owner_uid or not _same(before.facts, after.facts):
        return False
    if before.workload is None or after.workload is None:
        return before.workload is after.workload
    return _same(before.workload, after.workload)
