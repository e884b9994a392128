"""How many files a process may open. Slot 0 needs one for the link of each member, and many hosts allow 1,024."""

import resource
from contextlib import suppress

RESERVED_FILES = 160
"""For all that the agent opens besides links: logs, reports, the process table, the processes that it starts."""

Limit = tuple[int, int]
"""The soft and the hard limit."""


def present() -> Limit:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def links_allowed(wanted: int) -> int:
    """Raise the soft limit as far as that many links need it. Returns how many links fit below it."""
    needed = wanted + RESERVED_FILES
    soft, hard = present()
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    soft, _ = present()
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - RESERVED_FILES))


def give(pid: int, limit: Limit) -> None:
    """Give a process that was just started the limit that it would have without the agent."""
    if present() != limit:
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
