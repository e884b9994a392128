"""Elastic groups through drawn trials: nodes die, return and flap, and sizes follow as the policy allows.

`ELASTIC_SEEDS=1000` takes more of them; the first ones are the same.
"""

import os
from contextlib import closing

import pytest

from recovery.sim.trials.parallel_trials import in_processes
from recovery.sim.trials.trial import run_trial
from tests.simulation.elastic.checkers import violations
from tests.simulation.elastic.faults_planted import CANARIES, ElasticCanary
from tests.simulation.elastic.plans import draw_elastic_plan

SEEDS = int(os.environ.get("ELASTIC_SEEDS", "24"))


def broken(seed: int) -> list[str]:
    """What the trial of that seed breaks, in words."""
    outcome = run_trial(draw_elastic_plan(seed))
    return [f"seed {seed}: {each.invariant}: {each.sentence}" for each in violations(outcome)]


def test_no_elastic_trial_breaks_an_invariant() -> None:
    with closing(in_processes(broken, range(SEEDS), os.cpu_count() or 1)) as tried:
        found = [words for _, each in tried for words in each[:2]]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.plant.__name__)
def test_its_seed_finds_the_planted_bug(canary: ElasticCanary, monkeypatch: pytest.MonkeyPatch) -> None:
    canary.plant(monkeypatch)
    found = {each.invariant for each in violations(run_trial(draw_elastic_plan(canary.seed)))}
    assert canary.invariant in found, f"seed {canary.seed} breaks {found or 'nothing'}"
