"""A group whose ranks have all met since its losses is not restarted: no rank waits for a lost peer."""

import pytest

from recovery.core.model.annotations import RESTART_ANNOTATION
from recovery.core.model.facts import Condition
from recovery.core.model.ledger import Outcome
from recovery.core.model.native_policy_facts import PodFailureRule
from recovery.core.model.reason import Reason
from recovery.core.model.rules import NodeConditionRule, Rule, RuleAction, When
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, OnNativeIgnore, Restart
from tests.unit.core.decision.test_verdicts import on_exit
from tests.unit.core.diagnosis.test_native_policies import on_condition
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

ASKED = '{"at": "2026-11-21T12:00:45Z", "by": "ops", "reason": "rank 1 is slow"}'


def all_replaced(world: World, gone_at: float) -> World:
    """Someone deleted all pods, and the Job replaced all of them. By now all ranks have run for 20 s."""
    for index in range(4):
        world = world.pod_gone(index, gone_at).replaced(index, gone_at + 1)
    for index in range(4):
        world = world.started(index, gone_at + 20).pod_ready(index, gone_at + 30)
    return world


@pytest.mark.parametrize("mode", Mode)
def test_a_group_whose_ranks_are_all_new_by_the_first_reconcile_is_not_restarted(mode: Mode) -> None:
    """The store saw the pods vanish. The controller was held up until all ranks ran again."""
    controller = Controller(policy(mode))
    whole = all_replaced(training(), 0)
    plan = controller.reconcile(whole, 50)
    assert (controller.triggers, controller.incident.would) == ([], "")
    assert plan.requeue_at == at(55), "what comes of a cascade is waited for"
    controller.settle(whole, 55)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.restarts) == (Outcome.OBSERVED, 0)
    assert incident.closing.ended_at == at(31), "when the last rank was Ready, within the second"
    assert controller.reconcile(whole, 60).reason is Reason.NO_FAILURE, "and it is dealt with"


@pytest.mark.parametrize(
    ("policy_", "policy_rules"),
    [
        (policy(restart=Restart.NONE), ()),
        (policy(on_native_ignore=OnNativeIgnore.STAND_ASIDE), (on_condition("Ignore"),)),
    ],
    ids=["restart None", "podFailurePolicy Ignore"],
)
def test_what_is_left_to_kubernetes_ends_without_another_change_if_the_group_runs_whole_by_then(
    policy_: Policy, policy_rules: tuple[PodFailureRule, ...]
) -> None:
    controller = Controller(policy_)
    whole = training(rules=policy_rules).evicted(3, 0).came_back(3, 20, 30)
    assert controller.reconcile(whole, 50).requeue_at == at(55)
    controller.settle(whole, 55)
    assert (len(controller.recorded), controller.triggers) == (1, [])


def test_one_rank_that_is_not_new_waits_for_a_peer_that_is_gone() -> None:
    controller = Controller()
    whole = training()
    for index in range(3):
        whole = whole.came_back(index, 0, 20)
    controller.reconcile(whole, 50)
    assert len(controller.triggers) == 1


def test_ranks_that_have_joined_since_the_loss_are_not_restarted() -> None:
    """Rank 0 is as old as the group. Its joined probe shows that it has joined the new rank 3."""
    controller = Controller()
    whole = training().came_back(3, 0, 20)
    for index in range(4):
        whole = whole.with_pod(index, joined_probe=True, ready_since=at(30))
    controller.reconcile(whole, 50)
    assert controller.triggers == []
    controller.settle(whole, 55)
    assert controller.ledger.incident is None


def test_a_loss_while_all_that_are_new_settle_is_restarted_for() -> None:
    controller = Controller()
    whole = all_replaced(training(), 0)
    controller.reconcile(whole, 50)
    controller.reconcile(whole.pod_failed(2, 1, 52), 52)
    assert len(controller.triggers) == 1


@pytest.mark.parametrize(
    "rules", [(on_exit(42, RuleAction.FAIL_JOB),), (on_exit(42, RuleAction.IGNORE),)], ids=["fail", "ignore"]
)
def test_what_a_rule_says_other_than_to_restart_holds_for_a_group_of_new_ranks_too(rules: tuple[Rule, ...]) -> None:
    controller = Controller(policy(rules=rules, may_fail_jobs=True))
    whole = training()
    for index in range(4):
        whole = whole.pod_failed(index, 42, 0)
    plan = controller.reconcile(all_replaced(whole, 1), 50)
    assert plan.reason is Reason.SETTLING
    controller.reconcile(all_replaced(whole, 1), 55)
    assert controller.incident.rule == "mine"


def test_a_group_is_taken_off_a_faulty_node_although_all_its_processes_have_begun_again_on_it() -> None:
    """After the fault the kubelets restarted all ranks in place, while no controller led."""
    when = When(on_node_conditions=(NodeConditionRule("GpuFault"),))
    controller = Controller(policy(rules=(Rule("gpu", RuleAction.RECREATE_GROUP, when),)))
    world = training(restart_policy="OnFailure").with_node(
        "gpu-2", conditions=(Condition("GpuFault", "True", since=at(0)),)
    )
    for index in range(4):
        world = world.container_restarted(index, 1, 10)
    controller.reconcile(world, 50)
    assert len(controller.triggers) == 1


def test_a_request_restarts_a_group_whose_ranks_are_all_new() -> None:
    controller = Controller()
    controller.reconcile(all_replaced(training(), 0).asked(RESTART_ANNOTATION, ASKED), 50)
    assert len(controller.triggers) == 1
