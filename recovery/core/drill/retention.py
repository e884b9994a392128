"""Which RecoveryDrills are deleted: those that ended long ago, or are too many in their namespace."""

from collections.abc import Iterable
from datetime import datetime

from recovery.core.drill.acceptance import counts_today
from recovery.core.model.config import DrillsSpec
from recovery.core.model.drill import DrillFacts
from recovery.core.model.durations import parse_duration


def surplus(drills: Iterable[DrillFacts], limits: DrillsSpec, now: datetime) -> tuple[DrillFacts, ...]:
    """The drills to delete, oldest first. A drill without a verdict is kept, and one that counts towards the
    limit of a day: otherwise many drills would make room for more.

    Raises DurationError if the TTL cannot be parsed.
    """
    ttl = parse_duration(limits.ttl, "spec.drills.ttl")
    by_namespace: dict[str, list[DrillFacts]] = {}
    for each in drills:
        by_namespace.setdefault(each.namespace, []).append(each)
    found: list[DrillFacts] = []
    for of_namespace in by_namespace.values():
        newest_first = sorted(of_namespace, key=lambda each: (each.created_at, each.uid), reverse=True)
        found += (
            each
            for place, each in enumerate(newest_first)
            if each.status.verdict is not None
            and not counts_today(each, now)
            and (place >= limits.max_per_namespace or now - ended_at(each) > ttl)
        )
    return tuple(sorted(found, key=lambda each: (each.created_at, each.uid)))


def ended_at(drill: DrillFacts) -> datetime:
    """When the drill ended, or when its time was over."""
    end = drill.spec.end
    return drill.over_at if end is None else min(end.at, drill.over_at)
