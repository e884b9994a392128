"""Room that smaller groups were given on live facts and may be about to use.

A group that grows takes its new nodes only when its pods are created again, after all of its old pods are gone. Until
its ledger and its pods show that, only this record keeps the other groups from growing onto the same nodes.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.facts import GroupKey, Room
from recovery.kube.capacity import Capacity
from recovery.kube.pending_groups import NodeClaim

GIVEN_FOR = timedelta(seconds=30)
"""By then the pods of a growing group are terminating, and the group is among those that wait (`pending_groups`)."""


class _Given(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    nodes: int
    gpus: int
    until: datetime


class RoomGiven:
    """The room that each group was given last."""

    def __init__(self) -> None:
        self._given: dict[GroupKey, _Given] = {}

    def give(self, key: GroupKey, room: Room, *, lacks: int, gpus: int, now: datetime) -> None:
        """`lacks`: how many more pods the group wants. `gpus`: the accelerators of each."""
        nodes = min(lacks, len(room.nodes))
        if nodes > 0:
            self._given[key] = _Given(room.nodes, nodes, gpus, now + GIVEN_FOR)
        else:
            self._given.pop(key, None)

    def claims(
        self, own: GroupKey, capacity: Capacity, now: datetime, *, claimed: Collection[GroupKey]
    ) -> tuple[NodeClaim, ...]:
        """The claims of the other groups. `claimed`: groups to leave out, because their claims are known otherwise."""
        self._given = {key: each for key, each in self._given.items() if now < each.until}
        return tuple(
            NodeClaim(key, each.nodes, capacity.nodes_called(each.names), each.gpus)
            for key, each in self._given.items()
            if key != own and key not in claimed
        )
