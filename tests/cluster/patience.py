"""How long a test waits for something that must happen."""

GUARD_SECONDS = 180.0
"""Not an assertion. It only keeps a failure from hanging the suite, so it is long enough for a slow machine that runs
two suites at once. A test that must see a passing state must itself hold that state for as long as it looks."""

LONG_SECONDS = 600.0
"""How long a fault lasts that holds such a state. It is longer than any test waits."""
