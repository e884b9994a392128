"""Evidence of earlier incidents, on pods that live on and in the ledger, decides nothing about the next incident."""

import pytest

from recovery.core.incident.lifecycle import MAX_HANDLED, with_keys
from recovery.core.model.earlier_failures import Handled
from recovery.core.model.ledger import Phase
from recovery.core.model.rules import RuleAction
from recovery.core.plan.actions import FailJobSet
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import FencingMode, Mode
from tests.unit.core.decision.test_verdicts import MAY, on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.signs import died
from tests.unit.core.world import World, at

DAY = 86_400.0


def observed_and_then(code: int, enforced: Policy) -> tuple[Controller, World]:
    """Rank 2 was restarted in place under Observe, and the incident is closed. The policy enforces from 100 s on."""
    controller = Controller(policy(Mode.OBSERVE))
    world = training(restart_policy="OnFailure").container_restarted(2, code, 0)
    controller.reconcile(world, 2)
    controller.settle(world, 20)
    assert controller.ledger.incident is None
    controller.policy = enforced
    return controller, world


def test_no_rule_is_asked_about_a_loss_that_was_dealt_with() -> None:
    enforced = policy(rules=(on_exit(42, RuleAction.FAIL_JOB),), may_fail_jobs=True, since=100)
    controller, world = observed_and_then(42, enforced)
    drained = world.evicted(1, 1000)
    controller.reconcile(drained, 1001)
    controller.reconcile(drained, 1005)
    assert [action for action in controller.done if isinstance(action, FailJobSet)] == []
    assert controller.incident.rule == ""
    assert len(controller.triggers) == 1


def test_no_node_is_replaced_for_a_loss_that_was_dealt_with() -> None:
    enforced = policy(rules=(on_exit(139, RuleAction.REPLACE_NODE),), limits=MAY, since=100)
    controller, world = observed_and_then(139, enforced)
    controller.reconcile(world.pod_deleted(1, 1000), 1001)
    assert len(controller.triggers) == 1
    assert controller.incident.attempts[-1].nodes == ()
    assert controller.fleet_changes == []


def test_no_node_is_suspected_by_a_restart_by_hand_for_a_loss_that_was_dealt_with() -> None:
    controller, world = observed_and_then(139, policy(limits=MAY, since=100))
    controller.reconcile(world.asked("recovery.trainjob.dev/restart", at(50_000).isoformat()), 50_001)
    assert len(controller.triggers) == 1
    assert controller.fleet_changes == []


def test_an_exit_from_before_the_policy_is_no_evidence_although_a_node_was_silent_before_that() -> None:
    """The node counts as dead only after the policy was made, so its loss opens the incident. The exit is older, and
    its rank runs again."""
    controller = Controller(
        policy(Mode.OBSERVE, since=5, fencing=FencingMode.ASSUME_DEAD, may_assume_dead=True, assume_dead_seconds=5)
    )
    world = training().node_silent("gpu-0", 0).pod_failed(1, 42, 1).replaced(1, 2).started(1, 3).pod_ready(1, 4)
    for seconds in (6, 6.1, 9):
        controller.reconcile(world, seconds)
        assert len(controller.incident.evidence) == 1


def test_what_is_forgotten_beyond_the_bound_is_of_the_earliest_incidents() -> None:
    """Otherwise new evidence would count as handled, and no verdict would be passed on it."""
    old = tuple(f"old-{number}" for number in range(MAX_HANDLED))
    after = with_keys(Handled(keys=old, earlier=MAX_HANDLED), (died(index=1), died(index=2)))
    assert len(after.keys) == MAX_HANDLED
    assert after.keys[: after.earlier] == old[2:]
    assert with_keys(Handled(keys=old, earlier=1), (died(index=1), died(index=2))).earlier == 0


@pytest.mark.parametrize(
    ("days", "held"), [(0.001, True), (20, False)], ids=["the restart fixed nothing", "it did for 20 days"]
)
def test_an_error_that_a_restart_has_fixed_for_long_is_no_error_of_the_job(days: float, held: bool) -> None:
    """The error comes early each time. But the group trained for weeks in between, and another incident came first."""
    message = "KeyError: 'lr'"
    controller = Controller()
    world = training(born=-30).pod_failed(2, 1, 0, message=message)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_ready(20)
    controller.settle(world, 22)
    drained = 22 + days * DAY
    world = world.evicted(1, drained)
    controller.reconcile(world, drained + 1)
    world = world.recreated(drained + 10).all_ready(drained + 20)
    controller.settle(world, drained + 22)
    again = world.with_pod(2, node="gpu-9").pod_failed(2, 1, drained + 60, message=message)
    controller.reconcile(again, drained + 61)
    assert (controller.phase() is Phase.HELD) == held
    assert len(controller.triggers) == (2 if held else 3)
