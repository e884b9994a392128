"""The size of an elastic group, and the nodes that a group avoids."""

from datetime import datetime

import msgspec


class AvoidedNode(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A node that this group alone stays off."""

    node: str
    host: str
    """The value of its label `kubernetes.io/hostname`."""
    since: datetime
    until: datetime
    """As long as a suspicion counts (`suspicion.within` of the RecoveryConfig)."""
    reason: str = ""
    """Why, as a sentence."""


class ElasticState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A group that runs with fewer nodes than it is to have, or is being given another size."""

    nodes: int
    """How many nodes it has, or will have after the restart in progress."""
    wanted_nodes: int
    """How many it wants: the size in its JobSet, or the size that its user has set."""
    since: datetime
    """Since when it has had fewer."""
    gpus: int = 0
    """The GPUs of the group with `nodes`."""
    running_since: datetime | None = None
    """Since when it has run with that size; what it computes since then is not in the totals yet. None: it does not
    run, because an incident is open."""
    room_since: datetime | None = None
    """Since when there has been room for `roomNodes` without a break. None: there is no room for a larger size."""
    room_nodes: int | None = None
    """The larger allowed size that there is room for. None: there is none."""
    failed_growths: int = 0
    """Growths in a row that had to be undone. Each doubles the wait before the next one."""
