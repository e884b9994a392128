"""A fault of the node on which a member runs."""

from datetime import datetime

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """A fault of a pod's node that a rule of the policy names (`matching.node_faults`)."""

    key: str
    text: str
    since: datetime | None
    """None: the taint has no date. It is then reported once for its node."""
