"""Bounds within which decisions can compute with values from our own objects. The schema cannot express all of them.

Only the controller writes these objects, but a user who may edit them can enter values that overflow sums of dates.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache

import msgspec

from recovery.core.model.durations import DURATION_MAX
from recovery.core.model.pinned_policy import PinnedPolicy

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Dates are clamped to these two, so that the sum of a date and a duration never overflows `datetime`. Go's zero time
(`0001-01-01T00:00:00Z`) reads as EARLIEST, which is long ago. LATEST is in the future."""

_SECONDS_MAX = int(DURATION_MAX.total_seconds())
_NUMBER_MAX = 2**63


def check(value: object, path: str = "$", *, number_max: int = _NUMBER_MAX) -> None:
    """Raises ValueError with the path of the first date or number in the record that is out of bounds."""
    match value:
        case datetime():
            if value.tzinfo is None:
                raise ValueError(f"Expected a date with a time zone - at `{path}`")
            if not EARLIEST.year <= value.year < LATEST.year:
                raise ValueError(f"Expected a date from {EARLIEST.year} to {LATEST.year - 1} - at `{path}`")
        case int() | float():
            if not -number_max <= value <= number_max:
                raise ValueError(f"Expected a number up to {number_max} - at `{path}`")
        case msgspec.Struct():
            limit = _SECONDS_MAX if isinstance(value, PinnedPolicy) else number_max
            for name, encoded_name in _names(type(value)):
                check(getattr(value, name), f"{path}.{encoded_name}", number_max=limit)
        case tuple():
            for index, item in enumerate(value):
                check(item, f"{path}[{index}]", number_max=number_max)
        case Mapping():
            for key, item in value.items():
                check(item, f"{path}[{key!r}]", number_max=number_max)


@cache
def _names(record: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """The names of its fields, in Python and in JSON. Cached, because msgspec resolves all annotations on each call."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(record))
