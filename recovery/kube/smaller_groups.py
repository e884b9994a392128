"""Notifies groups that run with fewer nodes than wanted of possible room, and checks that room.

Such a group looks for room while it is smaller, so it is notified when there may be some. Other groups need no such
news. Before a smaller group restarts for room, the nodes that seem to have it are read.
"""

import asyncio
from collections.abc import Callable, Collection

import msgspec

from recovery.core.model.facts import FleetFacts, GroupKey, Snapshot
from recovery.kube.fleet_facts import FleetIndex
from recovery.kube.node_uses import NODES_LOOKED_AT_MAX, NodeUses
from recovery.ports import ApiClient, Clock

_PAUSE_SECONDS = 1.0
_PAUSE_PER_GROUP_SECONDS = 0.02
"""Where pods end all the time, hundreds of smaller groups must not be reconciled every second."""


class RoomNews:
    """Notifies smaller groups that there may be room. Constant work for each event, and none without such a group.
    However many pods end in a second, each group is notified at most once."""

    def __init__(
        self, groups: Callable[[], Collection[GroupKey]], *, clock: Clock, notify: Callable[[GroupKey], None]
    ) -> None:
        """`groups`: the groups to notify. `notify`: notifies one of them."""
        self._groups = groups
        self._clock = clock
        self._notify = notify
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Accelerators have become free, or a node takes other pods than before."""
        if self._groups():
            self._changed.set()

    async def run(self) -> None:
        """Report the first change at once, and the changes during the pause after it together. Runs until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            groups = tuple(self._groups())
            for key in groups:
                self._notify(key)
            await self._clock.sleep(max(_PAUSE_SECONDS, len(groups) * _PAUSE_PER_GROUP_SECONDS))


class RoomCheck:
    """Looks for pods that the informers do not know, on the nodes where there seems to be room."""

    def __init__(self, client: ApiClient, fleet: FleetIndex) -> None:
        self._uses = NodeUses(client)
        self._fleet = fleet

    async def checked(self, snapshot: Snapshot, facts: FleetFacts, lacks: int) -> FleetFacts:
        """The facts with the room on at most `NODES_LOOKED_AT_MAX` nodes, whose pods are listed for it. A group that
        could use more nodes grows by these first. `lacks`: how many more pods the group wants.

        Raises nothing: a node whose pods cannot be listed counts as full.
        """
        doubtful = self._fleet.doubtful(snapshot, NODES_LOOKED_AT_MAX) if facts.room is not None else ()
        if not doubtful:
            return facts
        found = await self._uses.read(doubtful)
        self._fleet.seen(found)
        return msgspec.structs.replace(facts, room=self._fleet.given(snapshot, found, lacks))
