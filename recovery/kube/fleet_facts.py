"""The facts about all nodes for a decision about one group: recently lost nodes, the nodes where the group could run,
and the nodes with room for more of it."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.facts import FleetFacts, GroupKey, NodeFacts, Room, Snapshot, WaitingGroup
from recovery.core.model.lost_node import LostNode
from recovery.kube.capacity import NODES_AT_ONCE_MAX, Capacity, pods_per_node, scarce
from recovery.kube.gpus_in_use import GpusInUse, NodeUse, free_gpus
from recovery.kube.pending_groups import COST_AT_ONCE_MAX, PodsToPlace, WaitingGroups
from recovery.kube.room import places, room_in, some_of, wish_of
from recovery.kube.room_given import RoomGiven
from recovery.kube.snapshots import Parts
from recovery.ports import Clock

_PAUSE_SECONDS = 1.0
"""Between two rounds of catching up."""

LOST_FOR = timedelta(minutes=15)
"""How long a lost node is reported. The pods of a silent node are evicted after five minutes (the toleration that
DefaultTolerationSeconds adds), and the group takes minutes more to recover. Its next loss may be of the same storm.
"""

_RACK_LABELS = (
    "topology.kubernetes.io/rack",
    "cloud.provider.com/topology-rack",
    "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-4",
    "topology.k8s.aws/network-node-layer-3",
    "fabric.topograph.run/tier-0",
    "network.topology.nvidia.com/leaf",
)
"""The labels for nodes that share a rack or its top switch. The first label that a node has counts. There is no
standard below the zone: these are the names in the documentation of Kueue (Topology), GKE, EKS (its fourth layer exists
only on some instance types) and NVIDIA's topograph (1.x and earlier). Blocks and zones are left out, because two nodes
among hundreds that are lost within a minute need not have one cause.
"""


class LostNodes:
    """Recently lost nodes (not Ready, or deleted), even if they have returned. Constant work for each event."""

    def __init__(self) -> None:
        self._lost: dict[str, LostNode] = {}
        """By name, in the order in which the losses were noticed."""

    def seen(self, before: NodeFacts | None, node: NodeFacts, now: datetime, *, listed: bool) -> None:
        """Record a node's state. `before` None: it was not known. `listed`: this is the first list of nodes.

        A new node is not Ready for a while but was never lost: dozens of nodes from an autoscaler are no storm.
        """
        if not node.ready and (listed if before is None else before.ready):
            # If the server's clock is ahead of ours, the node must not count as lost for longer.
            self._add(node, min(node.ready_since or now, now), now)

    def gone(self, node: NodeFacts, now: datetime) -> None:
        """The object was deleted. A node that was not Ready was lost when it stopped being Ready, or never joined."""
        if node.ready:
            self._add(node, now, now)

    def of_late(self, now: datetime) -> tuple[LostNode, ...]:
        """The recent losses, ordered by time and then by name."""
        late = (lost for lost in self._lost.values() if lost.since > now - LOST_FOR)
        return tuple(sorted(late, key=lambda lost: (lost.since, lost.name)))

    def _add(self, node: NodeFacts, since: datetime, now: datetime) -> None:
        while self._lost:
            oldest = next(iter(self._lost.values()))
            if oldest.since > now - LOST_FOR:
                break
            del self._lost[oldest.name]
        self._lost.pop(node.name, None)  # ordered by the latest loss of each node
        self._lost[node.name] = LostNode(node.name, since, rack_of(node))


def rack_of(node: NodeFacts) -> str:
    """The value of the label that names the node's rack. Empty: the node has no such label."""
    return next((node.labels[label] for label in _RACK_LABELS if node.labels.get(label)), "")


