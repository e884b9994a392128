"""Marks of counted incidents in `FleetTotals.counted`: twelve characters each, so that no storm fills the status.

A mark is a digest of the incident's name. Its first half depends only on the workload: what may be in a ledger that
cannot be read is known by its workload. Two incidents of one mark would be counted once; with 72 bits that does not
happen.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

IncidentName = tuple[str, int, datetime]
"""UID of the workload, number of the incident, and when its failure happened."""

_WORKLOAD_CHARS = 6
_MARK_CHARS = 12


def mark_of(name: IncidentName) -> str:
    uid, number, started_at = name
    return workload_part(uid) + _digest(f"{uid} {number} {started_at.astimezone(UTC).isoformat()}")


def workload_part(uid: str) -> str:
    """With what the marks of all incidents of the workload begin."""
    return _digest(uid)


def part_of(mark: str) -> str:
    """The `workload_part` of the incident's workload."""
    return mark[:_WORKLOAD_CHARS]


def minute_of(now: datetime) -> str:
    """The key for what is counted now. Keys are in the order of time."""
    return f"{now.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def marks(counted: dict[str, str]) -> Iterator[str]:
    """All marks, oldest first."""
    return (mark for _, mark in dated(counted))


def dated(counted: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The minute and the mark, oldest first."""
    for minute in sorted(counted):
        together = counted[minute]
        for begin in range(0, len(together), _MARK_CHARS):
            yield minute, together[begin : begin + _MARK_CHARS]


def by_minute(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    together: dict[str, str] = {}
    for minute, mark in found:
        together[minute] = together.get(minute, "") + mark
    return together


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())[:_WORKLOAD_CHARS].decode()
