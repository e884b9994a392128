"""Since when a policy enforces, as its own status keeps it.

The API server dates the owners of `spec.mode` (managedFields), not the mode. Any later write of such an owner, a chart
label included, moves that date, and so does a second owner who applies the same mode. Evidence from before it would
count as a baseline, so a failure that no one has seen would never be recovered. The status keeps the moment instead.
"""

from datetime import datetime

import msgspec


class Enforcement(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the controller keeps in the status of a policy."""

    enforced_since: datetime | None = None
    """When `spec.mode` became Enforce. Evidence from before that moment is a baseline. Absent while it is Observe."""
    enforced_generation: int | None = None
    """The newest generation of which the controller has seen that it enforces. Absent while the mode is Observe."""


def enforcement(
    recorded: Enforcement, *, enforces: bool, generation: int, created_at: datetime, mode_since: datetime
) -> Enforcement:
    """What the status has to say. The same facts give the same answer, so two writers agree.

    `mode_since`: when an owner of `spec.mode` last wrote. It is taken over where nothing is recorded. It also counts
    where the spec has changed twice or more unseen: two changes are enough to leave Enforce and to come back.
    """
    if not enforces:
        return Enforcement()
    known, confirmed = recorded.enforced_since, recorded.enforced_generation
    began_at = max(created_at, mode_since)
    if known is None or confirmed is None or known < created_at:
        return Enforcement(began_at, generation)
    may_have_left = generation - confirmed > 1 or generation < confirmed
    return Enforcement(max(known, began_at) if may_have_left else known, generation)
