"""The examples of experiments."""

from pathlib import Path

import pytest

from recovery.core.model.drill import DrillAction
from recovery.scenario.experiment import read_experiment

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "chaos").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_right_and_has_the_name_of_its_file(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = read_experiment(text)
    assert (found.name, found.namespace, found.job) == (path.stem, "research", "llm")
    comment = [line for line in text.splitlines() if line.startswith("#")]
    assert text.splitlines()[: len(comment)] == comment
    assert 1 <= len(comment) <= 3


def test_there_are_examples_of_each_kind_of_action() -> None:
    actions = {chaos.action for path in EXAMPLES for chaos in read_experiment(path.read_text(encoding="utf-8")).chaos}
    assert len(EXAMPLES) == 8
    assert actions == set(DrillAction) - {DrillAction.PROCESS_KILL}
