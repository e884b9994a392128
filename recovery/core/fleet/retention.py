"""Which RecoveryIncidents are deleted: those that are too old, or too many in their namespace."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec

from recovery.core.fleet.totals import REMEMBERED_FOR
from recovery.core.model.config import ConfigSpec
from recovery.core.model.durations import parse_duration
from recovery.core.model.folded_incidents import NumberRange

SETTLED_AFTER = REMEMBERED_FOR
"""A record is kept for at least this long after its creation. A ledger that the cache does not show any more may still
add it to the totals of the fleet."""


class RetainedIncident(msgspec.Struct, frozen=True):
    """The fields of a RecoveryIncident that its retention depends on."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    workload_uid: str
    numbers: tuple[NumberRange, ...]
    """The numbers of the incidents that the record describes."""
    created_at: datetime
    ended_at: datetime
    """When the latest of them ended."""

    def describes(self, number: int) -> bool:
        """The record describes the incident of the workload with that number."""
        return any(each.first <= number <= each.last for each in self.numbers)


class IncidentRetention(msgspec.Struct, frozen=True):
    """`RecoveryConfig.spec.incidents`, parsed."""

    ttl: timedelta
    max_per_namespace: int


def incident_retention(spec: ConfigSpec) -> IncidentRetention:
    """Raises DurationError if the TTL cannot be parsed."""
    return IncidentRetention(parse_duration(spec.incidents.ttl, "spec.incidents.ttl"), spec.incidents.max_per_namespace)


def surplus(
    records: Iterable[RetainedIncident],
    retention: IncidentRetention,
    now: datetime,
    *,
    in_use: Callable[[RetainedIncident], bool],
) -> tuple[RetainedIncident, ...]:
    """The records of one namespace that are to be deleted, oldest first.

    `in_use`: whether a ledger still holds one of the record's incidents, which may not be in the totals of the fleet
    yet. Such a record is kept at any age, and so is a new one. Both count towards the limit.
    """
    newest_first = sorted(records, key=lambda each: (each.ended_at, each.name), reverse=True)
    found = [
        each
        for place, each in enumerate(newest_first)
        if (place >= retention.max_per_namespace or now - each.ended_at > retention.ttl)
        and now - max(each.created_at, each.ended_at) >= SETTLED_AFTER
        and not in_use(each)
    ]
    return tuple(reversed(found))
