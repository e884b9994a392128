"""Durations as people write them in a policy: whole numbers with units, the largest first."""

import re
from datetime import timedelta
from functools import lru_cache

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII)
DURATION_MAX = timedelta(days=36525)
"""A hundred years. A date of this century plus or minus it does not overflow `datetime`."""
_DIGITS_MAX = 16
_SHOWN_MAX = 64


class DurationError(ValueError):
    """A text that is not a duration. The message starts with the path of the field."""


@lru_cache(maxsize=1024)
def parse_duration(text: str, path: str) -> timedelta:
    """Parse `1h30m`, `15m`, `10s` or `500ms`. Raises DurationError naming `path`."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise DurationError(f"{path}: {text!r} is not a duration; write it like 24h, 15m, 10s or 500ms")
    parts = [part or "0" for part in match.groups()]
    if max(map(len, parts)) <= _DIGITS_MAX:
        hours, minutes, seconds, milliseconds = map(int, parts)
        total = ((hours * 60 + minutes) * 60 + seconds) * 1000 + milliseconds
        if total <= DURATION_MAX // timedelta(milliseconds=1):
            return timedelta(milliseconds=total)
    raise DurationError(f"{path}: {text[:_SHOWN_MAX]!r} is longer than any duration that makes sense here")


def unreadable(text: str, path: str) -> tuple[str, ...]:
    """Why the text is not a duration, in one sentence. Empty: it is one."""
    try:
        parse_duration(text, path)
    except DurationError as error:
        return (str(error),)
    return ()


def in_words(duration: timedelta) -> str:
    """A duration as a policy writes it: 24h, 90m, 10s."""
    seconds = int(duration.total_seconds())
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
