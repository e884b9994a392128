"""Builds the Snapshot for a decision from the objects of a group, cached or read live.

One function serves both, so that a decision on live facts is made in the same way as one on cached facts.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec

from recovery.core.diagnosis.trained import group_ran_at
from recovery.core.diagnosis.training_container import assigned, select
from recovery.core.incident.fencing import OUT_OF_SERVICE_TAINT
from recovery.core.model.drill import DrillFacts
from recovery.core.model.facts import (
    GroupKey,
    JobFacts,
    JobSetFacts,
    NodeFacts,
    PodFacts,
    Snapshot,
    UndecodableObject,
    WorkloadFacts,
)
from recovery.kube.first_deletions import remembering
from recovery.kube.job_history import GoneJob, JobHistories
from recovery.kube.projections.pods import PodRecord
from recovery.kube.projections.workloads import JobSetRecord
from recovery.workloads import WorkloadAdapter, adapter_of


class Parts(msgspec.Struct, frozen=True):
    """All objects with the group's name, in no order."""

    train_job: WorkloadFacts | None
    jobset: JobSetRecord | None
    jobs: tuple[JobFacts, ...]
    pods: tuple[PodRecord, ...]
    undecodable: tuple[UndecodableObject, ...] = ()
    """The objects that cannot be read, in no order."""
    gone_jobs: tuple[GoneJob, ...] = ()
    """In no order."""

    @property
    def workload(self) -> WorkloadFacts | None:
        """The TrainJob, else the JobSet if nothing controls it. A JobSet with a controller is left to it."""
        if self.train_job is not None:
            return self.train_job
        return self.jobset.workload if self.jobset is not None else None

    @property
    def foreign(self) -> bool:
        """Whether the JobSet is not the TrainJob's: a user created it, or it is left from an earlier TrainJob."""
        return self.train_job is not None and self.jobset is not None and self.jobset.owner_uid != self.train_job.uid

    def filled_from(self, earlier: "Parts") -> "Parts":
        """These parts with the last readable state from `earlier` for each object that cannot be read."""
        uids = {each.uid for each in self.undecodable} - {""}
        if not uids:
            return self
        train_job, jobset = earlier.train_job, earlier.jobset
        return msgspec.structs.replace(
            self,
            train_job=train_job if train_job is not None and train_job.uid in uids else self.train_job,
            jobset=jobset if jobset is not None and jobset.facts.uid in uids else self.jobset,
            jobs=(*self.jobs, *(job for job in earlier.jobs if job.uid in uids)),
            pods=(*self.pods, *(pod for pod in earlier.pods if pod.facts.uid in uids)),
        )

    def remembering(self, earlier: "Parts") -> "Parts":
        """These parts with what `earlier` shows about the deletion of each pod."""
        known = {pod.facts.uid: pod for pod in earlier.pods}
        pods = tuple(remembering(pod, known.get(pod.facts.uid)) for pod in self.pods)
        return msgspec.structs.replace(self, pods=pods)


def _no_drills(namespace: str, workload_uid: str) -> tuple[DrillFacts, ...]:
    return ()


