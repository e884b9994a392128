"""Walks find bugs planted in the model. The real histories are recorded, so no control plane is needed."""

import pytest

from tests.simulation.walks.planted import CANARIES, Canary
from tests.walks.recording import FOLDER, load
from tests.walks.worlds import compare_with_models

RECORDED = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", RECORDED)
def test_without_a_bug_the_model_walks_as_was_recorded(name: str) -> None:
    recorded = load(name)
    _, comparison = compare_with_models(recorded.walk, recorded.real)
    assert comparison.differences == ()
    assert comparison.agreed > comparison.racy


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.bug)
def test_a_planted_bug_is_found(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = load(canary.walk)
    canary.plant(monkeypatch)
    _, comparison = compare_with_models(recorded.walk, recorded.real)
    assert comparison.differences
    print(f"{canary.bug}: {canary.walk}, step {comparison.differences[0].section}")


def test_every_recorded_walk_finds_a_bug() -> None:
    assert {canary.walk for canary in CANARIES} == set(RECORDED)
