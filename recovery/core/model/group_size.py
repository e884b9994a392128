"""The size of an elastic group, and the nodes that a group avoids."""

from datetime import datetime

import msgspec


class AvoidedNode(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A node that only this group avoids."""

    node: str
    host: str
    """Value of the label `kubernetes.io/hostname` of the node."""
    since: datetime
    until: datetime
    """Until when the group avoids the node: as long as a suspicion counts (`suspicion.within` of the RecoveryConfig),
    or 15 minutes if its kubelet has refused pods of the group."""
    reason: str = ""
    """Why the group avoids the node, as a sentence."""


class ElasticState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The size of an elastic group that runs with fewer nodes than wanted, or whose size is being changed."""

    nodes: int
    """How many nodes the group has, or will have after the restart in progress."""
    wanted_nodes: int
    """How many nodes the group should have: the size in its JobSet, or the size that a user has set."""
    since: datetime
    """Since when the group has had fewer nodes than wanted."""
    gpus: int = 0
    """GPUs of the group at the size `nodes`."""
    running_since: datetime | None = None
    """Since when the group has run with this size. The totals do not include the time since then yet. None: the group
    does not run, because an incident is open."""
    room_since: datetime | None = None
    """Since when there has been room for `roomNodes` nodes without a break. None: there is no room for a larger
    size."""
    room_nodes: int | None = None
    """The larger allowed size for which there is room. None: there is no room for a larger size."""
    failed_growths: int = 0
    """Growths in a row that had to be undone. Each doubles the wait before the next growth."""
