"""Room that smaller groups have been shown on live facts, and may be about to use.

A group that grows takes its nodes only when its pods are created again, after the whole of it has gone. Until its
ledger and its pods show that, nothing else shows it to the others, which would all grow for the same nodes.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.facts import GroupKey, Room
from recovery.kube.capacity import Capacity
from recovery.kube.pending_groups import NodeClaim

GIVEN_FOR = timedelta(seconds=30)
"""By then the pods of a group that grows are on their way out, and it is among those that wait (`pending_groups`)."""


class _Given(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    nodes: int
    gpus: int
    until: datetime


class RoomGiven:
    """Of each group what it was shown last."""

    def __init__(self) -> None:
        self._given: dict[GroupKey, _Given] = {}

    def give(self, key: GroupKey, room: Room, *, lacks: int, gpus: int, now: datetime) -> None:
        """`lacks`: how many more pods the group wants. `gpus`: of each."""
        nodes = min(lacks, len(room.nodes))
        if nodes > 0:
            self._given[key] = _Given(room.nodes, nodes, gpus, now + GIVEN_FOR)
        else:
            self._given.pop(key, None)

    def claims(
        self, own: GroupKey, capacity: Capacity, now: datetime, *, claimed: Collection[GroupKey]
    ) -> tuple[NodeClaim, ...]:
        """Those of the other groups. `claimed`: whose claims are known otherwise."""
        self._given = {key: each for key, each in self._given.items() if now < each.until}
        return tuple(
            NodeClaim(key, each.nodes, capacity.nodes_called(each.names), each.gpus)
            for key, each in self._given.items()
            if key != own and key not in claimed
        )
