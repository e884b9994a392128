"""Trials in which every job is one of Kueue's, a health agent holds a node, and another client deletes failed pods.

`python -m tests.soak.neighbours NUMBER` shows one: what happened, and what broke.
"""

import sys

from recovery.sim.trials.neighbours import with_all_neighbours
from recovery.sim.trials.plan_generator import draw_plan
from recovery.sim.trials.summary import report
from recovery.sim.trials.timeline import timeline
from recovery.sim.trials.trial import TrialOutcome, run_trial
from tests.soak.attempt import Attempt, Campaign
from tests.soak.seeds import attempt_of, describe


def trial(seed: int) -> TrialOutcome:
    return run_trial(with_all_neighbours(draw_plan(seed)))


def attempt(seed: int) -> Attempt:
    return attempt_of(report(trial(seed)))


NEIGHBOURS = Campaign(
    noun="seed",
    attempt=attempt,
    describe=describe,
    explain=describe,
    command=".venv/bin/python -m tests.soak.neighbours {number}",
    attempts=1000,
    limit_seconds=600,
)


def show(seed: int) -> None:
    outcome = trial(seed)
    print(*timeline(outcome.evidence), sep="\n")
    print(*(f"{each.invariant}: {each.sentence}" for each in outcome.violations), sep="\n")


if __name__ == "__main__":
    show(int(sys.argv[1]))
