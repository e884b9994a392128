"""Scenario files for tests: the faults that their chaos expands to, and the mistakes reported about them."""

import math

import pytest

from recovery.scenario.scenario_text import BadScenarioError
from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.scenario import read_scenario

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


def refused(text: str, *, free_mib: float = math.inf) -> BadScenarioError:
    with pytest.raises(BadScenarioError) as raised:
        read_scenario(text, free_mib=free_mib)
    return raised.value


def wrong(text: str, *, free_mib: float = math.inf) -> list[str]:
    return list(refused(text, free_mib=free_mib).problems)


def wrong_chaos(chaos: str) -> list[str]:
    return wrong(f"{HEAD}- {chaos}")
