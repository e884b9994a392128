"""Same seed, same trial: byte for byte, in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.sim.trials.plan_generator import draw_plan
from recovery.sim.trials.trial import run_trial

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).parents[2]
TELL = """
import sys
from recovery.sim.trials.plan_generator import draw_plan
from recovery.sim.trials.trial import run_trial
for seed in map(int, sys.argv[1:]):
    outcome = run_trial(draw_plan(seed))
    print(seed, outcome.trace_hash, outcome.requests)
"""
REQUESTS_LEAST = 1000
SEEDS = range(100, 104)
"""Seed 101 is a long trial."""


def told(hash_seed: str) -> list[tuple[int, str, int]]:
    """Seed, fingerprint and number of requests of each trial, run in a separate process."""
    process = subprocess.run(
        [sys.executable, "-c", TELL, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    lines = [line.split() for line in process.stdout.splitlines()]
    return [(int(seed), fingerprint, int(requests)) for seed, fingerprint, requests in lines]


def test_hashes_of_strings_decide_nothing() -> None:
    one, other = told("1"), told("4242")
    assert one == other
    assert len({fingerprint for _, fingerprint, _ in one}) == len(SEEDS), "trials of different seeds are different"
    assert any(requests >= REQUESTS_LEAST for _, _, requests in one), "a long trial is among them"


@pytest.mark.parametrize("seed", range(200, 212))
def test_an_outcome_s_plan_replays_it(seed: int) -> None:
    """The faults that were drawn during the trial, given as a list, affect the same requests."""
    outcome = run_trial(draw_plan(seed))
    again = run_trial(outcome.plan)
    assert again.plan.faults == outcome.plan.faults
    assert again.trace_hash == outcome.trace_hash
