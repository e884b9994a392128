"""Runs a test that failed on real components once more, alone, and keeps both results.

A rerun that passes is a defect of the test to correct, not a success: its first failure is printed and kept. Suites
without real components have no chance in them, so none of their tests runs again. Neither does a suite whose pytest
did not end as "tests failed": an interruption or a broken fixture module says nothing about single tests.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from tests.stages.reports import REPORTS, Case, complaint
from tests.stages.suites import ON_REAL_COMPONENTS
from tests.stages.targets import OneTest, Stage, run_stage

MOST_IN_A_SUITE = 3
MOST_IN_ALL = 5
RECORD = REPORTS / "reruns.json"


@dataclass(frozen=True)
class Rerun:
    """A test that ran twice. `second` None: it passed. Otherwise it says what the second run reports."""

    suite: str
    test: str
    first: str
    second: str | None
    report: str
    """The name of the second run's report and log. The first run's have the name of the suite."""

    def __str__(self) -> str:
        return f"rerun: {self.test}: {self.first}; second {self.second or 'passed'}"


def may_rerun(stage: Stage) -> bool:
    """Whether nothing but some tests on real components failed, and few enough of them."""
    report = stage.report
    return (
        bool(stage.complaint)
        and stage.name in ON_REAL_COMPONENTS
        and report is not None
        and report.only_tests_failed
        and len(report.failed) <= MOST_IN_A_SUITE
    )


def rerun_failed(stages: list[Stage], run: Callable[[str, Case, str], Stage]) -> tuple[list[Stage], list[Rerun]]:
    """The stages after their failed tests ran once more, and what these reruns showed. `run` runs one test of a suite.

    A stage that is red for another reason makes the run red whatever a rerun shows, so then none takes place.
    """
    red = [stage for stage in stages if stage.complaint]
    tests = [(stage.name, case) for stage in red if may_rerun(stage) and stage.report for case in stage.report.failed]
    if not all(may_rerun(stage) for stage in red) or len(tests) > MOST_IN_ALL:
        return stages, []
    reruns = []
    for number, (suite, case) in enumerate(tests, start=1):
        name = f"rerun-{number}"
        again = run(suite, case, name)
        reruns.append(Rerun(suite, case.node_id, case.failure or "", _second(again), name))
    return [_after(stage, reruns) for stage in stages], reruns


def _second(again: Stage) -> str | None:
    """What the second run reports. None: the test passed."""
    if again.report and again.report.failed:
        return f"failed: {again.report.failed[0].failure}"
    return again.complaint or None


def _after(stage: Stage, reruns: list[Rerun]) -> Stage:
    """The stage is green if all its failed tests have passed the second time and nothing else is wrong with it."""
    own = [each for each in reruns if each.suite == stage.name]
    if not own or stage.report is None or any(each.second is not None for each in own):
        return stage
    passed = replace(stage.report, cases=[replace(case, failure=None) for case in stage.report.cases])
    return replace(stage, report=passed, complaint=complaint(stage.name, passed))


def run_one_test(suite: str, case: Case, name: str) -> Stage:
    """Run one test of that suite, and print its output."""
    log = REPORTS / f"{name}.log"
    stage = run_stage(suite, log, only=OneTest(case.node_id, name))
    print(log.read_text(errors="replace"), end="", flush=True)
    return stage


def write_record(reruns: list[Rerun]) -> None:
    REPORTS.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps([asdict(each) for each in reruns], indent=2) + "\n")
