"""What an incident waits in: a suspension, a restart that is withheld, or a verdict that holds it."""

from datetime import datetime, timedelta

import msgspec

from recovery.core.model.reason import Reason

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


class Withheld(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A restart that waits for its backoff while the job is not suspended, so its pods keep their GPUs."""

    until: datetime
    """When the controller restarts the group, unless the group has recovered by itself."""
    lost_at: datetime
    """When the first member was lost. Members whose processes started earlier still wait for it."""


class Held(msgspec.Struct, frozen=True):
    """The verdict for which an incident is held, regardless of the budget."""

    reason: Reason
    message: str
