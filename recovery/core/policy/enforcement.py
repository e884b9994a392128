"""Since when a policy is in mode Enforce, as recorded in its status.

The API server dates the owners of `spec.mode` (managedFields), not the mode. Any later write of such an owner, even of
a chart label, moves that date, and so does a second owner who applies the same mode. Evidence from before that date
would count as a baseline, so a new failure might never be recovered. So the status records the moment itself.
"""

from datetime import datetime

import msgspec


class Enforcement(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the controller keeps in the status of a policy."""

    enforced_since: datetime | None = None
    """When `spec.mode` became Enforce. Earlier evidence is a baseline. Absent while the mode is Observe."""
    enforced_generation: int | None = None
    """The newest generation that the controller has seen in mode Enforce. Absent while the mode is Observe."""


def enforcement(
    recorded: Enforcement, *, enforces: bool, generation: int, created_at: datetime, mode_since: datetime
) -> Enforcement:
    """What the status should say. The same facts give the same answer, so two writers agree.

    `mode_since`: when an owner of `spec.mode` last wrote. It is used if nothing is recorded. It also counts if the spec
    has changed twice or more unseen, because two changes are enough to leave Enforce and return to it.
    """
    if not enforces:
        return Enforcement()
    known, confirmed = recorded.enforced_since, recorded.enforced_generation
    began_at = max(created_at, mode_since)
    if known is None or confirmed is None or known < created_at:
        return Enforcement(began_at, generation)
    may_have_left = generation - confirmed > 1 or generation < confirmed
    return Enforcement(max(known, began_at) if may_have_left else known, generation)
