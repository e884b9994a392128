"""Walks of pods on a modelled node: every drawn pod comes to rest, and a bug in the model shows as a difference."""

import pytest

from recovery.sim.kubelets import pod_run
from tests.real_nodes.walks.comparison import report
from tests.real_nodes.walks.draw import draw
from tests.real_nodes.walks.named import PODS
from tests.real_nodes.walks.worlds import walk_in_memory


@pytest.mark.parametrize("seed", range(12))
def test_every_drawn_pod_comes_to_rest(seed: int) -> None:
    for history in walk_in_memory(draw(seed)):
        assert not [state for state in history.stood if state.startswith("does not come to rest")]


def test_a_planted_bug_is_a_difference_of_the_pod_that_it_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    right = walk_in_memory(PODS)
    assert report("named", PODS, right, walk_in_memory(PODS)) == ""
    monkeypatch.setattr(pod_run, "LEAST_WINDOW_SECONDS", 0.5)
    told = report("named", PODS, right, walk_in_memory(PODS))
    differing = [plan.name for plan in PODS if f"pod {plan.name}:" in told]
    assert differing == ["a-sidecar-has-time-of-its-own-when-the-grace-is-over"]
