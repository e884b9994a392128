"""The invariant that a baseline restarts no group, with cases that break it and cases that nearly do."""

import pytest

from recovery.core.model.ledger import AttemptAction
from recovery.ports import NODES, PODS
from recovery.sim.trials.checkers.restarts import BaselineUntouched
from recovery.sim.trials.faults import FaultKind
from tests.simulation.trials.checker_case import CONTROLLER, Case, by_hand, opened, replaces, restarted


class TestBaselineUntouched:
    def test_a_loss_from_before_enforce_is_a_baseline(self) -> None:
        case = Case(BaselineUntouched, mode="Observe")
        case.lose_a_pod()
        replaces(case)
        case.now += 60
        case.policy("Enforce")
        case.now += 1
        case.ledger(restarted(opened(1000), 1061))
        assert "restarts it for what is a baseline: pod llm-node-0-1 was deleted by user" in case.found[0]

    def test_unless_no_one_fills_the_rank(self) -> None:
        case = Case(BaselineUntouched, mode="Observe")
        case.lose_a_pod()
        case.now += 60
        case.policy("Enforce")
        case.now += 1
        case.ledger(restarted(opened(1000), 1061))
        assert case.found == []

    @pytest.mark.parametrize(("ready", "violations"), [("Unknown", 0), ("True", 1)])
    def test_or_its_node_does_not_answer(self, ready: str, violations: int) -> None:
        """Its pod shows what the kubelet last reported."""
        case = Case(BaselineUntouched, mode="Observe")
        case.lose_a_pod()
        replaces(case)
        case.put(NODES, "node-1", {"status": {"conditions": [{"type": "Ready", "status": ready}]}}, by="kubelet")
        case.put(PODS, "llm-node-0-1", {"spec": {"nodeName": "node-1"}})
        case.now += 60
        case.policy("Enforce")
        case.now += 1
        case.ledger(restarted(opened(1000), 1061))
        assert len(case.found) == violations

    @pytest.mark.parametrize(("seconds_later", "violations"), [(20, 0), (200, 1)])
    def test_a_reconcile_that_was_held_up_may_have_read_the_policy_before(
        self, seconds_later: int, violations: int
    ) -> None:
        case = Case(BaselineUntouched)
        case.lose_a_pod()
        replaces(case)
        case.now += 60
        case.hits(FaultKind.TIMEOUT, actor=CONTROLLER)
        case.policy("Observe")
        case.now += seconds_later
        case.ledger(restarted(opened(1000), case.now))
        assert len(case.found) == violations

    def test_one_after_it_is_a_failure(self) -> None:
        case = Case(BaselineUntouched, mode="Observe")
        case.policy("Enforce")
        case.now += 1
        case.lose_a_pod()
        case.ledger(restarted(opened(1001), 1001))
        assert case.found == []

    def test_another_edit_of_the_policy_changes_nothing(self) -> None:
        case = Case(BaselineUntouched)
        case.lose_a_pod()
        case.now += 60
        case.policy("Enforce", priority=5)
        case.ledger(restarted(opened(1000), 1060))
        assert case.found == []

    def test_an_old_loss_of_a_group_that_runs_whole_is_a_baseline(self) -> None:
        for minutes, violations in ((14, 0), (20, 1)):
            case = Case(BaselineUntouched)
            case.lose_a_pod()
            case.drop(PODS, "llm-node-0-1", by="kubelet")
            case.pod(1, "job-1")
            case.runs(1)
            case.now += minutes * 60
            case.ledger(restarted(opened(1000), case.now))
            assert len(case.found) == violations

    def test_however_old_it_is_where_a_member_is_missing(self) -> None:
        case = Case(BaselineUntouched)
        case.lose_a_pod()
        case.now += 3600
        case.ledger(restarted(opened(1000), 4600))
        assert case.found == []

    def test_who_has_asked_for_a_restart_gets_it(self) -> None:
        case = Case(BaselineUntouched, mode="Observe")
        case.lose_a_pod()
        case.now += 60
        case.policy("Enforce")
        case.ledger(by_hand(restarted(opened(1000), 1060), 1060))
        assert case.found == []

    def test_a_growth_is_made_for_room_and_not_for_a_loss(self) -> None:
        case = Case(BaselineUntouched)
        case.lose_a_pod()
        replaces(case)
        case.now += 1200
        case.ledger(restarted(opened(2200), case.now, action=AttemptAction.GROW))
        assert case.found == []
