"""A suite whose tests did not run must not count as passed."""

from pathlib import Path

import pytest

from tests.stages.reports import complaint, read_report, report_path
from tests.stages.suites import MAY_BE_SKIPPED
from tests.unit.stages.report_files import RAN, case, failed, write

SKIPPED = '<skipped message="no"/>'


@pytest.mark.parametrize(
    ("cases", "ran", "why"),
    [
        ((RAN, RAN), 2, ""),
        ((), 0, "unit: not one test ran"),
        (
            (RAN, case("test_not", SKIPPED)),
            1,
            "unit: skipped, which counts as failed here: tests/cluster/test_a.py::test_not",
        ),
        ((RAN, failed("test_b")), 2, "unit: 1 failed: tests/cluster/test_a.py::test_b"),
    ],
    ids=["all ran", "none", "one skipped", "one failed"],
)
def test_a_suite_passes_only_if_all_of_it_ran(cases: tuple[str, ...], ran: int, why: str) -> None:
    write("unit", *cases)
    report = read_report("unit")
    assert (report.ran, complaint("unit", report)) == (ran, why)


@pytest.mark.parametrize("beginning", MAY_BE_SKIPPED)
def test_what_a_machine_cannot_run_may_be_skipped_anywhere_but_in_ci(
    beginning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, _, name = beginning.partition("::")
    file = file if name else f"{file}test_a.py"
    dotted = file.removesuffix(".py").replace("/", ".")
    write("unit", RAN, f'<testcase file="{file}" classname="{dotted}" name="{name or "test_b"}">{SKIPPED}</testcase>')
    assert complaint("unit", read_report("unit")) == ""
    monkeypatch.setenv("CI", "true")
    assert complaint("unit", read_report("unit")).startswith("unit: skipped, which counts as failed here")


@pytest.mark.parametrize("text", [None, "<testsuites><testsu"], ids=["no report", "half a report"])
def test_without_a_report_nothing_ran(text: str | None) -> None:
    Path("build").mkdir()
    if text is not None:
        report_path("unit").write_text(text)
    assert complaint("unit", read_report("unit")).startswith("unit: no report of what ran")


def test_a_report_without_pytest_s_exit_status_is_no_report() -> None:
    write("unit", RAN)
    Path("build/unit.outcome.json").unlink()
    assert complaint("unit", read_report("unit")).startswith("unit: no report of what ran")


def test_a_test_in_a_class_has_the_node_id_that_pytest_takes() -> None:
    write("unit", '<testcase file="tests/a/test_b.py" classname="tests.a.test_b.TestC" name="test_d[e f]"/>')
    assert [each.node_id for each in read_report("unit").cases] == ["tests/a/test_b.py::TestC::test_d[e f]"]


def test_a_test_that_fails_and_cannot_be_torn_down_failed_once() -> None:
    write("unit", failed("test_a", "assert 1 == 2"), case("test_a", '<error message="teardown"/>'), exit_status=1)
    assert [each.failure for each in read_report("unit").failed] == ["assert 1 == 2"]
