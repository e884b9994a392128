"""What is printed at the end of a run: the slowest tests, what was left out and skipped, and a table of the stages."""

from collections.abc import Sequence

from tests.stages.reports import Case
from tests.stages.suites import MAY_BE_SKIPPED
from tests.stages.targets import Stage

SLOWEST_COUNT = 20
SLOW_SECONDS = 1.0
"""Tests faster than this are never listed among the slowest."""


def slowest(cases: Sequence[Case]) -> list[str]:
    """The slowest tests, each with its seconds."""
    slow = sorted((case for case in cases if case.seconds >= SLOW_SECONDS), key=lambda case: -case.seconds)
    return [f"{case.seconds:>9.1f} s  {case.node_id}" for case in slow[:SLOWEST_COUNT]]


def table(stages: list[Stage], total_seconds: float) -> str:
    """Seconds, CPU seconds and tests of each stage and of all. Stages side by side take less than their sum."""
    rows = [(stage.name, stage.seconds, stage.cpu_seconds, _ran(stage)) for stage in stages]
    cpu_seconds, tests_run = sum(stage.cpu_seconds for stage in stages), sum(_ran(stage) or 0 for stage in stages)
    rows.append((f"total: {total_seconds / 60:.1f} min", total_seconds, cpu_seconds, tests_run))
    lines = [f"{'stage':<22}{'seconds':>9}{'CPU-s':>9}{'tests':>7}"]
    lines += [
        f"{name:<22}{seconds:>9.0f}{cpu:>9.0f}{'-' if tests is None else tests:>7}"
        for name, seconds, cpu, tests in rows
    ]
    return "\n".join(lines)


def left_out(stages: list[Stage]) -> list[str]:
    """The tests that a marker left out, by file, and the tests that were skipped with what they need."""
    lines = []
    for stage in stages:
        if stage.report is None:
            continue
        if files := stage.report.left_out:
            lines.append(f"{stage.name} leaves out {sum(files.values())} tests, which `make test-all` runs:")
            lines += [f"{count:>7}  {file}" for file, count in files.items()]
        for case in stage.report.skipped:
            why = next((needs for each, needs in MAY_BE_SKIPPED.items() if case.node_id.startswith(each)), "")
            lines.append(f"{stage.name}: SKIPPED on this machine: {case.node_id} ({why}); CI runs it")
    return lines


def counts(stages: list[Stage]) -> str:
    """The line by which other programs recognize how many tests ran."""
    reports = [stage.report for stage in stages if stage.report]
    failed = sum(len(report.failed) for report in reports)
    passed = sum(report.ran for report in reports) - failed
    skipped = sum(len(report.skipped) for report in reports)
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")


def _ran(stage: Stage) -> int | None:
    return None if stage.report is None else stage.report.ran
