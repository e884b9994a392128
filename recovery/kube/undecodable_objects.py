"""The objects that the informers of one store cannot read: how many, and which groups and nodes they concern."""

from collections.abc import Sequence
from typing import Any

from recovery.core.model.facts import GroupKey, UndecodableObject
from recovery.kube.informer import Informer
from recovery.kube.projections.pods import PodRecord
from recovery.kube.projections.workloads import JobRecord
from recovery.ports import NODES, Resource


class UndecodableObjects:
    """Asks the informers on each call: there are hardly ever any such objects."""

    def __init__(self, informers: Sequence[Informer[Any]]) -> None:
        self._informers = informers

    def of(self, key: GroupKey) -> tuple[UndecodableObject, ...]:
        """The undecodable objects of the group, in no order."""
        return tuple(
            found
            for informer in self._informers
            for found in informer.undecodable.values()
            if _group(found, informer) == key
        )

    def group_of(self, found: UndecodableObject) -> GroupKey | None:
        """The object's group by its metadata, else by its last readable state. None: not known."""
        [informer] = (each for each in self._informers if each.resource.kind == found.kind)
        return _group(found, informer)

    def nodes(self) -> frozenset[str]:
        """The names of undecodable nodes. Their known state is void: the taint that proved pods dead may be gone."""
        return frozenset(found.name for found in self.all_of(NODES))

    def all_of(self, resource: Resource) -> tuple[UndecodableObject, ...]:
        """The undecodable objects of the resource, in no order."""
        informers = (each for each in self._informers if each.resource == resource)
        return tuple(found for informer in informers for found in informer.undecodable.values())

    def counts(self) -> dict[str, int]:
        """The number of undecodable objects by resource, 0 included."""
        return {informer.resource.plural: len(informer.undecodable) for informer in self._informers}


def _group(found: UndecodableObject, informer: Informer[Any]) -> GroupKey | None:
    """The object's group by its metadata, else by its last readable state. None: not known."""
    known = informer.objects.get((found.namespace, found.name))
    if found.group is not None or known is None:
        return found.group
    return known.value.group if isinstance(known.value, PodRecord | JobRecord) else None
