"""Users' regular expressions, in RE2 syntax: a match takes time linear in the text, whatever the pattern.

JobSet's message patterns and CEL's `matches` have the same syntax, so the API server refuses the same patterns.
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
    """A text that is not a pattern. The message says why."""


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Pattern:
    """The compiled pattern. Raises PatternError."""
    try:
        found: Pattern = re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        [why] = error.args
        raise PatternError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None
    except UnicodeEncodeError:
        raise PatternError("it holds half of a character") from None
    return found


def excerpt(pattern: str, text: str) -> str | None:
    """The part of the text that matches. None: nothing matches, or the pattern is invalid."""
    try:
        found = compiled(pattern).search(text.encode(errors="replace").decode())
    except PatternError:
        return None
    return None if found is None else found.group()
