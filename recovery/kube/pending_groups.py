"""Finds the groups that wait for nodes. Every quarantine must leave enough nodes for them.

A group waits while one of its members has no node yet, or is terminating and has to be placed again. A suspended group,
even one that we suspended, has no pods that show its future demands, and is not counted here.
"""

from collections.abc import Callable, Iterator

import msgspec

from recovery.core.diagnosis.membership import member_count
from recovery.core.model.demand import Demand
from recovery.core.model.facts import GroupKey, JobFacts, JobSetFacts, PodFacts, WaitingGroup, WorkloadFacts
from recovery.kube.capacity import COST_MAX, Capacity, FittingNodes, PodRoom, pods_per_node, scarce
from recovery.kube.node_index import NodeSet
from recovery.kube.projections.pods import PodRecord
from recovery.kube.snapshots import Parts
from recovery.workloads import adapter_of

COST_AT_ONCE_MAX = 5_000
"""The cost that may be spent while a caller waits, in the unit of `Capacity.cost`: 5 to 10 ms."""

MemberDemand = tuple[str, str, Demand]
"""The UID of a Job, the name of its ReplicatedJob, and the demand of some of its pods."""

_HELD_AT_COST = 5
"""One unit of cost pays for finding this many nodes by name."""
_ENDED = frozenset({"Succeeded", "Failed"})


class PodsToPlace:
    """Counts the pods of each group that have to be placed, by their demands. Constant work for each event."""

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
        """The groups with pods to place, and the demands of these pods."""
        return ((key, tuple(counts)) for key, counts in self._counts.items())

    def has(self, key: GroupKey) -> bool:
        """Whether the group has pods to place."""
        return key in self._counts

    def of(self, key: GroupKey) -> tuple[MemberDemand, ...]:
        """The demands of the group's pods that have to be placed. Empty: it has none."""
        return tuple(self._counts.get(key, ()))


def _demand_of(record: PodRecord | None) -> MemberDemand | None:
    """None: there is no pod, or it has its node, or it no longer needs one."""
    if record is None or not _to_place(record.facts):
        return None
    return record.facts.job_uid, record.replicated_job, record.facts.demand


def _to_place(pod: PodFacts) -> bool:
    return pod.phase not in _ENDED and (not pod.node or pod.deleting_since is not None)


class NodeClaim(msgspec.Struct, frozen=True):
    """The nodes that a waiting group is still going to take."""

    key: GroupKey
    nodes: int
    """How many nodes, besides those on which its members are."""
    feasible: NodeSet
    """The nodes that it may take."""
    gpus: int
    """The accelerators that its largest pod asks for."""


class WaitingGroups:
    """The groups that wait. A group is counted again only when it or a node has changed."""

    def __init__(
        self,
        to_place: PodsToPlace,
        capacity: Capacity,
        parts: Callable[[GroupKey], Parts],
        members_to_be: Callable[[GroupKey], int] = lambda _: 0,
    ) -> None:
        """`parts`: the known objects of a group. Code that changes any of them calls `changed`. `members_to_be`: how
        many members the restart under way gives the group, which its present Job does not show; 0: no restart."""
        self._to_place = to_place
        self._capacity = capacity
        self._parts = parts
        self._members_to_be = members_to_be
        self._counted: dict[GroupKey, _Counted] = {}
        self._changed: dict[GroupKey, None] = {}
        """Groups that have changed and are to be counted again, oldest change first."""
        self._moved: dict[GroupKey, None] = {}
        """Groups that have not changed since they were counted, but the nodes have."""
        self._states = 0
        """The last seen value of `Capacity.states`."""

    def changed(self, key: GroupKey) -> None:
        """An object of the group has changed. Constant work."""
        if self._to_place.has(key):
            self._changed[key] = None
        else:
            self._counted.pop(key, None)
            self._changed.pop(key, None)
            self._moved.pop(key, None)

    def besides(self, own: GroupKey) -> tuple[WaitingGroup, ...] | None:
        """The other groups that wait. None: not known yet, because too much has changed to be counted now. Call
        `count_some` before asking again."""
        if not self._capacity.current() or self.count_some(COST_AT_ONCE_MAX):
            return None
        waiting = ((key, counted.waiting) for key, counted in self._counted.items() if key != own)
        return tuple(each for _, each in waiting if each is not None)

    def claims(self, own: GroupKey) -> tuple[NodeClaim, ...]:
        """The claims of the groups that `besides` returns, as of its last call."""
        counted = ((key, counted.claim) for key, counted in self._counted.items() if key != own)
        return tuple(claim for _, claim in counted if claim is not None)

    def count_some(self, most: int) -> bool:
        """Count groups that have changed until the cost reaches `most`. Returns whether there are more. The nodes must
        be current."""
        if self._states != self._capacity.states:
            self._states = self._capacity.states
            self._moved = dict.fromkeys(self._counted)
        cost = 0
        while self._changed and cost < most:
            key = next(iter(self._changed))
            del self._changed[key]
            self._moved.pop(key, None)
            cost += self._count(key)
        while self._moved and cost < most:
            key = next(iter(self._moved))
            del self._moved[key]
            cost += self._count_on_nodes(key)
        return bool(self._changed or self._moved)

    def _count(self, key: GroupKey) -> int:
        """Count a group that has changed. Returns the cost."""
        wanted = self._to_place.of(key)
        parts, before = self._parts(key), self._counted.get(key)
        asked = _asked_by_members(parts, wanted)
        demands = scarce(tuple(dict.fromkeys(demand for _, _, demand in asked)))
        counted = frozenset(demands)
        replicated_jobs = {name for _, name, demand in asked if demand in counted}
        jobs = (job for job in parts.jobs if job.replicated_job in replicated_jobs and not _over(job))
        held = frozenset(
            record.facts.node
            for record in parts.pods
            if record.replicated_job in replicated_jobs and record.facts.holds_gpus
        )
        self._counted[key] = _Counted(
            demands=demands,
            fitting=before.fitting if before is not None and before.demands == demands else None,
            members=max(sum(map(member_count, jobs)), self._members_to_be(key) if counted else 0),
            sharing=pods_per_node(PodRoom(), (record.facts for record in parts.pods)),
            held=held,
            held_nodes=self._capacity.nodes_called(held),
        )
        return 1 + len(wanted) + len(parts.pods) + self._count_on_nodes(key)

    def _count_on_nodes(self, key: GroupKey) -> int:
        """Update a counted group for the present nodes. Returns the cost."""
        counted, cost, named = self._counted.get(key), 1, self._capacity.naming_cost
        if counted is None:
            return cost
        fitting, held_nodes = counted.fitting, counted.held_nodes
        if fitting is None or not self._capacity.still_fit(fitting):
            held_nodes = self._capacity.nodes_called(counted.held)
            cost += len(counted.held) // _HELD_AT_COST
            more = self._capacity.cost(counted.demands)
            fitting = None
            if 0 < more <= COST_MAX:
                cost += more
                fitting = self._capacity.fitting(counted.demands)
        waiting = claim = None
        if fitting is not None:
            feasible = self._capacity.open_on(fitting)
            waiting = _waiting(key, counted, self._capacity.room_on(fitting, feasible))
            claim = _claim(waiting, held_nodes, feasible, fitting.gpus) if waiting is not None else None
        self._counted[key] = msgspec.structs.replace(
            counted, fitting=fitting, held_nodes=held_nodes, waiting=waiting, claim=claim
        )
        return cost + self._capacity.naming_cost - named


