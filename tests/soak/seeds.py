"""Trials of the controller in the modelled cluster, as `make seeds` runs them."""

from recovery.sim.trials.summary import Report, try_seed
from tests.soak.attempt import Attempt, Broken, Campaign


def attempt(seed: int) -> Attempt:
    return attempt_of(try_seed(seed))


def attempt_of(report: Report) -> Attempt:
    return Attempt(
        cpu_seconds=report.cpu_seconds,
        broken=tuple(Broken(name, _first(report, name)) for name in report.invariants),
        figures={
            "simulated hours": report.simulated_seconds / 3600,
            "requests": report.requests,
            "incidents": report.incidents,
            "restarts": report.restarts,
        },
    )


def _first(report: Report, invariant: str) -> str:
    named = f"{invariant} "
    return next(each.removeprefix(named) for each in report.violations if each.startswith(named))


def describe(seed: int) -> str:
    """Nothing: the command of a seed prints its jobs and faults, and shrinks them, which takes up to 200 trials."""
    return ""


SEEDS = Campaign(
    noun="seed",
    attempt=attempt,
    describe=describe,
    explain=describe,
    command=".venv/bin/recovery simulate --seed {number} --shrink",
    attempts=20_000,
    limit_seconds=600,
)
