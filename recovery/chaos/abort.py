"""Ends runs from the cluster alone: on any machine, also after the client of the run has died. A repeat is harmless."""

import msgspec

from recovery import api_verbs
from recovery.chaos.drill_record import DrillRecord
from recovery.chaos.marked_nodes import LeftOver, marked_nodes, undo_node
from recovery.core.model.drill import DrillFacts, NodeMark
from recovery.core.model.facts import GroupKey
from recovery.core.model.reason import Reason
from recovery.decoding import decoded
from recovery.kube.cluster_reader import read_all
from recovery.kube.projections.drills import decode_drill
from recovery.ports import RECOVERY_DRILLS, ApiClient, Clock, NotFoundError

ABORTED_BY_COMMAND = "ended by recovery chaos abort"


class AbortedRuns(msgspec.Struct, frozen=True):
    """What `abort` has done."""

    ended: tuple[str, ...]
    """The RecoveryDrills that it has ended, as namespace/name."""
    freed: tuple[str, ...]
    """The nodes that it has put back."""
    left_over: tuple[LeftOver, ...]
    known: bool
    """A RecoveryDrill or a mark of that name was found."""


async def read_drills(api: ApiClient, namespace: str | None) -> tuple[DrillFacts, ...]:
    """The RecoveryDrills of the namespace, oldest first. `namespace` None: of all. Raises ApiError."""
    listed = await read_all(api, RECOVERY_DRILLS, namespace, decode_drill)
    return tuple(sorted((entry.value for entry in listed.entries), key=lambda each: (each.created_at, each.name)))


async def abort(api: ApiClient, clock: Clock, namespace: str | None, name: str | None) -> AbortedRuns:
    """End the run of that name, or all runs (`name` None), and take back what they have changed on nodes.

    The drill is ended first, so that a client that still runs makes no further change. A mark whose RecoveryDrill does
    not exist is taken back too. `namespace` None: of all namespaces. Raises ApiError.
    """
    drills = await _drills(api, namespace, name)
    ended = []
    for drill in drills:
        if drill.spec.end is None:
            record = DrillRecord(api, clock, GroupKey(drill.namespace, drill.spec.workload_ref.name), drill.name)
            await record.end(Reason.DRILL_INTERRUPTED, ABORTED_BY_COMMAND, clock.now())
            ended.append(f"{drill.namespace}/{drill.name}")
    marks = {node: mark for node, mark in (await marked_nodes(api)).items() if _is_meant(mark, namespace, name)}
    left = []
    for node, mark in sorted(marks.items()):
        found = await undo_node(api, clock, node, mark.uid if mark is not None else "")
        if found is not None:
            left.append(found)
    kept = {each.node for each in left}
    freed = tuple(node for node in sorted(marks) if node not in kept)
    return AbortedRuns(tuple(ended), freed, tuple(left), bool(drills or marks))


async def _drills(api: ApiClient, namespace: str | None, name: str | None) -> tuple[DrillFacts, ...]:
    if name is None or namespace is None:
        return await read_drills(api, namespace)
    try:
        body = await api_verbs.get(api, RECOVERY_DRILLS, name, namespace=namespace)
    except NotFoundError:
        return ()
    return (decoded(RECOVERY_DRILLS, decode_drill, body).value,)


def _is_meant(mark: NodeMark | None, namespace: str | None, name: str | None) -> bool:
    """A mark that cannot be read belongs to an unknown run. Only `--all` names it."""
    if mark is None:
        return name is None
    return (namespace is None or mark.namespace == namespace) and (name is None or mark.drill == name)
