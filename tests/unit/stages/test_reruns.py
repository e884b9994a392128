"""A test that fails on real components runs once more, and both results are kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stages.reports import Case
from tests.stages.reruns import Rerun, rerun_failed, run_one_test, write_record
from tests.stages.targets import Stage
from tests.unit.stages.report_files import RAN, case, failed, script, stage

PASSES, FAILS = case("test_b"), failed("test_b", "assert 3 == 4")


class Runs:
    """Runs each test again with one result, and notes which."""

    def __init__(self, result: str) -> None:
        self.result = result
        self.tests: list[str] = []

    def __call__(self, suite: str, test: Case, name: str) -> Stage:
        self.tests.append(test.node_id)
        return replace(stage(name, self.result, exit_status=int("failure" in self.result)), name=suite)


def cluster(*names: str, exit_status: int = 1) -> Stage:
    """The cluster suite after these tests of it failed."""
    return stage("test-cluster", RAN, *map(failed, names), exit_status=exit_status)


def test_one_that_passes_the_second_time_makes_its_suite_green_and_is_reported() -> None:
    runs = Runs(PASSES)
    (after,), reruns = rerun_failed([cluster("test_b")], runs)
    assert after.complaint == ""
    assert after.report
    assert after.report.failed == []
    assert runs.tests == ["tests/cluster/test_a.py::test_b"]
    assert list(map(str, reruns)) == ["rerun: tests/cluster/test_a.py::test_b: assert 1 == 2; second passed"]


def test_one_that_fails_twice_leaves_its_suite_red() -> None:
    (after,), (rerun,) = rerun_failed([cluster("test_b")], Runs(FAILS))
    assert after.complaint == "test-cluster: 1 failed: tests/cluster/test_a.py::test_b"
    assert str(rerun) == "rerun: tests/cluster/test_a.py::test_b: assert 1 == 2; second failed: assert 3 == 4"


def test_a_second_run_without_a_result_is_no_success() -> None:
    (after,), (rerun,) = rerun_failed([cluster("test_b")], Runs(""))
    assert after.complaint
    assert rerun.second == "rerun-1: not one test ran"


def test_what_else_is_wrong_with_a_suite_stays_wrong() -> None:
    red = stage("test-cluster", failed("test_b"), case("test_c", '<skipped message="no"/>'), exit_status=1)
    (after,), _ = rerun_failed([red], Runs(PASSES))
    assert after.complaint == "test-cluster: skipped, which counts as failed here: tests/cluster/test_a.py::test_c"


@pytest.mark.parametrize(
    ("stages", "count"),
    [
        ([cluster, "test_a", "test_b", "test_c"], 3),
        ([cluster, "test_a", "test_b", "test_c", "test_d"], 0),
    ],
    ids=["three in a suite", "four in a suite"],
)
def test_at_most_three_in_a_suite_run_again(stages: list[object], count: int) -> None:
    runs = Runs(PASSES)
    rerun_failed([cluster(*map(str, stages[1:]))], runs)
    assert len(runs.tests) == count


@pytest.mark.parametrize(("names", "count"), [("ab", 5), ("abc", 0)], ids=["five in all", "six in all"])
def test_at_most_five_in_all_run_again(names: str, count: int) -> None:
    runs = Runs(PASSES)
    walks = stage("walks", *(failed(f"test_{name}") for name in names), exit_status=1)
    rerun_failed([walks, cluster("test_a", "test_b", "test_c")], runs)
    assert len(runs.tests) == count


@pytest.mark.parametrize(
    ("name", "exit_status"),
    [("unit", 1), ("simulation-rest", 1), ("seeds", 1), ("docs", 1), ("test-cluster", 2), ("test-cluster", 3)],
)
def test_nothing_runs_again_where_no_chance_is_or_pytest_did_not_reach_its_end(name: str, exit_status: int) -> None:
    runs = Runs(PASSES)
    red = stage(name, RAN, failed("test_b"), exit_status=exit_status)
    assert rerun_failed([red], runs) == ([red], [])
    assert runs.tests == []


def test_no_test_runs_again_if_another_stage_is_red_in_any_case() -> None:
    runs = Runs(PASSES)
    rerun_failed([cluster("test_b"), stage("seeds", failed("test_c"), exit_status=1)], runs)
    assert runs.tests == []


MAKE = r"""#!/bin/sh
[ "$2" = test-cluster ] || exit 3
echo "runs $TESTS"
echo '<testsuites><testsuite><testcase name="test_b"/></testsuite></testsuites>' > "build/$REPORT.xml"
echo '{"exit_status": 0, "left_out": {}}' > "build/$REPORT.outcome.json"
"""


def test_a_test_runs_alone_and_the_first_report_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script(tmp_path, MAKE)
    first = cluster("test_b[a b]")
    assert first.report
    written = Path("build/test-cluster.xml").read_text()
    again = run_one_test("test-cluster", first.report.failed[0], "rerun-1")
    assert again.complaint == ""
    assert "runs tests/cluster/test_a.py::test_b[a b]" in capfd.readouterr().out
    assert Path("build/test-cluster.xml").read_text() == written


def test_the_record_has_both_results() -> None:
    write_record([Rerun("walks", "test_b", "assert 1 == 2", None, "rerun-1")])
    assert json.loads(Path("build/reruns.json").read_text()) == [
        {"suite": "walks", "test": "test_b", "first": "assert 1 == 2", "second": None, "report": "rerun-1"}
    ]
