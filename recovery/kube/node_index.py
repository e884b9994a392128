"""Indexes nodes by what pods ask of them, as sets that are cheap to combine.

Each node has a bit, and a set of nodes is an integer. A set of 5,000 nodes has 625 bytes, and two sets are combined
within a microsecond. So the cost of a question depends on its number of terms, not on the number of nodes.
"""

import re
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_
from typing import TypeVar

from recovery.core.model.annotations import STATE_TAINTS
from recovery.core.model.demand import LabelRequirement
from recovery.core.model.facts import NodeFacts, Taint
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT

K = TypeVar("K")

NodeSet = int
"""A set of nodes, as the bits of its members."""

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
_FEW_OF = 10
"""A set that holds at most one in this many of all nodes is named bit by bit."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


class NodeIndex:
    """Nodes by label, taint, accelerators and state. The cost of a changed node grows with its number of labels."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        """The nodes as they are indexed, by name."""
        self._bits: dict[str, NodeSet] = {}
        self._names: list[str] = []
        """Names by the position of the bit; empty where the bit is free."""
        self._free: list[int] = []
        self._with_key: dict[str, NodeSet] = {}
        self._with_label: dict[str, dict[str, NodeSet]] = {}
        self._with_gpus: dict[int, NodeSet] = {}
        self._with_taint: dict[Taint, NodeSet] = {}
        self._in_use: dict[str, int] = {}
        """Accelerators in use by the name of the node, indexed or not. Nodes without any are left out."""
        self._with_free: dict[int, NodeSet] = {}
        self.all: NodeSet = 0
        self.open: NodeSet = 0
        """Nodes whose state admits new pods, taints aside: Ready, not cordoned, not being deleted."""
        self.kinds = 0
        """Grows whenever a node is added, is deleted or changes its kind."""
        self.states = 0
        """Grows whenever anything changes that decides where a pod may run."""

    def put(self, node: NodeFacts) -> None:
        """The node is new, or has changed."""
        before = self._nodes.get(node.name)
        if before is not None and admits(before) == admits(node):
            return
        self._nodes[node.name] = node
        bit = self._bits.get(node.name) or self._new_bit(node.name)
        self.states += 1
        if before is None or _kind(before) != _kind(node):
            self.kinds += 1
            if before is not None:
                self._take_out_kind(before, bit)
            self._put_in_kind(node, bit)
        if before is not None:
            for taint in _taints(before):
                _take_out(self._with_taint, taint, bit)
        for taint in _taints(node):
            self._with_taint[taint] = self._with_taint.get(taint, 0) | bit
        if node.ready and not node.unschedulable and node.deleting_since is None:
            self.open |= bit
        else:
            self.open &= ~bit

    def drop(self, name: str) -> None:
        """The node is gone."""
        node = self._nodes.pop(name, None)
        if node is None:
            return
        bit = self._bits.pop(name)
        self._take_out_kind(node, bit)
        for taint in _taints(node):
            _take_out(self._with_taint, taint, bit)
        self.all &= ~bit
        self.open &= ~bit
        position = bit.bit_length() - 1
        self._names[position] = ""
        self._free.append(position)
        self.kinds += 1
        self.states += 1

    def use(self, name: str, gpus: int) -> None:
        """Record how many accelerators of the node are in use. Constant work, however many nodes and pods there are."""
        node = self._nodes.get(name)
        if node is not None:
            _take_out(self._with_free, self._free_gpus(node), self._bits[name])
        if gpus:
            self._in_use[name] = gpus
        else:
            self._in_use.pop(name, None)
        if node is not None:
            free = self._free_gpus(node)
            self._with_free[free] = self._with_free.get(free, 0) | self._bits[name]

    def by_free_gpus(self) -> Iterable[tuple[int, NodeSet]]:
        """The nodes grouped by their number of free accelerators."""
        return self._with_free.items()

    def of(self, names: Iterable[str]) -> NodeSet:
        """The nodes of these names that are indexed."""
        return reduce(or_, (self._bits.get(name, 0) for name in names), 0)

    def with_label(self, key: str, value: str) -> NodeSet:
        return self._with_label.get(key, {}).get(value, 0)

    def with_key(self, key: str) -> NodeSet:
        """The nodes that have the label, whatever its value."""
        return self._with_key.get(key, 0)

    def with_gpus(self, least: int) -> NodeSet:
        """The nodes with at least this many accelerators."""
        return reduce(or_, (nodes for gpus, nodes in self._with_gpus.items() if gpus >= least), 0)

    def fewest_gpus(self, nodes: NodeSet) -> int:
        """The fewest accelerators that any of these nodes has; 0 for an empty set."""
        return min((gpus for gpus, having in self._with_gpus.items() if having & nodes), default=0)

    @property
    def taints(self) -> int:
        """How many different taints keep pods off."""
        return len(self._with_taint)

    def tainted(self) -> Iterable[tuple[Taint, NodeSet]]:
        """Each taint that keeps pods off, and the nodes that have it."""
        return self._with_taint.items()

    def meeting(self, requirement: LabelRequirement) -> NodeSet:
        """The nodes that meet the requirement. An unknown operator matches nothing."""
        values = self._with_label.get(requirement.key, {})
        match requirement.operator:
            case "In":
                return reduce(or_, (values.get(value, 0) for value in requirement.values), 0)
            case "NotIn":
                return self.all & ~reduce(or_, (values.get(value, 0) for value in requirement.values), 0)
            case "Exists":
                return self._with_key.get(requirement.key, 0)
            case "DoesNotExist":
                return self.all & ~self._with_key.get(requirement.key, 0)
            case "Gt" | "Lt":
                return reduce(or_, (nodes for value, nodes in values.items() if _compares(value, requirement)), 0)
        return 0

    def values(self, key: str) -> int:
        """How many values the label has on all nodes."""
        return len(self._with_label.get(key, ()))

    def names(self, nodes: NodeSet) -> tuple[str, ...]:
        """In alphabetical order."""
        if nodes.bit_count() * _FEW_OF <= len(self._names):
            return tuple(sorted(self._few(nodes)))
        bits = reversed(f"{nodes:b}")
        return tuple(sorted(name for name, bit in zip(self._names, bits, strict=False) if bit == "1"))

    def _few(self, nodes: NodeSet) -> Iterator[str]:
        """The names bit by bit, skipping the unset bits."""
        while nodes:
            lowest = nodes & -nodes
            yield self._names[lowest.bit_length() - 1]
            nodes ^= lowest

    def _new_bit(self, name: str) -> NodeSet:
        if self._free:
            position = self._free.pop()
            self._names[position] = name
        else:
            position = len(self._names)
            self._names.append(name)
        bit = self._bits[name] = 1 << position
        self.all |= bit
        return bit

    def _put_in_kind(self, node: NodeFacts, bit: NodeSet) -> None:
        self._with_gpus[node.gpus] = self._with_gpus.get(node.gpus, 0) | bit
        free = self._free_gpus(node)
        self._with_free[free] = self._with_free.get(free, 0) | bit
        for key, value in node.labels.items():
            self._with_key[key] = self._with_key.get(key, 0) | bit
            values = self._with_label.setdefault(key, {})
            values[value] = values.get(value, 0) | bit

    def _take_out_kind(self, node: NodeFacts, bit: NodeSet) -> None:
        _take_out(self._with_gpus, node.gpus, bit)
        _take_out(self._with_free, self._free_gpus(node), bit)
        for key, value in node.labels.items():
            _take_out(self._with_key, key, bit)
            values = self._with_label[key]
            _take_out(values, value, bit)
            if not values:
                del self._with_label[key]

    def _free_gpus(self, node: NodeFacts) -> int:
        """Not negative: a node may have fewer devices than are in use, after its device plugin removed some."""
        return max(0, node.gpus - self._in_use.get(node.name, 0))


def admits(node: NodeFacts) -> object:
    """Everything that decides which pods the node takes. The times at which taints were set are left out."""
    return node.ready, node.unschedulable, node.deleting_since is None, tuple(_taints(node)), node.gpus, node.labels


def passes(taint: Taint) -> bool:
    """Whether the taint marks a temporary state, not what the node is for."""
    return taint.key == QUARANTINE_TAINT or taint.key.startswith(STATE_TAINTS)


def _kind(node: NodeFacts) -> object:
    """What the node is for, whatever its state."""
    return node.gpus, node.labels, tuple(taint for taint in _taints(node) if not passes(taint))


def _taints(node: NodeFacts) -> Iterator[Taint]:
    """The taints that keep pods off, without the times at which they were set."""
    return (Taint(each.key, each.value, each.effect) for each in node.taints if each.effect in _KEEPS_OFF)


def _take_out(index: dict[K, NodeSet], key: K, bit: NodeSet) -> None:
    """Remove the bit. A set that becomes empty is removed too."""
    rest = index.get(key, 0) & ~bit
    if rest:
        index[key] = rest
    else:
        index.pop(key, None)


def _compares(value: str, requirement: LabelRequirement) -> bool:
    """False unless both are whole numbers and the requirement has exactly one value."""
    if len(requirement.values) != 1 or not all(map(_NUMBER.fullmatch, (value, *requirement.values))):
        return False
    left, right = int(value), int(requirement.values[0])
    return left > right if requirement.operator == "Gt" else left < right
