"""What a decision about one group has to know of all nodes: which were lost of late, and where the group could run."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import chain

import msgspec

from recovery.core.facts import FleetFacts, LostNode, NodeFacts, Snapshot, Taint
from recovery.kube.projections.pods import PodRecord, Toleration

LOST_FOR = timedelta(minutes=5)
"""So long a lost node is told of."""

_RACK_LABELS = (
    "topology.kubernetes.io/rack",
    "cloud.provider.com/topology-rack",
    "cloud.provider.com/topology-block",
    "cloud.google.com/gce-topology-block",
    "topology.k8s.aws/network-node-layer-3",
    "network.topology.nvidia.com/leaf",
    "topology.kubernetes.io/zone",
)
"""What tells which nodes fail together; the first that a node has counts. There is no standard below the zone: these
are the names in the documents of Kueue (Topology), GKE, EKS and NVIDIA's topograph."""

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})


class LostNodes:
    """Nodes that stopped being Ready, or disappeared, within the last five minutes. Constant work for each event."""

    def __init__(self) -> None:
        self._lost: dict[str, LostNode] = {}
        """In the order in which it was noticed."""

    def seen(self, before: NodeFacts | None, node: NodeFacts, now: datetime, *, listed: bool) -> None:
        """`before` None: it was not known. `listed`: nor was any other, this is the first list.

        A node that comes up is not Ready for a while and was never lost: those that an autoscaler adds by the dozen
        are no storm.
        """
        if node.ready:
            self._lost.pop(node.name, None)
        elif listed if before is None else before.ready:
            self._add(node, node.ready_since or now, now)

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
        self._lost[node.name] = LostNode(node.name, since, rack_of(node))


def rack_of(node: NodeFacts) -> str:
    """Value of the label that tells which nodes fail together; empty: it has none."""
    return next((node.labels[label] for label in _RACK_LABELS if node.labels.get(label)), "")


class _Demand(msgspec.Struct, frozen=True):
    """What a pod asks of a node, as far as it is known here: affinities, CPU and memory are not."""

    selector: tuple[tuple[str, str], ...]
    tolerations: tuple[Toleration, ...]
    gpus: int

    def fits(self, node: NodeFacts) -> bool:
        if node.gpus < self.gpus or any(node.labels.get(key) != value for key, value in self.selector):
            return False
        return not any(_keeps_off(taint, self.tolerations) for taint in node.taints)


def fleet_facts(
    snapshot: Snapshot, records: Iterable[PodRecord], nodes: Mapping[str, NodeFacts], lost: tuple[LostNode, ...]
) -> FleetFacts:
    """`records`: pods of the group as last seen. Linear in the nodes of the cluster, so for live snapshots only."""
    demands = _demands(snapshot, records)
    feasible = [
        node
        for node in nodes.values()
        if node.ready and not node.unschedulable and node.deleting_since is None and any(d.fits(node) for d in demands)
    ]
    return FleetFacts(
        nodes=len(nodes),
        lost=lost,
        feasible=tuple(sorted(node.name for node in feasible)),
        pods_per_node=_pods_per_node(snapshot, max((demand.gpus for demand in demands), default=0), feasible),
    )


def _demands(snapshot: Snapshot, records: Iterable[PodRecord]) -> tuple[_Demand, ...]:
    """One for each kind of pod. Of a pod that vanished the tolerations are not known: fewer nodes count as feasible."""
    tolerations = {record.facts.uid: record.tolerations for record in records}
    of_pods = (
        _Demand(tuple(sorted(pod.node_selector.items())), tolerations.get(pod.uid, ()), pod.gpus)
        for pod in snapshot.pods
    )
    return tuple(dict.fromkeys(of_pods))


def _pods_per_node(snapshot: Snapshot, gpus: int, feasible: Iterable[NodeFacts]) -> int:
    """By GPUs, on the smallest of the nodes; of pods without GPUs, as many as are seen to share one."""
    if gpus:
        return max(1, min((node.gpus // gpus for node in feasible), default=1))
    shared = Counter(pod.node for pod in snapshot.pods if pod.node and pod.gone_at is None)
    return max(chain(shared.values(), (1,)))


def _keeps_off(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return taint.effect in _KEEPS_OFF and not any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """As `k8s.io/api/core/v1` `ToleratesTaint` has it, but for the comparing operators, which count as no."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.operator in ("", "Equal") and (toleration.key, toleration.value) == (taint.key, taint.value)
