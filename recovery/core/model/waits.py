"""What an incident waits in while its job holds no GPUs: a suspension, and a release while a member has no node."""

from datetime import datetime, timedelta

import msgspec

ROOM_ASKED_EVERY = timedelta(seconds=15)
"""How often a released group asks for room. A change of nodes makes it ask at once."""


class Suspension(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A suspension of the workload by the controller. It is written to the ledger before the workload is suspended, and
    removed before the workload is resumed."""

    until: datetime | None = None
    """When the controller resumes the workload. None: no time is set (`onExhausted: Suspend`)."""
    for_room: bool = False
    """The controller resumes the workload only when there seems to be room for all members of its group, and not before
    `until` (`whileWaiting: Release`)."""
    landed: bool = False
    """The controller has seen the workload suspended. If the suspension has ended since, another client ended it, and
    the controller does not renew it."""


class Released(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A group that gave its GPUs back while a member found no node (`whileWaiting: Release`)."""

    since: datetime
    """When it first did so since the latest restart."""
    times: int = 1
    """How often it has done so. Each further time doubles the wait before the next try."""
    priority: int = 0
    """The highest priority of its pods (`spec.priority`, which the API server takes from their PriorityClass)."""

    @property
    def turn(self) -> tuple[int, datetime]:
        """Sorts released groups: the first one resumes first."""
        return -self.priority, self.since
