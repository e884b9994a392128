"""One disruption, one actor: trials in which Kueue, a health agent and a client that deletes failed pods all act."""

from collections import Counter
from collections.abc import Mapping
from functools import cache

import pytest

from recovery.sim.trials.neighbours import with_all_neighbours
from recovery.sim.trials.plan_generator import draw_plan
from recovery.sim.trials.trial import run_trial
from recovery.sim.trials.trial_evidence import Violation

SEEDS = range(2000, 2012)
"""`make soak ARGS=neighbours` runs others."""
MUST_HAPPEN = (
    "kueue:preempted",
    "kueue:timed-out",
    "kueue:requeued",
    "kueue:deactivated",
    "kueue:overlapping",
    "cleaner:deleted",
    "fault:node-held",
)


@cache
def trial(seed: int) -> tuple[tuple[Violation, ...], Mapping[str, int]]:
    """The violations, and what was reached. The whole outcome would keep all objects of the trial."""
    outcome = run_trial(with_all_neighbours(draw_plan(seed)))
    return outcome.violations, outcome.coverage


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_no_invariant_breaks(seed: int) -> None:
    assert trial(seed)[0] == ()


@pytest.mark.long
def test_every_neighbour_acts() -> None:
    counts = Counter[str]()
    for seed in SEEDS:
        counts.update(trial(seed)[1])
    assert [each for each in MUST_HAPPEN if not counts[each]] == []


@pytest.mark.parametrize("seed", range(100))
def test_a_plan_with_all_neighbours_has_them_all(seed: int) -> None:
    plan = with_all_neighbours(draw_plan(seed))
    assert all(job.under_kueue for job in plan.jobs)
    assert plan.cleans_after_seconds is not None
    assert plan.cleans_after_seconds <= 0.03
    assert "node-held" in {fault.key.kind for fault in plan.faults}
    assert [fault.key.number for fault in plan.faults] == list(range(len(plan.faults)))
