"""From the objects of a group, cached or just read, to the Snapshot that is decided on.

One function for both, so that a decision on live facts sees what a decision on cached ones would have seen.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from recovery.core.facts import GroupKey, JobFacts, NodeFacts, PodFacts, Snapshot, WorkloadFacts
from recovery.kube.incarnations import Incarnations
from recovery.kube.projections.pods import PodRecord
from recovery.kube.projections.workloads import JobSetRecord
from recovery.workloads import WorkloadAdapter


class Parts(msgspec.Struct, frozen=True):
    """All objects that carry the group's name, in no order."""

    workload: WorkloadFacts | None
    jobset: JobSetRecord | None
    jobs: tuple[JobFacts, ...]
    pods: tuple[PodRecord, ...]

    @property
    def foreign(self) -> bool:
        """The JobSet of that name is not the workload's: a user's own, or still that of an earlier workload."""
        return self.workload is not None and self.jobset is not None and self.jobset.owner_uid != self.workload.uid


def snapshot_of(
    key: GroupKey,
    parts: Parts,
    *,
    adapter: WorkloadAdapter,
    incarnations: Incarnations,
    nodes: Mapping[str, NodeFacts],
    vanished: Iterable[PodFacts] = (),
    live: bool = False,
) -> Snapshot:
    """`vanished`: pods found gone by this very reading, besides those that the watch has told of."""
    if parts.foreign:
        return Snapshot(key, parts.workload, None, (), (), live=live)
    jobset = parts.jobset.facts if parts.jobset is not None else None
    by_name = sorted(parts.jobs, key=lambda job: job.name)
    jobs = tuple(job for job in by_name if adapter.is_member(job.replicated_job, jobset, job))
    members = {job.uid for job in jobs}
    others = {job.uid for job in parts.jobs} - members
    pods = {
        pod.facts.uid: pod.facts
        for pod in parts.pods
        if pod.facts.job_uid in members
        or (pod.facts.job_uid not in others and adapter.is_member(pod.replicated_job, jobset, None))
    }
    for job in jobs:
        for lost in incarnations.vanished(job.uid):
            pods.setdefault(lost.uid, lost)
    for lost in vanished:
        if lost.job_uid in members:
            pods.setdefault(lost.uid, lost)
    ordered = tuple(sorted(pods.values(), key=lambda pod: pod.name))
    return Snapshot(
        key=key,
        workload=parts.workload,
        jobset=jobset,
        jobs=jobs,
        pods=ordered,
        nodes={pod.node: nodes[pod.node] for pod in ordered if pod.node in nodes},
        trained_at=_trained_at(jobs, ordered, incarnations),
        live=live,
    )


def _trained_at(
    jobs: Iterable[JobFacts], pods: tuple[PodFacts, ...], incarnations: Incarnations
) -> dict[str, datetime]:
    moments = ((job.uid, incarnations.train(job, pods)) for job in jobs)
    return {job_uid: moment for job_uid, moment in moments if moment is not None}
