"""What a pod, or the pod template of a Job, demands of a node."""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from recovery.core.model.demand import Demand, LabelRequirement, Toleration


class _NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: tuple[LabelRequirement, ...] = ()
    match_fields: list[LabelRequirement] = []


class _NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: list[_NodeSelectorTerm] = []


class _NodeAffinity(msgspec.Struct, frozen=True):
    required: _NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.affinity`, with what decisions read of it."""

    node_affinity: _NodeAffinity = _NodeAffinity()


def demand_of(
    selector: Mapping[str, str], affinity: Affinity | None, tolerations: tuple[Toleration, ...], gpus: int
) -> Demand:
    """The demand, as one object for all pods with an equal one.

    A term with only `matchFields` selects nodes by name, which no training does. It counts as matching every node.
    """
    required = affinity.node_affinity.required if affinity is not None else None
    terms = None
    if required is not None and not any(
        each.match_fields and not each.match_expressions for each in required.node_selector_terms
    ):
        terms = tuple(each.match_expressions for each in required.node_selector_terms)
    return _shared(Demand(tuple(sorted(selector.items())), terms, tolerations, gpus))


@lru_cache(maxsize=4096)
def _shared(demand: Demand) -> Demand:
    return demand
