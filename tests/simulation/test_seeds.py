"""The production controller in many trials, each of at least two simulated hours: no invariant may break in any.

`SEEDS=40` (make test) runs fewer of them, which need not meet all that the trials can draw.
"""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from recovery.sim.trials.coverage import by_unit_tests_only, never_hit
from recovery.sim.trials.parallel_trials import in_processes
from recovery.sim.trials.plan_generator import draw_plan
from recovery.sim.trials.summary import summarize, try_seed

SEEDS_OF_CI = 1000
"""CI runs so many. They meet everything that trials can draw."""
SEEDS = int(os.environ.get("SEEDS", SEEDS_OF_CI))
HOURS_LEAST = 2.0
FIGURES = Path("build/seeds.txt")
"""`make` prints this file: pytest shows a test's output only if the test fails."""


def test_no_seed_breaks_an_invariant(record_property: Callable[[str, object], None]) -> None:
    with closing(in_processes(try_seed, range(SEEDS), os.cpu_count() or 1)) as tried:
        reports = dict(tried)
    summary = summarize([reports[seed] for seed in sorted(reports)])
    figures = [f"{name}: {value}" for name, value in summary.rows()]
    counts = [f"{key}: {times}" for key, times in summary.coverage.items()]
    FIGURES.parent.mkdir(exist_ok=True)
    elsewhere = [f"{key}: by {test} only" for key, test in by_unit_tests_only(summary.coverage).items()]
    FIGURES.write_text("\n".join((*figures, "", *counts, "", *elsewhere, "")))
    for line in figures:
        record_property(*line.split(": ", 1))

    broken = [
        f"seed {seed}: {violation}" for seed, report in sorted(reports.items()) for violation in report.violations[:1]
    ]
    assert not broken, "\n".join(
        (f"{len(broken)} of {SEEDS} trials; recovery simulate --seed N --shrink shows one:", *broken[:20])
    )
    assert all(report.simulated_seconds >= HOURS_LEAST * 3600 for report in reports.values())
    missed = never_hit(summary.coverage) if SEEDS >= SEEDS_OF_CI else []
    assert not missed, "nothing of this was met by any trial, so nothing of it is tested"


def test_the_seeds_differ() -> None:
    plans = [draw_plan(seed) for seed in range(50)]
    assert len({plan.jobs[0].runtime for plan in plans}) > 3
    assert len({fault.key.kind for plan in plans for fault in plan.faults}) > 10
