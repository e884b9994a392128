"""What a decision about one group has to know of all nodes: which were lost of late, where the group could run, and
where there is room for more of it."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.facts import FleetFacts, GroupKey, LostNode, NodeFacts, Room, Snapshot, WaitingGroup
from recovery.kube.capacity import NODES_AT_ONCE_MAX, Capacity, pods_per_node, scarce
from recovery.kube.gpus_in_use import GpusInUse, NodeUse, free_gpus
from recovery.kube.pending_groups import COST_AT_ONCE_MAX, PodsToPlace, WaitingGroups
from recovery.kube.room import places, room_in, some_of, wish_of
from recovery.kube.room_given import RoomGiven
from recovery.kube.snapshots import Parts
from recovery.ports import Clock

_PAUSE_SECONDS = 1.0
"""Between two times of catching up."""

LOST_FOR = timedelta(minutes=15)
"""So long a lost node is reported. The pods of one that is silent are evicted five minutes later (the toleration that
DefaultTolerationSeconds adds), and a group that comes back takes minutes more: its next loss may be of the same storm.
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
"""The labels that say which nodes share a rack, or the switch at the top of it; a node's first one counts. There is no
standard below the zone: these are the names in the documents of Kueue (Topology), GKE, EKS (its fourth layer exists
on some instance types only) and NVIDIA's topograph (1.x, and before). Blocks and zones are left out: two nodes of
hundreds that are lost within a minute need not have one cause.
"""


class LostNodes:
    """Nodes that stopped being Ready, or disappeared, of late, back meanwhile or not. Constant work for each event."""

    def __init__(self) -> None:
        self._lost: dict[str, LostNode] = {}
        """In the order in which it was noticed."""

    def seen(self, before: NodeFacts | None, node: NodeFacts, now: datetime, *, listed: bool) -> None:
        """`before` None: it was not known. `listed`: nor was any other, this is the first list.

        A node that comes up is not Ready for a while and was never lost: those that an autoscaler adds by the dozen
        are no storm.
        """
        if not node.ready and (listed if before is None else before.ready):
            # A clock that is ahead of ours must not keep it lost for as long as it is ahead.
            self._add(node, min(node.ready_since or now, now), now)

    def gone(self, node: NodeFacts, now: datetime) -> None:
        """The object was deleted. One that was not Ready was lost when it ceased to be, or never was there."""
        if node.ready:
            self._add(node, now, now)

    def of_late(self, now: datetime) -> tuple[LostNode, ...]:
        """By time, those of the same moment by name."""
        late = (lost for lost in self._lost.values() if lost.since > now - LOST_FOR)
        return tuple(sorted(late, key=lambda lost: (lost.since, lost.name)))

    def _add(self, node: NodeFacts, since: datetime, now: datetime) -> None:
        while self._lost:
            oldest = next(iter(self._lost.values()))
            if oldest.since > now - LOST_FOR:
                break
            del self._lost[oldest.name]
        self._lost.pop(node.name, None)  # the order is that of the latest loss
        self._lost[node.name] = LostNode(node.name, since, rack_of(node))


def rack_of(node: NodeFacts) -> str:
    """Value of the label that names the node's rack; empty: it has none."""
    return next((node.labels[label] for label in _RACK_LABELS if node.labels.get(label)), "")


class FleetIndex:
    """What decisions have to know of all nodes and of the groups that wait. Constant work for each event.

    What takes longer than a few milliseconds is done by `run`, in slices, so that neither the reconcile that asks nor
    any other task waits for it.
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
        """`nodes`: by name, kept current by its owner. `parts`: of a group. `known`: what was not known when the facts
        of this group were asked for is known now. `in_use` None: nothing is. `room_changed`: there may be room for more
        of some group than there was. `members_to_be`: as `WaitingGroups` has it."""
        self._clock = clock
        self._known = known
        self._room_changed = room_changed
        self._nodes = nodes
        self._lost = LostNodes()
        self._capacity = Capacity(nodes)
        self._waiting = WaitingGroups(to_place, self._capacity, parts, members_to_be)
        self._given = RoomGiven()
        self._asked: dict[GroupKey, None] = {}
        """Groups whose facts were not all known."""
        self._behind = asyncio.Event()
        self._in_use = in_use if in_use is not None else GpusInUse()
        self._in_use.follow(self._use_changed)

    def node_seen(self, before: NodeFacts | None, node: NodeFacts, *, listed: bool) -> None:
        """`before` None: it was not known. `listed`: nor was any other, this is the first list."""
        self._lost.seen(before, node, self._clock.now(), listed=listed)
        self._capacity_changed(before, node)

    def node_gone(self, before: NodeFacts | None, node: NodeFacts) -> None:
        """`before`: as it was known until now. `node`: the last that was seen of it."""
        self._lost.gone(node, self._clock.now())
        self._capacity_changed(before, None)

    def group_changed(self, key: GroupKey) -> None:
        """An object of the group has changed."""
        self._waiting.changed(key)

    def facts(self, snapshot: Snapshot) -> FleetFacts:
        """For a decision about the group of the snapshot. `known` says whether all is known; what is not, soon is."""
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
        """For more pods of the group, on nodes whose pods have just been listed. For a moment the others leave it what
        it `lacks`. None: it is not known."""
        room = self._room(snapshot, seen) if self._waiting.besides(snapshot.key) is not None else None
        wish = wish_of(snapshot)
        if room is not None and wish is not None:
            self._given.give(snapshot.key, room, lacks=lacks, gpus=wish.gpus, now=self._clock.now())
        return room

    def doubtful(self, snapshot: Snapshot, most: int) -> tuple[str, ...]:
        """Nodes on which there is room for the group unless others fill them, those with most room first."""
        wish = wish_of(snapshot)
        found = places(wish, self._capacity) if wish is not None and wish.gpus else None
        names: list[str] = []
        for _, nodes in found or ():
            names += self._capacity.names(some_of(nodes, most - len(names)))
        return tuple(names)

    def seen(self, found: Mapping[str, NodeUse]) -> None:
        """The pods on these nodes have just been listed."""
        self._in_use.looked_at(found, self._clock.now())

    async def run(self) -> None:
        """Catch up whenever that takes more than a moment, in slices of some milliseconds. Until cancelled."""
        while True:
            await self._behind.wait()
            self._behind.clear()
            while self._catch_up():
                await self._clock.sleep(0)
            asked, self._asked = self._asked, {}
            for key in asked:
                self._known(key)
            # Where everything changes all the time, counting it takes a small share of the time.
            await self._clock.sleep(_PAUSE_SECONDS)

    def _room(self, snapshot: Snapshot, seen: Mapping[str, NodeUse] | None) -> Room | None:
        """Once it is known who waits. `seen` None: on all nodes, as far as the watches show."""
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
        """One slice. Returns whether there is more to do."""
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
    """`waiting`: the other groups that do. None: it is not known yet."""
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
