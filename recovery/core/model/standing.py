"""Whether the program of a group trains: its standing, beside the phase, which says where its pods are."""

from datetime import datetime
from enum import StrEnum

import msgspec


class Standing(StrEnum):
    """Forming: its processes have not met yet, and none hangs. Met: all ranks have met, and none has ended since.
    Broken: a rank ended, and the others that had met it hang. Unknown: the facts do not say, or no rank waits for one
    that ended."""

    FORMING = "Forming"
    MET = "Met"
    BROKEN = "Broken"
    UNKNOWN = "Unknown"


class Broken(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A group that hangs between incidents, because an incident closed without repairing it."""

    since: datetime
    """When the first rank ended that the hanging ranks had met."""
    booked_from: datetime
    """From here on, the idle GPU-seconds are not booked yet. Those before belong to the incident."""
    incident: str
    """Id of the incident that closed."""
    disruption_class: str = msgspec.field(name="class")
    """Class of that incident, which the idle GPU-seconds count for."""
    gpus: int = 0
    """GPUs of the group. All of them are idle."""
    message: str = ""
    """What broke the group, in words."""
    ranks: int = 0
    """Ranks of the group when it broke. A smaller size of a Job does not end that."""


BROKEN_SECONDS = "Broken"
"""The key of `totals.idleGpuSeconds` for the idle GPU-seconds of a group that is Broken between incidents."""