def snapshot_of(
    key: GroupKey,
    parts: Parts,
    *,
    incarnations: JobHistories,
    nodes: Mapping[str, NodeFacts],
    gone_nodes: Container[str] = frozenset(),
    unknown_nodes: Container[str] = frozenset(),
    vanished: Iterable[PodFacts] = (),
    live: bool = False,
    stale: Mapping[str, datetime] = MappingProxyType({}),
    drills: Callable[[str, str], tuple[DrillFacts, ...]] = _no_drills,
) -> Snapshot:
    """Build the snapshot. `vanished`: pods found gone by this read, besides those that the watch has reported.
    `gone_nodes`: nodes that do not exist, even if `nodes` has them. `unknown_nodes`: nodes about which nothing is
    known, even if `nodes` or `gone_nodes` has them. `drills`: the RecoveryDrills, by namespace and UID of the
    workload."""
    undecodable = tuple(sorted(parts.undecodable, key=lambda each: (each.kind, each.name)))
    if parts.foreign:
        return Snapshot(key, parts.workload, None, (), (), live=live, stale=stale, undecodable=undecodable)
    adapter = adapter_of(parts.workload)
    jobset = parts.jobset.facts if parts.jobset is not None else None
    by_name = sorted(parts.jobs, key=lambda job: job.name)
    members_by_name = (job for job in by_name if adapter.is_member(job.replicated_job, jobset, job))
    jobs = tuple(map(incarnations.with_suspension, members_by_name))
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
    ordered = _assigned(jobs, parts.workload, sorted(pods.values(), key=lambda pod: pod.name), nodes)
    names = dict.fromkeys(pod.node for pod in ordered if pod.node and pod.node not in unknown_nodes)
    gone = [each for each in parts.gone_jobs if adapter.is_member(each.facts.replicated_job, jobset, each.facts)]
    watched = frozenset(job.uid for job in jobs if len(jobs) > 1 and incarnations.saw_all_pods(job.uid, ordered))
    expected = _expected_jobs(adapter, jobset, parts.jobs, members)
    trained_at = {job.uid: moment for job in jobs if (moment := incarnations.train(job, ordered)) is not None}
    present = [job for job in jobs if job.deleting_since is None]
    if len(present) >= expected:
        for uid, moment in group_ran_at(present, ordered, watched).items():
            trained_at[uid] = min(moment, trained_at.get(uid, moment))
    trained_at |= {each.facts.uid: each.trained_at for each in gone}
    return Snapshot(
        key=key,
        workload=parts.workload,
        jobset=jobset,
        jobs=jobs,
        pods=ordered,
        gone_jobs=tuple(sorted((each.facts for each in gone), key=lambda job: job.name)),
        nodes={name: nodes[name] for name in names if name in nodes and name not in gone_nodes},
        gone_nodes=frozenset(name for name in names if name in gone_nodes),
        trained_at=trained_at,
        trained_members={job.uid: incarnations.trained_members(job) for job in jobs if job.uid in trained_at},
        fully_watched=watched,
        done={job.uid: done for job in jobs if (done := incarnations.done(job.uid))},
        expected_jobs=expected,
        live=live,
        stale=stale,
        drills=drills(key.namespace, parts.workload.uid) if parts.workload is not None else (),
        undecodable=undecodable,
    )


def doubtful_nodes(parts: Parts, nodes: Mapping[str, NodeFacts], unknown: Container[str]) -> Iterator[str]:
    """The group's nodes whose pods could be dead, according to the cache. Only those are worth a request. `unknown`: as
    `unknown_nodes` of `snapshot_of`.

    A node that was deleted and created again under its name exists, so it does not count as gone: a kubelet that
    registers again keeps its pods running. If it is another machine, its kubelet reports the end of the pods.
    """
    for name in sorted({pod.facts.node for pod in parts.pods if pod.facts.node}):
        node = nodes.get(name) if name not in unknown else None
        if node is None or not node.ready or any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.taints):
            yield name


def _assigned(
    jobs: Iterable[JobFacts],
    workload: WorkloadFacts | None,
    pods: Iterable[PodFacts],
    nodes: Mapping[str, NodeFacts],
) -> tuple[PodFacts, ...]:
    """The pods with their training containers marked. A pod whose Job is not known is unchanged."""
    selections = {job.uid: select(job, workload) for job in jobs}

    def each(pod: PodFacts) -> PodFacts:
        selection, node = selections.get(pod.job_uid), nodes.get(pod.node)
        if selection is None:
            return pod
        return assigned(pod, selection, node_answers=node is None or node.reachable)

    return tuple(map(each, pods))


def _expected_jobs(
    adapter: WorkloadAdapter, jobset: JobSetFacts | None, jobs: Iterable[JobFacts], members: Container[str]
) -> int:
    """The replicas of the member ReplicatedJobs, less those of their Jobs that are no longer members."""
    if jobset is None:
        return 0
    asked = {each.name: each.replicas for each in jobset.replicated_jobs if adapter.is_member(each.name, jobset, None)}
    ceased = sum(job.replicated_job in asked and job.uid not in members for job in jobs)
    return max(sum(asked.values()) - ceased, 0)
