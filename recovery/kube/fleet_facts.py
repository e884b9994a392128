"""What a decision about one group has to know of all nodes: which were lost of late, and where the group could run."""

from datetime import datetime, timedelta

from recovery.core.model.facts import FleetFacts, LostNode, NodeFacts, Snapshot, WaitingGroup
from recovery.kube.capacity import Capacity, pods_per_node, scarce

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
"""What tells which nodes share a rack, or the switch at the top of it; the first that a node has counts. There is no
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


def fleet_facts(
    snapshot: Snapshot, capacity: Capacity, lost: tuple[LostNode, ...], waiting: tuple[WaitingGroup, ...]
) -> FleetFacts:
    """`waiting`: the other groups that do."""
    demands = tuple(dict.fromkeys(pod.demand for pod in snapshot.pods))
    counted = capacity.room(scarce(demands))
    return FleetFacts(
        nodes=capacity.nodes,
        lost=lost,
        feasible=capacity.room(demands).feasible,
        with_accelerators=counted.feasible if any(demand.gpus for demand in demands) else None,
        pods_per_node=pods_per_node(counted, snapshot.pods),
        waiting=waiting,
    )
