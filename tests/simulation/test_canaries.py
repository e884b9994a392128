"""The simulation finds bugs that were planted in the controller, each by the invariant that is named for it.

A seed here is the ordinary trial of that seed. Which of the two hundred are tried first depends on what was drawn for
them (`Canary.likely`), so that the suite is quick; on what came of them nothing depends.
"""

from collections.abc import Callable, Sequence
from functools import cache

import pytest

from recovery.sim.trials.draw import draw_plan
from recovery.sim.trials.trial import Outcome, run_trial
from tests.simulation.canaries import CANARIES, looks
from tests.simulation.canaries.canary import Canary

SEEDS = range(200)

each_canary = pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.name)


def in_order(canary: Canary) -> Sequence[int]:
    """Seeds whose plans have what the bug needs, then the others."""
    return sorted(SEEDS, key=lambda seed: not canary.likely(draw_plan(seed)))


def tried(plant: Callable[[pytest.MonkeyPatch], None], seed: int) -> Outcome:
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(monkeypatch)
        return run_trial(draw_plan(seed))


@cache
def found(canary: Canary) -> tuple[int, int, str] | None:
    """The seed that finds the bug, how many trials that took, and what is said of it. None: no seed does."""
    for trials, seed in enumerate(in_order(canary), start=1):
        for violation in tried(canary.plant, seed).violations:
            if violation.invariant == canary.invariant:
                return seed, trials, violation.sentence
    return None


@each_canary
def test_the_seeds_find_the_planted_bug(canary: Canary, record_property: Callable[[str, object], None]) -> None:
    by = found(canary)
    assert by is not None, f"{canary.invariant} holds in all of {len(SEEDS)} trials in spite of the bug"
    seed, trials, sentence = by
    record_property("seed", seed)
    record_property("trials", trials)
    print(f"{canary.name}: {canary.invariant} at seed {seed}, trial {trials}: {sentence}")


@each_canary
def test_without_the_bug_that_seed_breaks_nothing(canary: Canary) -> None:
    by = found(canary)
    assert by is not None, "the other test tells"
    outcome = run_trial(draw_plan(by[0]))
    assert not outcome.violations, f"seed {by[0]}: {outcome.violations[0]}"


def test_live_reads_make_up_for_a_cache_that_forgets() -> None:
    """Of the two defences that the canary takes away one is enough."""
    canary = next(each for each in CANARIES if each.plant is looks.cache_is_truth)
    by = found(canary)
    assert by is not None, "the other test tells"
    assert not tried(looks.lists_anew, by[0]).violations
