"""The end of a run says what took long, what did not run, and what came of it."""

from dataclasses import replace

from tests.stages.reports import Case
from tests.stages.summary import counts, left_out, slowest, table
from tests.stages.targets import Stage
from tests.unit.stages.report_files import RAN, case, failed, stage


def test_the_table_adds_up() -> None:
    unit = replace(stage("unit", RAN, RAN), seconds=150, cpu_seconds=300)
    lines = table([Stage("lint", 72, 60, None, ""), unit], 222).splitlines()
    assert lines[1].split() == ["lint", "72", "60", "-"]
    assert lines[-1].split() == ["total:", "3.7", "min", "222", "360", "2"]


def test_the_slowest_tests_come_first_and_fast_ones_not_at_all() -> None:
    cases = [Case(f"test_{each:g}", each, None, skipped=False) for each in (0.9, *map(float, range(1, 23)), 0.5)]
    lines = slowest(cases)
    assert [line.split()[0] for line in lines] == [f"{seconds}.0" for seconds in range(22, 2, -1)]
    assert lines[0].split() == ["22.0", "s", "test_22"]
    assert slowest(cases[:1]) == []


def test_what_did_not_run_is_named() -> None:
    central = stage("test-cluster-central", RAN, left_out={"tests/cluster/test_weather.py": 4})
    nodes = stage("real-nodes", RAN, case("test_b", '<skipped message="no"/>', folder="real_nodes"))
    assert left_out([central, nodes, Stage("lint", 1, 1, None, "")]) == [
        "test-cluster-central leaves out 4 tests, which `make test-all` runs:",
        "      4  tests/cluster/test_weather.py",
        "real-nodes: SKIPPED on this machine: tests/real_nodes/test_a.py::test_b (needs root and cgroups); CI runs it",
    ]


def test_the_last_line_counts() -> None:
    assert counts([stage("unit", RAN, RAN, failed("test_b"))]) == "2 passed, 1 failed"
    assert counts([stage("unit", RAN, case("test_b", "<skipped/>"))]) == "1 passed, 0 failed, 1 skipped"
