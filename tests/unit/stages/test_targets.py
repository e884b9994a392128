"""Targets run alone, side by side and in the background, and each is judged by its own report."""

import sys
from pathlib import Path

import pytest

from tests.stages.__main__ import main
from tests.stages.targets import run_side_by_side
from tests.unit.stages.report_files import script


def test_the_cpu_time_is_that_of_the_target_and_what_it_started(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    script(tmp_path, f"#!/bin/sh\n{sys.executable} -c '{busy}'\nsleep 0.3\n")
    (stage,) = run_side_by_side([["lint"]])
    assert 0.3 <= stage.cpu_seconds <= stage.seconds - 0.3


MAKE = """#!/bin/sh
echo "begin $2"
touch "$2.began"
[ "$2" = test-image ] && [ -e build/contract.xml ] && echo "contract has ended"
for _ in $(seq 100); do [ -e contract.began ] && [ -e walks.began ] && break; sleep 0.1; done
[ -e contract.began ] && [ -e walks.began ] || exit 1
echo '<testsuites><testsuite><testcase name="a"/></testsuite></testsuites>' > "build/$2.xml"
echo '{"exit_status": 0, "left_out": {}}' > "build/$2.outcome.json"
echo "end $2"
[ "$2" != walks ]
"""
"""Ends once `contract` and `walks` have begun; `walks` fails."""


def test_targets_and_chains_side_by_side_are_judged_and_printed_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(tmp_path, MAKE)
    stages = run_side_by_side([["contract", "test-image"], ["walks"]])
    assert [(stage.name, stage.report and stage.report.ran, stage.complaint) for stage in stages] == [
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
echo '{"exit_status": 0, "left_out": {}}' > "build/$2.outcome.json"
"""
"""`seeds` runs until `walks` has ended, or ends at once if there is a file `soon`. `walks` runs until `seeds` began,
and then a second longer than `seeds` if that ends soon. The file `verdict` says how `walks` ends."""


@pytest.mark.parametrize(("verdict", "exit_code"), [("ended", 0), ("failed", 1)])
def test_a_target_in_the_background_runs_beside_the_others_and_not_longer_than_one_that_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], verdict: str, exit_code: int
) -> None:
    script(tmp_path, BUSY)
    (tmp_path / "verdict").write_text(verdict)
    assert main(["~seeds", "walks"]) == exit_code
    printed = capfd.readouterr().out
    assert ("\nseeds  " in printed) == (exit_code == 0), "what was interrupted has no result"
    assert "interrupted" in (tmp_path / "build" / "seeds.log").read_text() or exit_code == 0
    assert (tmp_path / "seeds.nice").read_text() == "19\n"


def test_a_target_in_the_background_that_has_ended_has_a_result_though_another_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script(tmp_path, BUSY)
    (tmp_path / "verdict").write_text("failed")
    (tmp_path / "soon").touch()
    assert main(["~seeds", "walks"]) == 1
    assert "\nseeds  " in capfd.readouterr().out


ONE_FLAKE = r"""#!/bin/sh
[ "$2" = unit ] && touch "unit.ran"
echo '<testsuites><testsuite>' > "build/${REPORT:-$2}.xml"
if [ "$2" = walks ] && [ -z "$TESTS" ]; then
  echo '<testcase file="tests/walks/test_a.py" classname="tests.walks.test_a" name="test_b">' >> "build/walks.xml"
  echo '<failure message="too late"/></testcase>' >> "build/walks.xml"
  status=1
else
  echo '<testcase name="test_b"/>' >> "build/${REPORT:-$2}.xml"
  status=0
fi
echo '</testsuite></testsuites>' >> "build/${REPORT:-$2}.xml"
echo "{\"exit_status\": $status, \"left_out\": {}}" > "build/${REPORT:-$2}.outcome.json"
exit $status
"""
"""A test of `walks` fails, unless it runs alone."""


@pytest.mark.parametrize(
    ("option", "exit_code", "goes_on", "reported"),
    [
        ((), 1, False, False),
        (("--keep-going",), 1, True, False),
        (("--rerun",), 0, True, True),
    ],
    ids=["ends at the first red stage", "goes on and stays red", "goes on, and reruns"],
)
def test_what_follows_a_stage_with_a_failed_test(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    option: tuple[str, ...],
    exit_code: int,
    goes_on: bool,
    reported: bool,
) -> None:
    script(tmp_path, ONE_FLAKE)
    assert main([*option, "walks", "unit"]) == exit_code
    assert (tmp_path / "unit.ran").exists() == goes_on
    printed = capfd.readouterr().out
    rerun = "rerun: tests/walks/test_a.py::test_b: too late; second passed\nreruns: 1 of at most 5\n"
    assert (rerun in printed) == reported
