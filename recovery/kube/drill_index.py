"""The RecoveryDrills of all workloads."""

from collections.abc import Callable

from recovery.core.model.drill import DrillFacts
from recovery.core.model.facts import GroupKey
from recovery.kube.nested_index import remove
from recovery.kube.projections.metadata import ObjectEntry


class DrillIndex:
    """RecoveryDrills by namespace and UID of their workload: one in another namespace is about no workload of this."""

    def __init__(self, *, notify: Callable[[GroupKey], None]) -> None:
        """`notify`: a drill of the group has changed."""
        self._notify = notify
        self._drills_of: dict[tuple[str, str], dict[str, DrillFacts]] = {}

    def put(self, entry: ObjectEntry[DrillFacts]) -> None:
        self.saw(entry.value)

    def saw(self, drill: DrillFacts) -> None:
        """Take in the drill, as a watch shows it or as the answer to a write does. An older version changes nothing."""
        known = self._drills_of.setdefault((drill.namespace, drill.spec.workload_ref.uid), {})
        before = known.get(drill.name)
        if before is not None and before.uid == drill.uid and _older(drill, before):
            return
        known[drill.name] = drill
        self._notify(_group(drill))

    def drop(self, entry: ObjectEntry[DrillFacts]) -> None:
        drill = entry.value
        remove(self._drills_of, (drill.namespace, drill.spec.workload_ref.uid), drill.name)
        self._notify(_group(drill))

    def of(self, namespace: str, workload_uid: str) -> tuple[DrillFacts, ...]:
        """The drills of the workload, oldest first."""
        found = self._drills_of.get((namespace, workload_uid))
        return tuple(sorted(found.values(), key=lambda each: (each.created_at, each.uid))) if found else ()

    def all(self) -> tuple[DrillFacts, ...]:
        """All drills, in no order."""
        return tuple(drill for drills in self._drills_of.values() for drill in drills.values())


def _group(drill: DrillFacts) -> GroupKey:
    return GroupKey(drill.namespace, drill.spec.workload_ref.name)


def _older(drill: DrillFacts, known: DrillFacts) -> bool:
    """Kubernetes 1.35 and newer guarantee the order of resourceVersions."""
    versions = drill.resource_version, known.resource_version
    return all(each.isdecimal() for each in versions) and int(versions[0]) < int(versions[1])
