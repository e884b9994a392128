"""Which make targets are suites, and which of their tests may be skipped on a developer's machine."""

ON_REAL_COMPONENTS = frozenset(
    {
        "contract",
        "prometheus",
        "walks",
        "test-image",
        "real-nodes",
        "real-nodes-central",
        "test-cluster",
        "test-cluster-central",
        "test-cluster-conflicts",
        "test-cluster-1.37",
    }
)
"""Suites in which time is real. A test of these that fails may run once more."""
SUITES = ON_REAL_COMPONENTS | {
    "docs",
    "unit",
    "examples",
    "seeds",
    "seeds-central",
    "simulation",
    "simulation-central",
    "simulation-rest",
}
"""Targets that write a report named after them."""

MAY_BE_SKIPPED = {
    "tests/agent/test_server.py::test_a_member_that_knows_the_key_is_welcomed[::1]": "needs an IPv6 loopback",
    "tests/unit/telemetry/test_server.py::test_health_is_what_the_process_says_of_itself": "needs an IPv6 loopback",
    "tests/unit/test_http_server.py::test_without_a_host_it_listens_on_all_families": "needs an IPv6 loopback",
    "tests/real_nodes/": "needs root and cgroups",
}
"""Tests that may be skipped outside CI, by the beginning of their node ids, with what they need. CI skips none."""
