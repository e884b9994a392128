"""Elastic groups in drawn trials: nodes die, return and flap, and the sizes follow as the policy allows.

`ELASTIC_SEEDS=1000` runs more of them; the first ones stay the same.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

import msgspec
import pytest

from recovery.core.model.ledger import AttemptAction, Ledger
from recovery.ports import RECOVERY_GROUPS
from recovery.sim.trials.coverage import OF_ELASTIC_GROUPS, total
from recovery.sim.trials.parallel_trials import in_processes
from recovery.sim.trials.trial import run_trial
from tests.simulation.elastic.checkers import violations
from tests.simulation.elastic.faults_planted import CANARIES, ElasticCanary
from tests.simulation.elastic.plans import draw_elastic_plan, rivals_plan

SEEDS = int(os.environ.get("ELASTIC_SEEDS", "24"))


class Tried(NamedTuple):
    """The results of a seed's trial."""

    broken: list[str]
    """The violations, in words."""
    coverage: Mapping[str, int]


def tried(seed: int) -> Tried:
    outcome = run_trial(draw_elastic_plan(seed))
    broken = [f"seed {seed}: {each.invariant}: {each.sentence}" for each in violations(outcome)]
    return Tried(broken, outcome.coverage)


@pytest.mark.long
def test_no_elastic_trial_breaks_an_invariant() -> None:
    with closing(in_processes(tried, range(SEEDS), os.cpu_count() or 1)) as trials:
        outcomes = [outcome for _, outcome in trials]
    broken = [words for outcome in outcomes for words in outcome.broken[:2]]
    assert not broken, "\n".join(broken)
    reached = total(outcome.coverage for outcome in outcomes)
    assert [key for key in OF_ELASTIC_GROUPS if key not in reached] == []


def test_of_several_smaller_groups_only_one_restarts_for_a_node_that_comes_back() -> None:
    outcome = run_trial(rivals_plan())
    grown: dict[str, list[float]] = {}
    epochs: dict[str, int] = {}
    evidence = outcome.evidence
    for change, at in zip(evidence.changes, evidence.change_times, strict=True):
        if change.resource != RECOVERY_GROUPS:
            continue
        group, ledger = change.body["spec"]["group"], msgspec.convert(change.body.get("status") or {}, Ledger)
        attempt = ledger.incident.attempt if ledger.incident is not None else None
        if ledger.epoch > epochs.get(group, 0) and attempt is not None and attempt.action is AttemptAction.GROW:
            grown.setdefault(group, []).append((at - evidence.began_at).total_seconds())
        epochs[group] = ledger.epoch
    assert {group: len(times) for group, times in grown.items()} == {"one": 1, "two": 1, "three": 1}
    assert sum(times[0] < 1100 for times in grown.values()) == 1, "the others come back after 1150 s and 1300 s"
    assert list(outcome.violations) == []


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.plant.__name__)
def test_its_seed_finds_the_planted_bug(canary: ElasticCanary, monkeypatch: pytest.MonkeyPatch) -> None:
    canary.plant(monkeypatch)
    found = {each.invariant for each in violations(run_trial(draw_elastic_plan(canary.seed)))}
    assert canary.invariant in found, f"seed {canary.seed} breaks {found or 'nothing'}"