class _Counted(msgspec.Struct, frozen=True):
    """A group with pods to place, at the time when it was counted."""

    demands: tuple[Demand, ...]
    """The demands of its members that have to be placed. Empty: it has none."""
    fitting: FittingNodes | None
    """None: not known, or the demands cost too much to examine."""
    members: int
    """The members of those ReplicatedJobs that have pods to place."""
    sharing: int
    """How many of its pods share a node, where they ask for no accelerators."""
    held: frozenset[str]
    """The nodes on which its members are, including terminating members."""
    held_nodes: NodeSet
    """The same nodes, as far as they are indexed."""
    waiting: WaitingGroup | None = None
    """None: it does not wait."""
    claim: NodeClaim | None = None
    """None: it does not wait, or needs no more nodes than it is on."""


def _asked_by_members(parts: Parts, wanted: tuple[MemberDemand, ...]) -> tuple[MemberDemand, ...]:
    """The demands of the group's members. Empty: the group does not wait, or the pods to place are no members.

    Pods of unknown Jobs do not count as members: anybody can create a pod with the labels of a group.
    """
    workload, jobset = parts.workload, parts.jobset
    if workload is None or jobset is None or parts.foreign or _at_rest(workload, jobset.facts):
        return ()
    adapter = adapter_of(workload)
    known = {job.uid for job in parts.jobs}
    return tuple(
        (job_uid, name, demand)
        for job_uid, name, demand in wanted
        if job_uid in known and adapter.is_member(name, jobset.facts, None)
    )


def _waiting(key: GroupKey, counted: _Counted, room: PodRoom) -> WaitingGroup | None:
    """None: the group does not wait, or it needs more nodes of its kind than exist, so no quarantine matters to it.

    Members that already have a node count too, because feasible nodes are counted whether they are free or not.
    """
    needed = -(-counted.members // (room.pods_by_gpus or counted.sharing))
    return WaitingGroup(key, needed, room.feasible, counted.held) if 0 < needed <= room.in_all else None


def _claim(waiting: WaitingGroup, held: NodeSet, feasible: NodeSet, gpus: int) -> NodeClaim | None:
    """Terminating pods count as holding nodes: their replacements find at least these nodes free."""
    more = waiting.needed - (held & feasible).bit_count()
    return NodeClaim(waiting.key, more, feasible, gpus) if more > 0 else None


def _at_rest(workload: WorkloadFacts, jobset: JobSetFacts) -> bool:
    """Whether the group is suspended, finished or being deleted."""
    ended = workload.condition("Complete") or workload.condition("Failed") or jobset.terminal_state
    leaving = workload.deleting_since or jobset.deleting_since
    return workload.suspended or jobset.suspended or bool(ended) or leaving is not None


def _over(job: JobFacts) -> bool:
    return job.suspended or any(job.condition(type_) is not None for type_ in ("Complete", "SuccessCriteriaMet"))
