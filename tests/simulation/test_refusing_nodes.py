"""A node refuses pods for ten minutes, as after a reboot. A group that can avoid it trains again within a minute."""

from datetime import timedelta
from itertools import pairwise

import pytest

from recovery.core.model.ledger import Phase
from recovery.sim.trials.ledger_history import ledger_writes
from recovery.sim.trials.scenario import read_scenario
from recovery.sim.trials.trial import TrialOutcome, run_trial

_SCENARIO = """
name: rejected-at-admission
duration: 40m
healing: 30m
cluster: {{spares: 2, birthSettings: {installed}}}
jobs:
- {{name: llm, pods: 8, runtime: {runtime}, policy: {{mode: Enforce, budget: {{limit: 3}}}}}}
chaos:
- kind: PhysicalMachineChaos
  at: 10m
  action: black-hole
  duration: 10m
  selector: {{job: llm, indexes: [3]}}
  mode: one
"""


def trial(runtime: str, *, installed: bool) -> TrialOutcome:
    file = _SCENARIO.format(runtime=runtime, installed="true" if installed else "false")
    outcome = run_trial(read_scenario(file).plan)
    assert not outcome.violations, str(outcome.violations[0])
    return outcome


def stopped_seconds(outcome: TrialOutcome) -> float:
    """How long the training stood still after it first met."""
    rounds = outcome.evidence.rounds("default/llm")
    return sum(
        (after.formed_at - before.ended_at).total_seconds()
        for before, after in pairwise(rounds)
        if before.ended_at is not None
    )


@pytest.mark.parametrize("runtime", ["shipped", "prepared"])
def test_a_group_that_can_avoid_the_node_is_back_within_a_minute(runtime: str) -> None:
    outcome = trial(runtime, installed=True)
    assert len(outcome.evidence.rounds("default/llm")) == 2
    assert stopped_seconds(outcome) < 60
    avoided = {each for write in ledger_writes(outcome.evidence) for each in write.after.avoided}
    assert [each.until - each.since for each in avoided] == [timedelta(minutes=15)]
    assert not list(ledger_writes(outcome.evidence))[-1].after.avoided


def test_without_the_component_the_group_trains_once_the_node_accepts_pods() -> None:
    outcome = trial("prepared", installed=False)
    assert all(write.after.phase is not Phase.HELD for write in ledger_writes(outcome.evidence))
    assert outcome.evidence.rounds("default/llm")[-1].ended_at is None
