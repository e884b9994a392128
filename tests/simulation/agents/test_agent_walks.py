"""Agents and the controller under drawn faults: each restart in place once, permitted, and in the ledger."""

import pytest

from recovery.agent._trainjob_recovery.barrier import Barrier
from recovery.core.decision import in_place, in_place_watch, resuming
from recovery.core.diagnosis import agent_view
from recovery.core.model.agent_facts import AgentFacts
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.plan.context import ReconcileContext
from tests.simulation.agents.walk import Walk

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_restart_in_place_is_permitted_and_booked_once(seed: int) -> None:
    walk = Walk(seed)
    walk.run()
    assert list(walk.violations()) == [], walk.faults


def test_the_walks_restart_alone_and_by_answer_and_recreate_groups() -> None:
    began, recreated = set(), 0
    for seed in range(12):
        walk = Walk(seed)
        walk.run()
        began |= {start.by for start in walk.cluster.starts}
        recreated += len({each.uid for each in walk.cluster.controller.triggers})
    assert began == {"Alone", "Answer"}
    assert recreated > 0


def violated(words: str = "", seeds: range = SEEDS) -> bool:
    """Whether a walk breaks what must be true, with these words in what it says."""
    for seed in seeds:
        walk = Walk(seed)
        try:
            walk.run()
        except AssertionError as error:  # an invariant of the ledger has stopped the bug
            return words in str(error)
        if any(words in each for each in walk.violations()):
            return True
    return False


def test_evidence_of_an_earlier_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next barrier counts its epochs from 1 again, so a key needs its id."""
    monkeypatch.setattr(AgentFacts, "key_of", lambda self, epoch: f"{epoch}")
    assert violated()


def test_a_second_restart_by_the_fallback_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """No report ends the wait for the agents, so the group is recreated although all its ranks are back."""

    def starting(context: ReconcileContext, ledger: Ledger, found: Phase) -> Phase:
        return Phase.STARTING if in_place.under_way(ledger) is not None else found

    monkeypatch.setattr(in_place_watch, "position", starting)
    assert violated("all ranks had run")


def test_a_restart_alone_without_permission_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Barrier, "_permitted", lambda self, now: True)
    monkeypatch.setattr(Barrier, "_alone_left", lambda self: 1)
    assert violated()


def test_a_recovery_before_all_ranks_have_joined_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_view, "joined", lambda agent: agent.epoch_since)
    monkeypatch.setattr(resuming, "joined", lambda agent: agent.epoch_since)
    assert violated("no ranks had joined")


def test_the_walks_have_programs_that_show_nothing_joins_or_steps() -> None:
    shown = {(each.joins, each.steps, each.absolute) for each in (Walk(seed).cluster.shows for seed in SEEDS)}
    assert {(False, False), (True, False), (True, True)} == {each[:2] for each in shown}
    assert {True, False} == {each[2] for each in shown if each[1]}
