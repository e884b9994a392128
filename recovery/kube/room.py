"""For how many more pods of a group there is room now, beside those that it has.

More is counted out than the scheduler would: a group that grows restarts all of its ranks, so room that turns out to be
none costs more than room that is found late.
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
"""For how many pods there is room on each of some nodes, and these nodes."""


class Wish(msgspec.Struct, frozen=True):
    """What one more pod of a group would ask of a node."""

    demands: tuple[Demand, ...]
    """At least one. It could be any of these, so the node has to meet all of them: where each Job has a topology domain
    to itself, only the followers of a leader name the domain, and another one is of no use to the group."""
    gpus: int
    held: frozenset[str]
    """Nodes on which the group has pods, those on their way out included."""
    sharing: int
    """How many of its pods are seen to share a node."""


def wish_of(snapshot: Snapshot) -> Wish | None:
    """None: nothing shows what another pod would ask for, or it asks for devices of a DRA claim, which no node lists.

    The pods of an earlier incarnation may have asked for something else: other settings at birth, another domain.
    """
    living = {job.uid for job in snapshot.jobs if job.deleting_since is None}
    pods = tuple(pod for pod in snapshot.pods if pod.job_uid in living) or snapshot.pods
    demands = scarce(tuple(dict.fromkeys(pod.demand for pod in pods)))
    gpus = max((demand.gpus for demand in demands), default=0)
    if not demands or (not gpus and any(pod.gpus for pod in pods)):
        return None
    held = frozenset(pod.node for pod in snapshot.pods if pod.holds_gpus)
    return Wish(demands, gpus, held, pods_per_node(PodRoom(), (pod for pod in pods if pod.holds_gpus)))


def places(wish: Wish, capacity: Capacity, free_gpus: Mapping[str, int] | None = None) -> Places | None:
    """Where there is room, regardless of other waiting groups; most on one node first. None: it is not known.

    `free_gpus`: accelerators free on nodes that have just been read; no others count. None: as far as the watches
    show.
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
    """What is left there once the groups that wait have taken what they need. `claims`: theirs."""
    spares = capacity.labelled(SPARE_LABEL)
    # They take the nodes on which there is most room, so that what is left is no more than it will be. Spares they
    # leave where they have a choice.
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
    """On which of the nodes each of the claims could be met, and how many nodes it is for. The one with the fewest to
    choose from comes first: the others have others."""
    free = reduce(or_, (nodes for _, nodes in left), 0)
    if not free:
        return []
    # Pods that ask for no accelerators leave those of a node to others.
    of_nodes = ((claim.feasible & free, claim.nodes) for claim in claims if claim.gpus or not wish.gpus)
    return sorted((each for each in of_nodes if each[0]), key=lambda each: each[0].bit_count())


def _take(left: list[tuple[int, NodeSet]], feasible: NodeSet, wanted: int) -> int:
    """So many of the nodes that are feasible are taken out, from the front. Returns how many there were."""
    taken = 0
    for place, (pods, nodes) in enumerate(left):
        some = some_of(nodes & feasible, wanted - taken)
        left[place] = (pods, nodes & ~some)
        taken += some.bit_count()
    return taken


def some_of(nodes: NodeSet, most: int) -> NodeSet:
    """So many of them, or all."""
    if nodes.bit_count() <= most:
        return nodes
    found = 0
    for _ in range(most):
        lowest = nodes & -nodes
        found |= lowest
        nodes ^= lowest
    return found
