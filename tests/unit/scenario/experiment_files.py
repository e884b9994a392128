"""Experiment files for tests, and the mistakes reported about them."""

import pytest

from recovery.scenario.experiment import Experiment, read_experiment
from recovery.scenario.scenario_text import BadScenarioError

KILL = "{kind: PodChaos, action: pod-kill, mode: one}"
HEAD = """
name: lose-a-rank
target: {job: research/llm}
"""


def experiment(*chaos: str, more: str = "") -> Experiment:
    return read_experiment(_text(*chaos, more=more))


def refused(text: str) -> list[tuple[int, str]]:
    """The problems of a file, each with its line."""
    with pytest.raises(BadScenarioError) as raised:
        read_experiment(text)
    return list(zip(raised.value.lines, raised.value.problems, strict=True))


def wrong(*chaos: str, more: str = "") -> list[str]:
    return [problem for _, problem in refused(_text(*chaos, more=more))]


def _text(*chaos: str, more: str) -> str:
    return f"{HEAD}{more}\nchaos:\n" + "\n".join(f"- {each}" for each in chaos or (KILL,))
