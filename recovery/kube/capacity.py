"""Which nodes would take which pods, all nodes counted, free or not. Remembered, but for nodes that have changed since.

What a node must be like is read as the scheduler reads it: `ToleratesTaint` in `k8s.io/api/core/v1`, selector and
required affinity in `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`. CPU, memory, volumes, devices of DRA
claims, fields in affinity terms (`matchFields`) and the affinities between pods are not read.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

import msgspec

from recovery.core.model.facts import Demand, LabelRequirement, NodeFacts, PodFacts, Taint, Toleration
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT

ANSWERS_MAX = 250
"""So many are remembered: exclusive placement gives each group a node selector of its own."""
CHANGES_MAX = 10_000
"""So many changes of nodes are written down before everything is checked again."""

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
_STATE_TAINTS = "node.kubernetes.io/"
"""Prefix of the taints that tell how a node is at the moment: not-ready, unreachable, unschedulable, disk-pressure."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


class PodRoom(msgspec.Struct, frozen=True):
    """Where pods of certain demands could run."""

    feasible: tuple[str, ...] = ()
    """Nodes that would take one of the pods now, by name."""
    in_all: int = 0
    """How many would if all nodes were Ready, uncordoned and out of quarantine."""
    pods_by_gpus: int = 0
    """How many of the largest pods the smallest feasible node has accelerators for; 0: they ask for none."""


class _Answer:
    """Where pods of certain demands could run, as of the last time that somebody asked."""

    def __init__(self, demands: tuple[Demand, ...]) -> None:
        self._demands = demands
        self._fitting: set[str] = set()
        self._feasible: dict[str, int] = {}
        """Their accelerators, by name."""
        self.room = PodRoom()
        self.changes = 0
        """How many changes of nodes have been taken account of."""

    def recheck(self, names: Iterable[str], nodes: Mapping[str, NodeFacts]) -> None:
        """The nodes of these names are new, gone or different."""
        for name in names:
            node = nodes.get(name)
            self._fitting.discard(name)
            self._feasible.pop(name, None)
            if node is not None and any(_fits(demand, node) for demand in self._demands):
                self._fitting.add(name)
                if _open(node, self._demands):
                    self._feasible[name] = node.gpus
        gpus = max((demand.gpus for demand in self._demands), default=0)
        by_gpus = max(1, min(self._feasible.values(), default=0) // gpus) if gpus else 0
        self.room = PodRoom(tuple(sorted(self._feasible)), len(self._fitting), by_gpus)


class Capacity:
    """All nodes, and what was asked about them. Constant work for each event: it is only written down which node it was
    about, and checked when somebody asks."""

    def __init__(self, nodes: Mapping[str, NodeFacts]) -> None:
        """`nodes`: by name, kept current by its owner, who tells of each change."""
        self._nodes = nodes
        self._answers: dict[tuple[Demand, ...], _Answer] = {}
        self._changes: list[str] = []
        """Names of nodes that have changed since there are answers, in that order."""

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self._nodes)

    def changed(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """A node is there (`before` None), gone (`after` None) or another. Most changes are news of the kubelet's that
        decide nothing here."""
        node = after or before
        if node is None or (before is not None and after is not None and _admits(before) == _admits(after)):
            return
        if self._answers:
            self._changes.append(node.name)
        if len(self._changes) > CHANGES_MAX:
            self._forget()

    def room(self, demands: tuple[Demand, ...]) -> PodRoom:
        """For pods that ask for one of these. Linear in the nodes the first time, then in those that have changed."""
        answer = self._answers.get(demands)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._forget()
            answer = self._answers[demands] = _Answer(demands)
            answer.recheck(self._nodes, self._nodes)
        elif answer.changes < len(self._changes):
            answer.recheck(dict.fromkeys(self._changes[answer.changes :]), self._nodes)
        answer.changes = len(self._changes)
        return answer.room

    def _forget(self) -> None:
        self._answers.clear()
        self._changes.clear()


def scarce(demands: tuple[Demand, ...]) -> tuple[Demand, ...]:
    """Those that ask for accelerators; all, where none does. Nodes are counted for these: many that would take a
    launcher make no place for its workers."""
    return tuple(demand for demand in demands if demand.gpus) or demands


def pods_per_node(room: PodRoom, pods: Iterable[PodFacts]) -> int:
    """By accelerators; of pods that ask for none, as many as are seen to share a node."""
    if room.pods_by_gpus:
        return room.pods_by_gpus
    shared = Counter(pod.node for pod in pods if pod.node and pod.gone_at is None)
    return max(chain(shared.values(), (1,)))


def _admits(node: NodeFacts) -> object:
    """Everything that `_fits` and `_open` read, with the times left out at which taints were set."""
    taints = [(taint.key, taint.value, taint.effect) for taint in node.taints]
    return node.ready, node.unschedulable, node.deleting_since is None, node.gpus, taints, node.labels


def _fits(demand: Demand, node: NodeFacts) -> bool:
    """The node is of the right kind, in whatever state it is."""
    if node.gpus < demand.gpus or any(node.labels.get(key) != value for key, value in demand.selector):
        return False
    if demand.affinity is not None and not any(_matches(term, node.labels) for term in demand.affinity):
        return False
    return not any(_keeps_off(taint, demand) for taint in node.taints if not _passes(taint))


def _open(node: NodeFacts, demands: Iterable[Demand]) -> bool:
    """Its state lets new pods in: those of one of the demands that it fits."""
    if not node.ready or node.unschedulable or node.deleting_since is not None:
        return False
    passing = [taint for taint in node.taints if _passes(taint)]
    return not passing or any(
        _fits(demand, node) and not any(_keeps_off(taint, demand) for taint in passing) for demand in demands
    )


def _passes(taint: Taint) -> bool:
    """It tells of a state that ends, and not of what the node is for."""
    return taint.key == QUARANTINE_TAINT or taint.key.startswith(_STATE_TAINTS)


def _keeps_off(taint: Taint, demand: Demand) -> bool:
    return taint.effect in _KEEPS_OFF and not any(_tolerates(each, taint) for each in demand.tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """The comparing operators (Gt, Lt; a feature gate) count as no."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.operator in ("", "Equal") and (toleration.key, toleration.value) == (taint.key, taint.value)


def _matches(term: tuple[LabelRequirement, ...], labels: Mapping[str, str]) -> bool:
    """A term without requirements matches no node."""
    return bool(term) and all(_meets(labels.get(requirement.key), requirement) for requirement in term)


def _meets(value: str | None, requirement: LabelRequirement) -> bool:
    """`value` None: the node has no such label. An operator that nobody knows matches nothing."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(value, requirement)
    return False


def _compares(value: str | None, requirement: LabelRequirement) -> bool:
    """Whole numbers both, and exactly one to compare with; else no."""
    if value is None or len(requirement.values) != 1 or not all(map(_NUMBER.fullmatch, (value, *requirement.values))):
        return False
    left, right = int(value), int(requirement.values[0])
    return left > right if requirement.operator == "Gt" else left < right
