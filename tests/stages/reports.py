"""What ran, failed, was skipped and was left out, from the two files that a suite leaves.

`build/NAME.xml` is pytest's JUnit report. `build/NAME.outcome.json` has what that report cannot say; `tests/outcome.py`
writes it.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.outcome import outcome_path
from tests.stages.suites import MAY_BE_SKIPPED

REPORTS = Path("build")
TESTS_FAILED = 1
"""pytest's exit status when all tests ran and some failed. Others mean an interruption or an error of its own."""
NAMED_AT_MOST = 20


@dataclass(frozen=True)
class Case:
    """One test that pytest reported."""

    node_id: str
    seconds: float
    """Set-up, the test itself and tear-down."""
    failure: str | None
    """The first line of its message. None: it did not fail."""
    skipped: bool


@dataclass(frozen=True)
class Report:
    """`unreadable` None: the report is complete. Otherwise why it is not, and nothing else is known."""

    cases: list[Case] = field(default_factory=list)
    exit_status: int | None = None
    """pytest's. None: it did not reach its end."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many tests of each file a marker deselected."""
    unreadable: str | None = None

    @property
    def failed(self) -> list[Case]:
        """Each test once: one that fails and then cannot be torn down has two entries in the report."""
        return list({case.node_id: case for case in reversed(self.cases) if case.failure is not None}.values())[::-1]

    @property
    def skipped(self) -> list[Case]:
        return [case for case in self.cases if case.skipped]

    @property
    def ran(self) -> int:
        return len(self.cases) - len(self.skipped)

    @property
    def only_tests_failed(self) -> bool:
        """pytest ran all tests and reports nothing but failed ones."""
        return self.exit_status == TESTS_FAILED and bool(self.failed)


def report_path(name: str) -> Path:
    return REPORTS / f"{name}.xml"


def remove_report(name: str) -> None:
    report_path(name).unlink(missing_ok=True)
    outcome_path(report_path(name)).unlink(missing_ok=True)


def read_report(name: str) -> Report:
    try:
        cases = [_case(element) for element in ElementTree.parse(report_path(name)).iter("testcase")]
        outcome = json.loads(outcome_path(report_path(name)).read_text())
        return Report(cases, outcome["exit_status"], outcome["left_out"])
    except (OSError, ElementTree.ParseError, ValueError) as error:
        return Report(unreadable=str(error))


def _case(element: ElementTree.Element) -> Case:
    failure = element.find("failure")
    failure = element.find("error") if failure is None else failure
    message = None if failure is None else next(iter((failure.get("message") or "").splitlines()), "")
    return Case(_node_id(element), float(element.get("time", "0")), message, element.find("skipped") is not None)


def _node_id(element: ElementTree.Element) -> str:
    """The report has the file, the dotted path of module and classes, and the name."""
    file, dotted, name = element.get("file", ""), element.get("classname", ""), element.get("name", "")
    if not file:
        return f"{dotted}::{name}"
    classes = dotted.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
    return "::".join((file, *filter(None, classes.split(".")), name))


def complaint(name: str, report: Report) -> str:
    """Why these tests do not count as passed. Empty: they do."""
    if report.unreadable is not None:
        return f"{name}: no report of what ran ({report.unreadable})"
    if not report.cases:
        return f"{name}: not one test ran"
    if report.failed:
        names = [case.node_id for case in report.failed]
        rest = f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else ""
        return f"{name}: {len(names)} failed: {', '.join(names[:NAMED_AT_MOST])}{rest}"
    needed = [case.node_id for case in report.skipped if not may_be_skipped(case.node_id)]
    if needed:
        return f"{name}: skipped, which counts as failed here: {', '.join(needed)}"
    return ""


def may_be_skipped(node_id: str) -> bool:
    return not os.environ.get("CI") and any(node_id.startswith(beginning) for beginning in MAY_BE_SKIPPED)
