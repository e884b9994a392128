"""Which nodes would take which pods: counted over all nodes, free or not, and over those with free accelerators.

A pod's requirements on its node are read as the scheduler reads them: `ToleratesTaint` in `k8s.io/api/core/v1`,
selector and required affinity in `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`. CPU, memory, volumes,
devices of DRA claims, fields in affinity terms (`matchFields`) and the affinities between pods are not read.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import chain, islice
from operator import and_, or_

import msgspec

from recovery.core.model.demand import Demand, LabelRequirement, Toleration
from recovery.core.model.facts import NodeFacts, PodFacts, Taint
from recovery.kube.node_index import NodeIndex, NodeSet, admits, passes

DEMANDS_KEPT_MAX = 4096
"""The fitting nodes of this many demands are cached. Where each pod names its own node, each pod is one demand."""
COST_MAX = 20_000
"""The most that the demands of one group may cost: about 20 ms. 5,000 pods that each name a node cost 10,000."""
NODES_AT_ONCE_MAX = 200
"""At most this many changed nodes are indexed while a caller waits: 5 ms. The background indexes the rest."""
_NAMES_KEPT_MAX = 512
"""The names of this many sets of nodes are cached: 40 KB for a set of 5,000 nodes."""
_NAMED_AT_COST = 20
"""One unit of cost pays for naming this many nodes."""
_TOLERATIONS_KEPT_MAX = 1024


class PodRoom(msgspec.Struct, frozen=True):
    """Where pods of certain demands could run."""

    feasible: tuple[str, ...] = ()
    """Nodes that would take one of the pods now, by name."""
    in_all: int = 0
    """How many nodes would take one if all nodes were Ready, uncordoned and out of quarantine."""
    pods_by_gpus: int = 0
    """How many of the largest pods the smallest feasible node has accelerators for. 0: the pods ask for none."""


class FittingNodes(msgspec.Struct, frozen=True):
    """The nodes of the right kind for certain demands, whatever their state."""

    by_tolerations: dict[tuple[Toleration, ...], NodeSet]
    gpus: int
    """The accelerators that the largest pod asks for."""
    kinds: int
    """`NodeIndex.kinds` when the nodes were found."""


class Capacity:
    """Indexes all nodes and caches the answers about them. An event only records which node has changed."""

    def __init__(self, nodes: Mapping[str, NodeFacts]) -> None:
        """`nodes`: by name. Its owner keeps it current and reports each change."""
        self._nodes = nodes
        self._index = NodeIndex()
        self._changed = dict.fromkeys(nodes)
        """Names of the nodes that have changed and are not indexed yet, oldest change first."""
        self._fitting: OrderedDict[Demand, NodeSet] = OrderedDict()
        self._fitting_kinds = 0
        self._kept_off_by_kind: dict[tuple[Toleration, ...], NodeSet] = {}
        self._kept_off_by_state: dict[tuple[Toleration, ...], NodeSet] = {}
        self._kept_off_states = 0
        self._names: OrderedDict[NodeSet, tuple[str, ...]] = OrderedDict()
        self._names_kinds = 0
        self.naming_cost = 0
        """The total cost of naming nodes so far, in the unit of `cost`."""

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    @property
    def behind(self) -> int:
        """How many nodes have changed and are not indexed yet."""
        return len(self._changed)

    @property
    def states(self) -> int:
        """Grows whenever an answer may have changed."""
        return self._index.states

    def changed(self, before: NodeFacts | None, after: NodeFacts | None) -> bool:
        """A node was added (`before` None), was deleted (`after` None) or has changed. Returns whether the change
        matters here: most changes are kubelet updates that do not."""
        node = after or before
        if node is None or (before is not None and after is not None and admits(before) == admits(after)):
            return False
        self._changed[node.name] = None
        return True

    def use(self, node: str, gpus: int) -> None:
        """Record how many accelerators of the node are in use."""
        self._index.use(node, gpus)

    def current(self) -> bool:
        """Whether every change is indexed; a few are indexed now. False: too many nodes have changed, so call
        `index_some` before asking anything."""
        if len(self._changed) <= NODES_AT_ONCE_MAX:
            self.index_some(NODES_AT_ONCE_MAX)
        return not self._changed

    def index_some(self, most: int) -> None:
        """Index at most `most` of the nodes that have changed."""
        for name in tuple(islice(self._changed, most)):
            del self._changed[name]
            node = self._nodes.get(name)
            if node is None:
                self._index.drop(name)
            else:
                self._index.put(node)

    def cost(self, demands: Iterable[Demand]) -> int:
        """How many sets of nodes have to be combined to find the nodes that fit. Each takes a microsecond or less."""
        asked = tuple(demands)
        tolerations = {demand.tolerations for demand in asked}
        return sum(map(self._cost, asked)) + sum(map(len, tolerations)) * self._index.taints

    def still_fit(self, fitting: FittingNodes) -> bool:
        """Whether no node has been added, deleted or changed its kind since `fitting` was found."""
        return fitting.kinds == self._index.kinds

    def fitting(self, demands: tuple[Demand, ...]) -> FittingNodes:
        """The indexed nodes of the right kind for pods with one of these demands."""
        by_tolerations: dict[tuple[Toleration, ...], NodeSet] = {}
        for demand in demands:
            known = by_tolerations.get(demand.tolerations, 0)
            by_tolerations[demand.tolerations] = known | self._fits(demand)
        largest = max((demand.gpus for demand in demands), default=0)
        return FittingNodes(by_tolerations, largest, self._index.kinds)

    def room_on(self, fitting: FittingNodes, feasible: NodeSet | None = None) -> PodRoom:
        """Where pods could run, by the present state of the fitting nodes. `feasible`: what `open_on` returned."""
        feasible = self.open_on(fitting) if feasible is None else feasible
        in_all = reduce(or_, fitting.by_tolerations.values(), 0)
        fewest = self._index.fewest_gpus(feasible)
        by_gpus = max(1, fewest // fitting.gpus) if fitting.gpus else 0
        return PodRoom(self.names(feasible), in_all.bit_count(), by_gpus)

    def open_on(self, fitting: FittingNodes) -> NodeSet:
        """The fitting nodes that take pods now. The set is valid until a node is added or deleted."""
        return reduce(
            or_,
            (
                nodes & self._index.open & ~self._kept_off_now(tolerations)
                for tolerations, nodes in fitting.by_tolerations.items()
            ),
            0,
        )

    def room(self, demands: tuple[Demand, ...]) -> PodRoom | None:
        """Where pods with one of these demands could run. None: not known, because not every changed node is indexed
        yet, or because these demands would cost more than COST_MAX."""
        if not self.current() or self.cost(demands) > COST_MAX:
            return None
        return self.room_on(self.fitting(demands))

    def open_to_each(self, demands: tuple[Demand, ...]) -> NodeSet | None:
        """The nodes that would now take a pod with any of these demands; there must be at least one. None: not known,
        as for `room`."""
        if not self.current() or self.cost(demands) > COST_MAX:
            return None
        return reduce(and_, (self.open_on(self.fitting((demand,))) for demand in demands))

    def free_for(self, nodes: NodeSet, gpus: int) -> list[tuple[int, NodeSet]]:
        """The nodes with free accelerators for at least one pod of `gpus`, grouped by how many such pods they take."""
        return [(free // gpus, having & nodes) for free, having in self._index.by_free_gpus() if free >= gpus]

    def nodes_called(self, names: Iterable[str]) -> NodeSet:
        """The nodes of these names, as far as they are indexed."""
        return self._index.of(names)

    def labelled(self, key: str) -> NodeSet:
        """The nodes that have the label, whatever its value."""
        return self._index.with_key(key)

    def names(self, nodes: NodeSet) -> tuple[str, ...]:
        """Groups that could run on the same nodes share one tuple: hundreds of groups may name thousands of nodes."""
        if self._names_kinds != self._index.kinds:
            self._names.clear()
            self._names_kinds = self._index.kinds
        if nodes not in self._names:
            self._names[nodes] = self._index.names(nodes)
            self.naming_cost += len(self._names[nodes]) // _NAMED_AT_COST
            if len(self._names) > _NAMES_KEPT_MAX:
                self._names.popitem(last=False)
        else:
            self._names.move_to_end(nodes)
        return self._names[nodes]

    def _cost(self, demand: Demand) -> int:
        requirements = chain.from_iterable(demand.affinity or ())
        return 1 + len(demand.selector) + sum(1 + self._values(each) for each in requirements)

    def _values(self, requirement: LabelRequirement) -> int:
        """How many values of the label are compared."""
        compares = requirement.operator in ("Gt", "Lt")
        return self._index.values(requirement.key) if compares else len(requirement.values)

    def _fits(self, demand: Demand) -> NodeSet:
        """The nodes of the right kind, whatever their state."""
        if self._fitting_kinds != self._index.kinds:
            self._fitting.clear()
            self._kept_off_by_kind.clear()
            self._fitting_kinds = self._index.kinds
        found = self._fitting.get(demand)
        if found is None:
            kept_off = self._remembered(self._kept_off_by_kind, demand.tolerations, passing=False)
            found = self._fitting[demand] = _matching_demand(demand, self._index) & ~kept_off
            if len(self._fitting) > DEMANDS_KEPT_MAX:
                self._fitting.popitem(last=False)
        else:
            self._fitting.move_to_end(demand)
        return found

    def _kept_off_now(self, tolerations: tuple[Toleration, ...]) -> NodeSet:
        """Nodes with a taint for their present state that these tolerations do not cover."""
        if self._kept_off_states != self._index.states:
            self._kept_off_by_state.clear()
            self._kept_off_states = self._index.states
        return self._remembered(self._kept_off_by_state, tolerations, passing=True)

    def _remembered(
        self, known: dict[tuple[Toleration, ...], NodeSet], tolerations: tuple[Toleration, ...], *, passing: bool
    ) -> NodeSet:
        if tolerations not in known:
            if len(known) >= _TOLERATIONS_KEPT_MAX:
                known.clear()
            known[tolerations] = _kept_off(tolerations, self._index, passing=passing)
        return known[tolerations]


def scarce(demands: tuple[Demand, ...]) -> tuple[Demand, ...]:
    """The demands that ask for accelerators, or all where none does. Nodes are counted for these, because many nodes
    that would take a launcher have no room for its workers."""
    return tuple(demand for demand in demands if demand.gpus) or demands


def pods_per_node(room: PodRoom, pods: Iterable[PodFacts]) -> int:
    """How many pods a node takes: by accelerators, or where the pods ask for none, as many as share a node now."""
    if room.pods_by_gpus:
        return room.pods_by_gpus
    shared = Counter(pod.node for pod in pods if pod.node and pod.gone_at is None)
    return max(chain(shared.values(), (1,)))


def _matching_demand(demand: Demand, index: NodeIndex) -> NodeSet:
    """The nodes that match by accelerators, selector and affinity. Taints are left out."""
    found = index.with_gpus(demand.gpus) if demand.gpus else index.all
    for key, value in demand.selector:
        found &= index.with_label(key, value)
    if demand.affinity is not None:
        found &= reduce(or_, (_matching(term, index) for term in demand.affinity), 0)
    return found


def _matching(term: tuple[LabelRequirement, ...], index: NodeIndex) -> NodeSet:
    """A term without requirements matches no node."""
    found = index.all if term else 0
    for requirement in term:
        found &= index.meeting(requirement)
    return found


def _kept_off(tolerations: tuple[Toleration, ...], index: NodeIndex, *, passing: bool) -> NodeSet:
    """The nodes with a taint that none of these tolerates. `passing` True: only taints for a state that ends; False:
    only the other taints."""
    return reduce(
        or_,
        (
            nodes
            for taint, nodes in index.tainted()
            if passes(taint) is passing and not any(tolerates(each, taint) for each in tolerations)
        ),
        0,
    )


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """The comparing operators (Gt, Lt; behind a feature gate) tolerate nothing here."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.operator in ("", "Equal") and (toleration.key, toleration.value) == (taint.key, taint.value)
