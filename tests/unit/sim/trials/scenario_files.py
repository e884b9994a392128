"""Scenario files of tests: what their chaos comes to, and what is said of them."""

import pytest

from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.scenario import read_scenario
from recovery.sim.trials.strict_input import BadInputError

HEAD = """
name: test
duration: 30m
jobs:
- {name: llm, namespace: team-a, pods: 4, policy: {mode: Enforce}}
- {name: eval, namespace: team-b, pods: 2}
- {name: queued, namespace: team-b, pods: 2, sidecars: [shipper, broken], admission: by-kueue}
chaos:
"""


def faults(*chaos: str) -> tuple[TrialFault, ...]:
    return read_scenario(HEAD + "\n".join(f"- {each}" for each in chaos)).plan.faults


def wrong(text: str) -> list[str]:
    with pytest.raises(BadInputError) as refused:
        read_scenario(text)
    return list(refused.value.problems)


def wrong_chaos(chaos: str) -> list[str]:
    return wrong(f"{HEAD}- {chaos}")
