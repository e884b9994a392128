"""Writes the two files that a suite leaves, and builds stages of them."""

import json
from pathlib import Path

from tests.outcome import outcome_path
from tests.stages.reports import complaint, read_report, report_path
from tests.stages.targets import Stage

RAN = '<testcase file="tests/unit/test_a.py" classname="tests.unit.test_a" name="test_ran" time="0.1"/>'


def case(name: str = "test_a", inside: str = "", *, folder: str = "cluster", seconds: float = 0.1) -> str:
    return (
        f'<testcase file="tests/{folder}/test_a.py" classname="tests.{folder}.test_a" name="{name}" time="{seconds}">'
        f"{inside}</testcase>"
    )


def failed(name: str, message: str = "assert 1 == 2") -> str:
    return case(name, f'<failure message="{message}&#10;and more">traceback</failure>')


def write(name: str, *cases: str, exit_status: int = 0, left_out: dict[str, int] | None = None) -> None:
    path = report_path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    outcome_path(path).write_text(json.dumps({"exit_status": exit_status, "left_out": left_out or {}}))


def stage(name: str, *cases: str, exit_status: int = 0, left_out: dict[str, int] | None = None) -> Stage:
    """A finished target that left this report. Its complaint is that of `run_stage`."""
    write(name, *cases, exit_status=exit_status, left_out=left_out)
    report = read_report(name)
    why = complaint(name, report) or (f"{name}: failed" if exit_status else "")
    return Stage(name, 60, 30, report, why)


def script(folder: Path, text: str) -> Path:
    """A program named `make` in that folder."""
    made = folder / "make"
    made.write_text(text)
    made.chmod(0o755)
    return made
