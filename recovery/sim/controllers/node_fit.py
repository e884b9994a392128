"""What a pod requires of a node, and why a node does not fit.

The checks follow the default plugins of kube-scheduler in their order: NodeUnschedulable, TaintToleration,
NodeAffinity, NodeResourcesFit. The first one that refuses gives the reasons, in the plugin's words.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from recovery.sim.api.kinds.kind import Body
from recovery.sim.controllers.taints import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE, all_tolerated, taints_of

Amounts = Mapping[str, int]
"""Amounts by resource name, in thousandths of the resource's unit."""

PODS_RESOURCE = "pods"
SUFFIXES: Mapping[str, int | Fraction] = {
    "": 1, "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


@lru_cache(maxsize=4096)
def thousandths(quantity: str | int | float) -> int:
    """A Kubernetes quantity, rounded up to thousandths: `500m` is 500, `2Ki` 2,048,000."""
    text = str(quantity)
    number = text.rstrip("numkKMGTPEi")
    return math.ceil(Fraction(number) * SUFFIXES[text[len(number) :]] * 1000)


@dataclass
class NodeUsage:
    """A node's name, its resources, and how much of them its bound pods use."""

    name: str
    node: Body | None = None
    """None: the Node does not exist, but pods may be bound to its name."""
    allocatable: Amounts = field(default_factory=dict)
    taints: Sequence[Body] = ()
    """Taints with the effect NoSchedule or NoExecute."""
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    pods: int = 0

    def put(self, node: Body | None) -> None:
        self.node = node
        found = (node or {}).get("status", {}).get("allocatable", {})
        self.allocatable = {name: thousandths(quantity) for name, quantity in found.items()}
        if node:
            self.taints = taints_of(node, NO_SCHEDULE, NO_EXECUTE)
            self.cordoned = bool(node["spec"].get("unschedulable"))
            self.labels = node["metadata"].get("labels") or {}

    def take(self, amounts: Amounts) -> None:
        self.pods += 1
        for name, amount in amounts.items():
            self.taken[name] = self.taken.get(name, 0) + amount

    def give_back(self, amounts: Amounts) -> None:
        self.pods -= 1
        for name, amount in amounts.items():
            self.taken[name] -= amount

    def free_share(self, amounts: Amounts) -> float:
        """The sum of the shares (0 to 1) of requested resources that stay free. No requests: minus the pod count."""
        left = [
            (self.allocatable[name] - self.taken.get(name, 0) - amount) / self.allocatable[name]
            for name, amount in amounts.items()
        ]
        return sum(left) if left else -float(self.pods)


@dataclass(frozen=True)
class PodRequirements:
    """The requirements that decide where a pod may run."""

    amounts: Amounts
    tolerations: Sequence[Body] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity_terms: Sequence[Body] | None = None
    """`nodeSelectorTerms`: at least one must match. None: every node matches."""

    @staticmethod
    def of(pod: Body) -> "PodRequirements":
        spec = pod["spec"]
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        return PodRequirements(
            amounts_of(spec),
            spec.get("tolerations") or (),
            spec.get("nodeSelector") or {},
            required["nodeSelectorTerms"] if required else None,
        )

    def refusals(self, room: NodeUsage) -> tuple[str, ...]:
        """Why the pod does not fit on the node. Empty: it fits."""
        if room.cordoned and not all_tolerated([CORDON], self.tolerations):
            return ("node(s) were unschedulable",)
        if room.taints and not all_tolerated(room.taints, self.tolerations):
            return ("node(s) had untolerated taint(s)",)
        if not self._selects(room.labels):
            return ("node(s) didn't match Pod's node affinity/selector",)
        short = []
        if (room.pods + 1) * 1000 > room.allocatable.get(PODS_RESOURCE, 0):
            short.append("Too many pods")
        for name, amount in self.amounts.items():
            if amount > room.allocatable.get(name, 0) - room.taken.get(name, 0):
                short.append(f"Insufficient {name}")
        return tuple(short)

    def _selects(self, labels: Mapping[str, str]) -> bool:
        for key, value in self.node_selector.items():
            if labels.get(key) != value:
                return False
        if self.affinity_terms is None:
            return True
        return any(_term_matches(term, labels) for term in self.affinity_terms)


CORDON = {"key": UNSCHEDULABLE, "effect": NO_SCHEDULE}


def amounts_of(spec: Body) -> dict[str, int]:
    """The resources that a pod requests. For each resource this is the larger of two: the sum of its containers and
    native sidecars, or the most that an init container and the sidecars started before it need.
    """
    sidecars: list[Body] = []
    largest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        for name, amount in _requests([*sidecars, container]).items():
            largest[name] = max(largest.get(name, 0), amount)
        if container.get("restartPolicy") == "Always":
            sidecars.append(container)
    amounts = _requests([*spec["containers"], *sidecars])
    for name, amount in largest.items():
        amounts[name] = max(amounts.get(name, 0), amount)
    for name, quantity in (spec.get("overhead") or {}).items():
        amounts[name] = amounts.get(name, 0) + thousandths(quantity)
    return {name: amount for name, amount in amounts.items() if amount}


def _requests(containers: Sequence[Body]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for container in containers:
        resources = container.get("resources") or {}
        # The server defaults requests to the limits.
        for name, quantity in ((resources.get("limits") or {}) | (resources.get("requests") or {})).items():
            amounts[name] = amounts.get(name, 0) + thousandths(quantity)
    return amounts


def _term_matches(term: Body, labels: Mapping[str, str]) -> bool:
    """Whether the term matches. A term without expressions matches nothing."""
    assert not term.get("matchFields"), "matchFields are not modelled"
    expressions = term.get("matchExpressions") or ()
    return bool(expressions) and all(_expression_matches(expression, labels) for expression in expressions)


def _expression_matches(expression: Body, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            raise ValueError(f"node affinity operator {operator} is not modelled")
