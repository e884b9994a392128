"""The plain definition of where pods could run: every demand is compared with every node.

It reads like the scheduler's own code. `recovery.kube.capacity` must give the same answer in less time.
"""

import re
from collections.abc import Iterable, Mapping

from recovery.core.model.demand import Demand, LabelRequirement, Toleration
from recovery.core.model.facts import NodeFacts, Taint
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT
from recovery.kube.capacity import PodRoom

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})
_STATE_TAINTS = "node.kubernetes.io/"
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def plain_room(demands: tuple[Demand, ...], nodes: Iterable[NodeFacts]) -> PodRoom:
    """The room for pods that have one of these demands."""
    fitting = [node for node in nodes if any(_fits(demand, node) for demand in demands)]
    feasible = [node for node in fitting if _open(node, demands)]
    gpus = max((demand.gpus for demand in demands), default=0)
    by_gpus = max(1, min((node.gpus for node in feasible), default=0) // gpus) if gpus else 0
    return PodRoom(tuple(sorted(node.name for node in feasible)), len(fitting), by_gpus)


def _fits(demand: Demand, node: NodeFacts) -> bool:
    """Whether the node is of the right kind, whatever its state."""
    if node.gpus < demand.gpus or any(node.labels.get(key) != value for key, value in demand.selector):
        return False
    if demand.affinity is not None and not any(_matches(term, node.labels) for term in demand.affinity):
        return False
    return not any(_keeps_off(taint, demand) for taint in node.taints if not _passes(taint))


def _open(node: NodeFacts, demands: Iterable[Demand]) -> bool:
    """Whether the node's state admits new pods of one of the demands that fit it."""
    if not node.ready or node.unschedulable or node.deleting_since is not None:
        return False
    passing = [taint for taint in node.taints if _passes(taint)]
    return not passing or any(
        _fits(demand, node) and not any(_keeps_off(taint, demand) for taint in passing) for demand in demands
    )


def _passes(taint: Taint) -> bool:
    """Whether the taint marks a state that ends, not the node's purpose."""
    return taint.key == QUARANTINE_TAINT or taint.key.startswith(_STATE_TAINTS)


def _keeps_off(taint: Taint, demand: Demand) -> bool:
    return taint.effect in _KEEPS_OFF and not any(_tolerates(each, taint) for each in demand.tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """The comparison operators (Gt, Lt; behind a feature gate) never match."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return toleration.operator in ("", "Equal") and (toleration.key, toleration.value) == (taint.key, taint.value)


def _matches(term: tuple[LabelRequirement, ...], labels: Mapping[str, str]) -> bool:
    """A term without requirements matches no node."""
    return bool(term) and all(_meets(labels.get(requirement.key), requirement) for requirement in term)


def _meets(value: str | None, requirement: LabelRequirement) -> bool:
    """`value` None: the node has no such label. An unknown operator matches nothing."""
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
    """False unless both are whole numbers and there is exactly one to compare with."""
    if value is None or len(requirement.values) != 1 or not all(map(_NUMBER.fullmatch, (value, *requirement.values))):
        return False
    left, right = int(value), int(requirement.values[0])
    return left > right if requirement.operator == "Gt" else left < right
