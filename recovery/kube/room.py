"""Finds for how many more pods of a group there is room now, besides its present pods.

The count is stricter than the scheduler: a group that grows restarts all of its ranks, so missing room costs more than
room that is found late.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_

import msgspec

from recovery.core.model.annotations import SPARE_LABEL
from recovery.core.model.demand import Demand
from recovery.core.model.facts import Room, Snapshot
from recovery.kube.capacity import Capacity, PodRoom, pods_per_node, scarce
from recovery.kube.node_index import NodeSet
from recovery.kube.pending_groups import NodeClaim

Places = Sequence[tuple[int, NodeSet]]
"""Sets of nodes, each with the number of pods for which every node of the set has room."""


class Wish(msgspec.Struct, frozen=True):
    """The demands of one more pod of a group on its node."""

    demands: tuple[Demand, ...]
    """At least one. The pod could have any of these, so the node has to meet all of them. Where each Job has its own
    topology domain, only the followers of a leader name the domain, and a node of another domain is useless."""
    gpus: int
    held: frozenset[str]
    """Nodes on which the group has pods, including terminating pods."""
    sharing: int
    """How many of the group's pods share a node now."""


def wish_of(snapshot: Snapshot) -> Wish | None:
    """None: nothing shows the demands of another pod, or the pods ask for devices of a DRA claim, which no node lists.

    Pods of an earlier incarnation count only if there are no others: their birth settings or domain may differ. The
    templates of the Jobs count while the group is suspended and has no pods.
    """
    living = {job.uid: job for job in snapshot.jobs if job.deleting_since is None}
    pods = tuple(pod for pod in snapshot.pods if pod.job_uid in living) or snapshot.pods
    asked = [pod.demand for pod in pods] or [job.demand for job in living.values()]
    demands = scarce(tuple(dict.fromkeys(asked)))
    gpus = max((demand.gpus for demand in demands), default=0)
    containers = (each for job in living.values() for each in job.containers)
    claims = any(pod.gpus for pod in pods) or any(each.accelerators for each in containers)
    if not demands or (not gpus and claims):
        return None
    held = frozenset(pod.node for pod in snapshot.pods if pod.holds_gpus)
    return Wish(demands, gpus, held, pods_per_node(PodRoom(), (pod for pod in pods if pod.holds_gpus)))


def places(wish: Wish, capacity: Capacity, free_gpus: Mapping[str, int] | None = None) -> Places | None:
    """Where there is room, regardless of other waiting groups. Nodes with most room come first. None: not known.

    `free_gpus`: free accelerators on nodes that have just been read; only these nodes count. None: all nodes, by the
    watches.
    """
    nodes = capacity.open_to_each(wish.demands)
    if nodes is None:
        return None
    found: Iterable[tuple[int, NodeSet]]
    if not wish.gpus:
        found = [(wish.sharing, nodes & ~capacity.nodes_called(wish.held))]
    elif free_gpus is None:
        found = capacity.free_for(nodes, wish.gpus)
    else:
        found = [(free // wish.gpus, capacity.nodes_called((name,)) & nodes) for name, free in free_gpus.items()]
    return sorted((pods, having) for pods, having in found if pods and having)[::-1]


def room_in(found: Places, wish: Wish, capacity: Capacity, claims: Iterable[NodeClaim]) -> Room:
    """The room left after the waiting groups have taken what they need. `claims`: the claims of these groups."""
    spares = capacity.labelled(SPARE_LABEL)
    # The waiting groups take the nodes with most room first, so that the result is never too large. Where they have a
    # choice, they leave the spares.
    left = [part for pods, nodes in found for part in ((pods, nodes & ~spares), (pods, nodes & spares))]
    reserved = 0
    for feasible, wanted in _by_choice(left, claims, wish):
        reserved += _take(left, feasible, wanted)
    nodes = reduce(or_, (nodes for _, nodes in left), 0)
    return Room(
        pods=sum(pods * nodes.bit_count() for pods, nodes in left),
        nodes=capacity.names(nodes),
        spares=capacity.names(nodes & spares),
        reserved=reserved,
    )


def _by_choice(left: Places, claims: Iterable[NodeClaim], wish: Wish) -> list[tuple[NodeSet, int]]:
    """The nodes left that each claim could take, and how many it needs. The claim with the fewest nodes to choose from
    comes first, because the others have alternatives."""
    free = reduce(or_, (nodes for _, nodes in left), 0)
    if not free:
        return []
    # Pods without accelerators take no room from pods with them.
    of_nodes = ((claim.feasible & free, claim.nodes) for claim in claims if claim.gpus or not wish.gpus)
    return sorted((each for each in of_nodes if each[0]), key=lambda each: each[0].bit_count())


def _take(left: list[tuple[int, NodeSet]], feasible: NodeSet, wanted: int) -> int:
    """Remove up to `wanted` feasible nodes from `left`, from the front. Returns how many were removed."""
    taken = 0
    for place, (pods, nodes) in enumerate(left):
        some = some_of(nodes & feasible, wanted - taken)
        left[place] = (pods, nodes & ~some)
        taken += some.bit_count()
    return taken


def some_of(nodes: NodeSet, most: int) -> NodeSet:
    """At most `most` of the nodes."""
    if nodes.bit_count() <= most:
        return nodes
    found = 0
    for _ in range(most):
        lowest = nodes & -nodes
        found |= lowest
        nodes ^= lowest
    return found
