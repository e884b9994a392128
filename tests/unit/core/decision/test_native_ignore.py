"""A pod that a podFailurePolicy rule ignores is not charged, and does not leave the others to hang."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.annotations import COLLECTIVE_ANNOTATION
from recovery.core.model.collective import Collective
from recovery.core.model.ledger import Phase
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.model.rules import RuleAction
from recovery.core.plan.actions import SuspendWorkload
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import OnNativeIgnore
from tests.unit.core.decision.test_verdicts import on_exit as policy_rule
from tests.unit.core.diagnosis.test_native_policies import IGNORED, decided_natively, on_exit
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World


@pytest.mark.parametrize("world", IGNORED.values(), ids=IGNORED)
def test_a_group_is_recreated_for_a_pod_that_a_rule_ignores_and_not_charged(world: World) -> None:
    controller = Controller()
    plan = controller.reconcile(world, 2)
    assert len(controller.triggers) == 1
    assert "not charged to the budget: podFailurePolicy rule 0 of Job train-node-0 (action Ignore)" in plan.message
    assert not controller.incident.charged
    ledger = controller.ledger
    assert (ledger.totals.charged, ledger.budget.charges, ledger.attempts_in_row) == (0, (), 1)


@pytest.mark.parametrize("world", IGNORED.values(), ids=IGNORED)
def test_an_exhausted_budget_does_not_hold_it(world: World) -> None:
    controller = Controller(policy(limit=0))
    controller.reconcile(world, 2)
    assert len(controller.triggers) == 1


@pytest.mark.parametrize("world", IGNORED.values(), ids=IGNORED)
def test_the_policy_may_leave_such_a_pod_to_its_job(world: World) -> None:
    assert decided_natively(world, policy(on_native_ignore=OnNativeIgnore.STAND_ASIDE))


@pytest.mark.parametrize("world", IGNORED.values(), ids=IGNORED)
def test_with_override_native_it_is_charged_as_any_other(world: World) -> None:
    controller = Controller(policy(override_native=True))
    controller.reconcile(world, 2)
    assert len(controller.triggers) == 1
    assert controller.incident.charged


@pytest.mark.parametrize("collective", [Collective.SELF_HEALING, Collective.INDEPENDENT])
@pytest.mark.parametrize("world", IGNORED.values(), ids=IGNORED)
def test_such_a_pod_of_a_program_that_does_not_hang_is_left_to_its_job(world: World, collective: Collective) -> None:
    assert decided_natively(world.with_workload(annotations={COLLECTIVE_ANNOTATION: collective}))


@pytest.mark.parametrize("world", IGNORED.values(), ids=IGNORED)
def test_an_incident_that_a_version_without_the_field_opened_stays_aside(world: World) -> None:
    """Its pinned policy lacks the field, which reads as StandAside."""
    controller = Controller(policy(on_native_ignore=OnNativeIgnore.STAND_ASIDE))
    controller.reconcile(world, 2)
    controller.policy = policy()
    controller.reconcile(world, 3)
    assert controller.triggers == []
    written = msgspec.to_builtins(controller.incident.pinned)
    written.pop("onNativeIgnore", None)
    assert msgspec.convert(written, PinnedPolicy) == controller.incident.pinned


def test_a_crash_that_a_rule_ignores_counts_as_an_attempt_in_a_row_and_waits_for_its_backoff() -> None:
    controller = Controller(policy(backoff=Backoff(initial=timedelta(seconds=10))))
    world = IGNORED["exit code"]
    controller.reconcile(world, 2)
    back = world.job_deleted(2).all_deleted(2).recreated(4).all_ready(20)
    controller.settle(back, 21)
    controller.reconcile(back.pod_failed(1, 42, 60), 61)
    assert controller.ledger.attempts_in_row == 2
    assert len(controller.triggers) == 2
    assert any(isinstance(action, SuspendWorkload) for action in controller.workload_actions)
    assert controller.ledger.totals.charged == 0


def test_the_same_error_again_is_held_although_a_rule_ignores_it() -> None:
    controller = Controller()
    message = "KeyError: 'lr'"
    world = training(born=-60, rules=(on_exit("Ignore", 42),)).pod_failed(3, 42, 0, message=message)
    controller.reconcile(world, 2)
    back = world.job_deleted(2).all_deleted(2).recreated(4).all_ready(20)
    controller.settle(back, 21)
    controller.reconcile(back.pod_failed(1, 42, 60, message=message), 61)
    assert controller.phase() is Phase.HELD
    assert len(controller.triggers) == 1


def test_a_rule_of_the_policy_does_not_fail_the_job_for_what_its_own_rule_ignores() -> None:
    controller = Controller(policy(rules=(policy_rule(42, RuleAction.FAIL_JOB),), may_fail_jobs=True))
    for seconds in (1, 4):
        controller.reconcile(IGNORED["exit code"], seconds)
    assert len(controller.triggers) == 1
    assert not controller.incident.step.fails_job


def test_a_rule_of_the_policy_may_ignore_it_too() -> None:
    controller = Controller(policy(rules=(policy_rule(42, RuleAction.IGNORE),)))
    for seconds in (1, 4):
        controller.reconcile(IGNORED["exit code"], seconds)
    assert controller.incident.reason is Reason.RULE_IGNORE
    assert controller.triggers == []


@pytest.mark.parametrize(
    ("world", "charged"),
    [
        pytest.param(IGNORED["pod condition"].pod_deleted(2, 0), True, id="a loss of its own"),
        pytest.param(IGNORED["pod condition"].pod_failed(2, 134, 1), False, id="a consequence"),
    ],
)
def test_a_second_loss_that_no_rule_ignores_is_charged_unless_it_follows_from_the_first(
    world: World, charged: bool
) -> None:
    controller = Controller()
    controller.reconcile(world, 2)
    assert len(controller.triggers) == 1
    assert controller.incident.charged is charged


def test_observing_says_what_enforce_would_have_done_for_an_ignored_pod() -> None:
    controller = observing()
    controller.reconcile(IGNORED["pod condition"], 2)
    assert controller.incident.would == "RecreateGroup"
    assert controller.incident.would_message.endswith(
        "ranks restart together, not charged to the budget: podFailurePolicy rule 0 of Job train-node-0 (action "
        "Ignore) matches pod train-node-0-3-10"
    )
