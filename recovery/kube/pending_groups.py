"""Groups that wait for nodes: for whom a quarantine must leave enough, whichever group it is for.

A group waits while one of its members has no node yet, or is on its way out and has to be placed again. One that is
suspended, ours included, has no pods to tell what it will ask for, and is not known of here.
"""

from collections.abc import Iterator

from recovery.core.diagnosis.membership import member_count
from recovery.core.model.facts import Demand, GroupKey, JobFacts, JobSetFacts, PodFacts, WaitingGroup, WorkloadFacts
from recovery.kube.capacity import Capacity, pods_per_node, scarce
from recovery.kube.projections.pods import PodRecord
from recovery.kube.snapshots import Parts
from recovery.workloads import adapter_of

MemberDemand = tuple[str, Demand]
"""What some pods ask for, with the name of their ReplicatedJob."""

_ENDED = frozenset({"Succeeded", "Failed"})


class PodsToPlace:
    """Of each group, the pods that have to be placed, counted by what they ask. Constant work for each event."""

    def __init__(self) -> None:
        self._counts: dict[GroupKey, dict[MemberDemand, int]] = {}

    def changed(self, key: GroupKey, before: PodRecord | None, after: PodRecord | None) -> None:
        """A pod of the group was seen for the first time (`before` None), is gone (`after` None) or has changed."""
        asked, asks = _demand_of(before), _demand_of(after)
        if asked == asks:
            return
        counts = self._counts.setdefault(key, {})
        if asks is not None:
            counts[asks] = counts.get(asks, 0) + 1
        if asked is not None:
            counts[asked] -= 1
            if not counts[asked]:
                del counts[asked]
        if not counts:
            del self._counts[key]

    def groups(self) -> Iterator[tuple[GroupKey, tuple[MemberDemand, ...]]]:
        """Those with pods to place, and what those ask for."""
        return ((key, tuple(counts)) for key, counts in self._counts.items())


def _demand_of(record: PodRecord | None) -> MemberDemand | None:
    """None: the pod is not there, or has its place, or needs none any more."""
    if record is None or not _to_place(record.facts):
        return None
    return record.replicated_job, record.facts.demand


def _to_place(pod: PodFacts) -> bool:
    return pod.phase not in _ENDED and (not pod.node or pod.deleting_since is not None)


def waiting_group(
    key: GroupKey, parts: Parts, wanted: tuple[MemberDemand, ...], capacity: Capacity
) -> WaitingGroup | None:
    """None: it does not wait, or for more nodes than there are of its kind, so that no quarantine makes a difference.

    Its members that have a node count as well: what is feasible is counted free or not.
    """
    workload, jobset = parts.workload, parts.jobset
    if workload is None or jobset is None or parts.foreign or _at_rest(workload, jobset.facts):
        return None
    adapter = adapter_of(workload)
    asked = [each for each in wanted if adapter.is_member(each[0], jobset.facts, None)]
    demands = scarce(tuple(dict.fromkeys(demand for _, demand in asked)))
    replicated_jobs = {name for name, demand in asked if demand in demands}
    jobs = [job for job in parts.jobs if job.replicated_job in replicated_jobs and not _over(job)]
    room = capacity.room(demands)
    needed = -(-sum(map(member_count, jobs)) // pods_per_node(room, (record.facts for record in parts.pods)))
    return WaitingGroup(key, needed, room.feasible) if 0 < needed <= room.in_all else None


def _at_rest(workload: WorkloadFacts, jobset: JobSetFacts) -> bool:
    """Suspended, finished, or on its way out."""
    ended = workload.condition("Complete") or workload.condition("Failed") or jobset.terminal_state
    leaving = workload.deleting_since or jobset.deleting_since
    return workload.suspended or jobset.suspended or bool(ended) or leaving is not None


def _over(job: JobFacts) -> bool:
    return job.suspended or any(job.condition(type_) is not None for type_ in ("Complete", "SuccessCriteriaMet"))