class FleetIndex:
    """The facts about all nodes and all waiting groups for decisions. Constant work for each event.

    Work of more than a few milliseconds is done by `run` in slices, so that neither the asking reconcile nor any other
    task waits for it.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeFacts],
        to_place: PodsToPlace,
        parts: Callable[[GroupKey], Parts],
        *,
        clock: Clock,
        known: Callable[[GroupKey], None],
        in_use: GpusInUse | None = None,
        room_changed: Callable[[], None] = lambda: None,
        members_to_be: Callable[[GroupKey], int] = lambda _: 0,
    ) -> None:
        """`nodes`: by name; its owner keeps it current. `parts`: returns the objects of a group. `known`: called when
        facts that were missing for this group are known. `in_use` None: no accelerators are in use. `room_changed`:
        called when some group may have more room than before. `members_to_be`: see `WaitingGroups`."""
        self._clock = clock
        self._known = known
        self._room_changed = room_changed
        self._nodes = nodes
        self._lost = LostNodes()
        self._capacity = Capacity(nodes)
        self._waiting = WaitingGroups(to_place, self._capacity, parts, members_to_be)
        self._given = RoomGiven()
        self._asked: dict[GroupKey, None] = {}
        """Groups whose facts were asked for and not all known."""
        self._behind = asyncio.Event()
        self._in_use = in_use if in_use is not None else GpusInUse()
        self._in_use.follow(self._use_changed)

    def node_seen(self, before: NodeFacts | None, node: NodeFacts, *, listed: bool) -> None:
        """A node is new or has changed. `before` None: it was not known. `listed`: this is the first list of nodes."""
        self._lost.seen(before, node, self._clock.now(), listed=listed)
        self._capacity_changed(before, node)

    def node_gone(self, before: NodeFacts | None, node: NodeFacts) -> None:
        """A node was deleted. `before`: its state as known until now. `node`: its last state."""
        self._lost.gone(node, self._clock.now())
        self._capacity_changed(before, None)

    def group_changed(self, key: GroupKey) -> None:
        """An object of the group has changed."""
        self._waiting.changed(key)

    def facts(self, snapshot: Snapshot) -> FleetFacts:
        """The facts for a decision about the snapshot's group. Facts that are not known yet are None: `run` completes
        them soon and then calls `known`."""
        now = self._clock.now()
        self._in_use.forget(now)
        waiting = self._waiting.besides(snapshot.key)
        found = fleet_facts(snapshot, self._capacity, self._lost.of_late(now), waiting)
        if waiting is None or not self._capacity.current():
            self._asked[snapshot.key] = None
            self._behind.set()
            return found
        return msgspec.structs.replace(found, room=self._room(snapshot, None))

    def given(self, snapshot: Snapshot, seen: Mapping[str, NodeUse], lacks: int) -> Room | None:
        """The room for more pods of the group on nodes whose pods have just been listed. For a short time the other
        groups leave it the nodes that it `lacks`. None: not known."""
        room = self._room(snapshot, seen) if self._waiting.besides(snapshot.key) is not None else None
        self.reserve(snapshot, room, lacks)
        return room

    def reserve(self, snapshot: Snapshot, room: Room | None, lacks: int) -> None:
        """For a short time the other groups leave this one the nodes that it `lacks`. `room` None: not known."""
        wish = wish_of(snapshot)
        if room is not None and wish is not None:
            self._given.give(snapshot.key, room, lacks=lacks, gpus=wish.gpus, now=self._clock.now())

    def doubtful(self, snapshot: Snapshot, most: int) -> tuple[str, ...]:
        """Nodes with room for the group unless pods of no group fill them. Nodes with the most room come first."""
        wish = wish_of(snapshot)
        found = places(wish, self._capacity) if wish is not None and wish.gpus else None
        names: list[str] = []
        for _, nodes in found or ():
            names += self._capacity.names(some_of(nodes, most - len(names)))
        return tuple(names)

    def seen(self, found: Mapping[str, NodeUse]) -> None:
        """Record the use of nodes whose pods have just been listed."""
        self._in_use.looked_at(found, self._clock.now())

    async def run(self) -> None:
        """Catch up in slices of some milliseconds whenever there is too much to do at once. Runs until cancelled."""
        while True:
            await self._behind.wait()
            self._behind.clear()
            while self._catch_up():
                await self._clock.sleep(0)
            asked, self._asked = self._asked, {}
            for key in asked:
                self._known(key)
            # The pause keeps the share of time small where everything changes all the time.
            await self._clock.sleep(_PAUSE_SECONDS)

    def _room(self, snapshot: Snapshot, seen: Mapping[str, NodeUse] | None) -> Room | None:
        """The room for the group; the waiting groups must be known. `seen` None: on all nodes, by the watches."""
        wish = wish_of(snapshot)
        free = free_gpus(seen, self._nodes) if seen is not None else None
        found = places(wish, self._capacity, free) if wish is not None else None
        if wish is None or found is None:
            return None
        claims = self._waiting.claims(snapshot.key)
        claimed = {claim.key for claim in claims}
        given = self._given.claims(snapshot.key, self._capacity, self._clock.now(), claimed=claimed)
        return room_in(found, wish, self._capacity, (*claims, *given))

    def _capacity_changed(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        if self._capacity.changed(before, after):
            self._room_changed()
        if self._capacity.behind > NODES_AT_ONCE_MAX:
            self._behind.set()

    def _use_changed(self, node: str, before: int, after: int) -> None:
        self._capacity.use(node, after)
        if after < before:
            self._room_changed()

    def _catch_up(self) -> bool:
        """Do one slice of the work. Returns whether there is more to do."""
        if self._capacity.behind:
            self._capacity.index_some(NODES_AT_ONCE_MAX)
            return True
        return self._waiting.count_some(COST_AT_ONCE_MAX)


def fleet_facts(
    snapshot: Snapshot,
    capacity: Capacity,
    lost: tuple[LostNode, ...],
    waiting: tuple[WaitingGroup, ...] | None,
) -> FleetFacts:
    """The facts without room. `waiting`: the other groups that wait. None: not known yet."""
    demands = tuple(dict.fromkeys(pod.demand for pod in snapshot.pods))
    room, counted = capacity.room(demands), capacity.room(scarce(demands))
    if room is None or counted is None:
        return FleetFacts(nodes=capacity.nodes, lost=lost, feasible=None, waiting=waiting)
    return FleetFacts(
        nodes=capacity.nodes,
        lost=lost,
        feasible=room.feasible,
        with_accelerators=counted.feasible if any(demand.gpus for demand in demands) else None,
        pods_per_node=pods_per_node(counted, snapshot.pods),
        waiting=waiting,
    )
