"""Groups that run with fewer nodes than they are to have: what is done for them alone.

They look for room for as long as they are smaller, so they have to be notified when there may be some, and no other
group has to. Before one of them restarts for it, the nodes where it seems to be are read.
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
    """Notifies smaller groups that there may be room. Constant work for each event, and none without such a group:
    however many pods end in a second, each group is notified once at most."""

    def __init__(
        self, groups: Callable[[], Collection[GroupKey]], *, clock: Clock, notify: Callable[[GroupKey], None]
    ) -> None:
        """`groups`: those to be notified. The callback notifies one of them."""
        self._groups = groups
        self._clock = clock
        self._notify = notify
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Accelerators have become free, or a node takes other pods than before."""
        if self._groups():
            self._changed.set()

    async def run(self) -> None:
        """The first change is reported at once, those of the pause after it together. Until cancelled."""
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
        """The facts with the room that there is on nodes whose pods have just been listed, at most
        `NODES_LOOKED_AT_MAX`: a group that could use more grows by these first. `lacks`: how many more pods it wants.

        Raises nothing: nodes that cannot be looked at make no room.
        """
        doubtful = self._fleet.doubtful(snapshot, NODES_LOOKED_AT_MAX) if facts.room is not None else ()
        if not doubtful:
            return facts
        found = await self._uses.read(doubtful)
        self._fleet.seen(found)
        return msgspec.structs.replace(facts, room=self._fleet.given(snapshot, found, lacks))
