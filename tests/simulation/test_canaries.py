"""The simulation finds bugs that were planted in the controller, each by the invariant named for it.

Each canary names a seed whose ordinary trial finds it, and only that seed is tried. After a change to what trials draw
or do, that seed may miss the bug. Then the test fails, searches two hundred seeds, starting with those whose plans have
what the bug needs (`Canary.likely`), and reports which seed to use instead.

That the same seed breaks nothing without the bug is what `tests/simulation/test_seeds.py` asserts of its seeds in CI.
"""

from collections.abc import Callable, Sequence

import pytest

from recovery.sim.trials.plan_generator import draw_plan
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.simulation.canaries import CANARIES, watching
from tests.simulation.canaries.canary import Canary
from tests.simulation.test_seeds import SEEDS_OF_CI

SEEDS = range(200)

each_canary = pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.name)


def in_order(canary: Canary) -> Sequence[int]:
    """Seeds whose plans have what the bug needs, then the others."""
    return sorted(SEEDS, key=lambda seed: not canary.likely(draw_plan(seed)))


def tried(plant: Callable[[pytest.MonkeyPatch], None], seed: int) -> TrialOutcome:
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(monkeypatch)
        return run_trial(draw_plan(seed))


def finding(canary: Canary, seed: int) -> str | None:
    """The sentence of the violation by which that seed finds the bug. None: it does not find it."""
    violations = tried(canary.plant, seed).violations
    return next((each.sentence for each in violations if each.invariant == canary.invariant), None)


def advice(canary: Canary) -> str:
    """Which seed finds the bug, if any of them does."""
    seed = next((seed for seed in in_order(canary) if finding(canary, seed) is not None), None)
    if seed is None:
        return f"it holds in all of {len(SEEDS)} trials"
    return f"seed {seed} breaks it: name that one in tests/simulation/canaries"


@each_canary
def test_its_seed_finds_the_planted_bug(canary: Canary) -> None:
    sentence = finding(canary, canary.seed)
    assert sentence is not None, f"{canary.invariant} holds at seed {canary.seed} in spite of the bug; {advice(canary)}"
    print(f"{canary.name}: {canary.invariant} at seed {canary.seed}: {sentence}")


@each_canary
def test_its_seed_is_one_that_ci_tries_without_the_bug(canary: Canary) -> None:
    assert canary.seed < SEEDS_OF_CI, "no test shows that this seed breaks nothing without the bug"


def test_live_reads_make_up_for_a_cache_that_forgets() -> None:
    """One of the two defences that the canary removes is enough."""
    canary = next(each for each in CANARIES if each.plant is watching.cache_is_truth)
    assert not tried(watching.lists_again, canary.seed).violations
