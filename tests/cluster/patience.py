"""How long a test waits for what must come."""

GUARD_SECONDS = 180.0
"""No assertion: it only keeps a failure from hanging the suite, so it is long enough for a slow machine with two suites
side by side. What a test has to see in passing, it must keep in place itself for as long as it looks."""
