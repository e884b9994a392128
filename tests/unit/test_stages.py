"""A suite whose tests did not run must not count as passed."""

import os
import sys
from pathlib import Path

import pytest

from tests.stages import Stage, check_report, main, run_side_by_side, slowest, table

RAN = '<testcase classname="tests.unit.test_a" name="test_ran"/>'
SKIPPED = '<testcase classname="tests.unit.test_a" name="test_not"><skipped message="no"/></testcase>'


@pytest.mark.parametrize(
    ("cases", "tests", "complaint"),
    [
        (RAN + RAN, 2, ""),
        ("", 0, "unit: not one test ran"),
        (RAN + SKIPPED, 1, "unit: skipped, which counts as failed here: tests.unit.test_a::test_not"),
    ],
)
def test_a_report_is_believed_only_if_all_of_it_ran(tmp_path: Path, cases: str, tests: int, complaint: str) -> None:
    report = tmp_path / "unit.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert check_report("unit", report) == (tests, complaint)


def test_what_needs_root_may_be_skipped_anywhere_but_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "real-nodes.xml"
    report.write_text(f"<testsuites><testsuite>{SKIPPED}</testsuite></testsuites>")
    monkeypatch.delenv("CI", raising=False)
    assert check_report("real-nodes", report) == (0, "")
    assert "real-nodes: 1 of 1 tests SKIPPED on this machine" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert check_report("real-nodes", report)[1].startswith("real-nodes: skipped, which counts as failed here")


@pytest.mark.parametrize("text", [None, "<testsuites><testsu"], ids=["no report", "half a report"])
def test_without_a_report_nothing_ran(tmp_path: Path, text: str | None) -> None:
    report = tmp_path / "unit.xml"
    if text is not None:
        report.write_text(text)
    tests, complaint = check_report("unit", report)
    assert tests == 0
    assert complaint.startswith("unit: no report of what ran")


def test_the_table_adds_up() -> None:
    lines = table([Stage("lint", 72, 60, None, ""), Stage("unit", 150, 300, 40, "")], 222).splitlines()
    assert lines[1].split() == ["lint", "1.2", "1.0", "-"]
    assert lines[-1].split() == ["total", "3.7", "6.0", "40"]


def test_the_cpu_time_is_that_of_the_target_and_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tmp_path / "make"
    make.write_text(f"#!/bin/sh\n{sys.executable} -c 'import time\nwhile time.process_time() < 0.3: pass'\nsleep 0.3\n")
    make.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (stage,) = run_side_by_side([["lint"]])
    assert 0.3 <= stage.cpu_seconds <= stage.seconds - 0.3


MAKE = """#!/bin/sh
echo "begin $2"
touch "$2.began"
[ "$2" = test-image ] && [ -e build/contract.xml ] && echo "contract has ended"
for _ in $(seq 100); do [ -e contract.began ] && [ -e walks.began ] && break; sleep 0.1; done
[ -e contract.began ] && [ -e walks.began ] || exit 1
echo '<testsuites><testsuite><testcase name="a"/></testsuite></testsuites>' > "build/$2.xml"
echo "end $2"
[ "$2" != walks ]
"""
"""Ends once `contract` and `walks` have begun; `walks` fails."""


def test_targets_and_chains_side_by_side_are_judged_and_printed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = tmp_path / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    stages = run_side_by_side([["contract", "test-image"], ["walks"]])
    assert [(stage.name, stage.tests, stage.complaint) for stage in stages] == [
        ("contract", 1, ""),
        ("test-image", 1, ""),
        ("walks", 1, "walks: failed"),
    ]
    printed = capsys.readouterr().out
    assert "begin contract\nend contract" in printed
    assert "begin test-image\ncontract has ended\nend test-image" in printed, "a chain is run one after the other"
    assert "begin walks\nend walks" in printed


BUSY = """#!/bin/sh
if [ "$2" = seeds ]; then
  trap 'echo interrupted; exit 1' INT
  nice > seeds.nice
  touch seeds.began
  for _ in $(seq 300); do [ -e walks.ended ] && break; [ -e soon ] && break; sleep 0.1; done
  [ -e walks.ended ] || [ -e soon ] || exit 1
else
  for _ in $(seq 300); do [ -e seeds.began ] && break; sleep 0.1; done
  [ -e seeds.began ] || exit 1
  [ -e soon ] && for _ in $(seq 300); do [ -e build/seeds.xml ] && break; sleep 0.1; done && sleep 1
  touch "$2.$(cat verdict)"
  [ "$(cat verdict)" = ended ] || exit 1
fi
echo '<testsuites><testsuite><testcase name="a"/></testsuite></testsuites>' > "build/$2.xml"
"""
"""`seeds` runs until `walks` has ended, or ends at once if there is a file `soon`. `walks` runs until `seeds` began,
and then a second longer than `seeds` if that ends soon. The file `verdict` says how `walks` ends."""


@pytest.mark.parametrize(("verdict", "exit_code"), [("ended", 0), ("failed", 1)])
def test_a_target_in_the_background_runs_beside_the_others_and_not_longer_than_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], verdict: str, exit_code: int
) -> None:
    make = tmp_path / "make"
    make.write_text(BUSY)
    make.chmod(0o755)
    (tmp_path / "verdict").write_text(verdict)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert main(["~seeds", "walks"]) == exit_code
    printed = capfd.readouterr().out
    assert ("\nseeds  " in printed) == (exit_code == 0), "what was interrupted has no result"
    assert "interrupted" in (tmp_path / "build" / "seeds.log").read_text() or exit_code == 0
    assert (tmp_path / "seeds.nice").read_text() == "19\n"


def test_a_target_in_the_background_that_has_ended_has_a_result_though_another_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make = tmp_path / "make"
    make.write_text(BUSY)
    make.chmod(0o755)
    (tmp_path / "verdict").write_text("failed")
    (tmp_path / "soon").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert main(["~seeds", "walks"]) == 1
    assert "\nseeds  " in capfd.readouterr().out


def test_the_slowest_tests_come_first_and_fast_ones_not_at_all(tmp_path: Path) -> None:
    report = tmp_path / "unit.xml"
    times = [0.9, *(float(seconds) for seconds in range(1, 23)), 0.5]
    cases = "".join(f'<testcase classname="tests.a" name="test_{each:g}" time="{each}"/>' for each in times)
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert [line.split()[0] for line in slowest(report)] == [f"{seconds}.0" for seconds in range(22, 2, -1)]
    assert slowest(report)[0].split() == ["22.0", "s", "tests.a::test_22"]
    report.write_text('<testsuites><testsuite><testcase name="test_fast" time="0.9"/></testsuite></testsuites>')
    assert slowest(report) == []
