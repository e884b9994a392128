"""Regular expressions of users, in RE2 syntax: the time they cost grows with the text alone, whatever they say.

The syntax is that of JobSet's message patterns and of CEL's `matches`, so that the API server refuses the same ones.
"""

from functools import lru_cache
from typing import Protocol

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # it would write to stderr


class _Found(Protocol):
    def group(self) -> str: ...


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> _Found | None: ...


class PatternError(ValueError):
    """A text that is no pattern; the message says why."""


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Pattern:
    """Raises PatternError."""
    try:
        found: Pattern = re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        [why] = error.args
        raise PatternError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None
    except UnicodeEncodeError:
        raise PatternError("it holds half of a character") from None
    return found


def excerpt(pattern: str, text: str) -> str | None:
    """What of the text matches. None: nothing does; nor does a pattern that is none."""
    try:
        found = compiled(pattern).search(text.encode(errors="replace").decode())
    except PatternError:
        return None
    return None if found is None else found.group()
