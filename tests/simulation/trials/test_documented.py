"""docs/simulation.md lists every invariant, in the words of the code."""

from pathlib import Path

import pytest

from recovery.sim.trials.checkers import describe

PAGE = " ".join((Path(__file__).parents[3] / "docs/simulation.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize(("name", "rule"), describe().items())
def test_every_invariant_is_in_the_docs(name: str, rule: str) -> None:
    assert f"- **{name}**: {rule} " in PAGE
