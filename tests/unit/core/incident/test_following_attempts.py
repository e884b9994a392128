"""Any attempt may follow any other."""

from collections.abc import Callable
from itertools import product

import pytest

from recovery.core.model.annotations import HOSTNAME_LABEL
from recovery.core.model.fleet_ledger import FleetLimits
from recovery.core.model.ledger import AttemptAction
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.policy.spec import OnTerminalFailure
from tests.unit.core.decision.test_recreated_jobset import with_new_jobset, without_jobset
from tests.unit.core.driver import Controller, policy
from tests.unit.core.elastic import born, elastic_controller, rack_lost, reconciled, sixteen, with_room
from tests.unit.core.groups import training
from tests.unit.core.world import World

REPLACE_43 = Rule("gpu", RuleAction.REPLACE_NODE, When(on_exit_codes=ExitCodes(Operator.IN, (43,))))


AVOID_45 = Rule("avoid", RuleAction.AVOID_NODE, When(on_exit_codes=ExitCodes(Operator.IN, (45,))))


IGNORE_44 = Rule("fine", RuleAction.IGNORE, When(on_exit_codes=ExitCodes(Operator.IN, (44,))))


CALLS_FOR: dict[AttemptAction, Callable[[World, int, float], World]] = {
    AttemptAction.RECREATE_GROUP: lambda world, rank, seconds: world.pod_deleted(rank, seconds),
    AttemptAction.REPLACE_NODE: lambda world, rank, seconds: world.pod_failed(rank, 43, seconds),
    AttemptAction.RECREATE_JOB_SET: lambda world, rank, seconds: world.pod_failed(rank, 1, seconds).jobset_failed(
        seconds
    ),
    AttemptAction.ADOPTED: lambda world, rank, seconds: (
        world.pod_failed(rank, 1, seconds).restarted_by_jobset().job_deleted(seconds)
    ),
    AttemptAction.NONE: lambda world, rank, seconds: world.pod_failed(rank, 44, seconds),
}
"""What happens to one rank of a running group and calls for an attempt of that action."""


def back(controller: Controller, world: World, seconds: float) -> World:
    """The restarted group runs but is not Ready yet."""
    if world.jobset is not None and world.jobset.terminal_state:
        world = with_new_jobset(without_jobset(world), seconds).job_created(seconds).pods_created(seconds)
    else:
        world = world.recreated(seconds)
    world = world.all_started(seconds + 1)
    controller.reconcile(world, seconds + 2)
    return world


def calls_for(action: AttemptAction, controller: Controller, world: World, rank: int, seconds: float) -> World:
    world = CALLS_FOR[action](world, rank, seconds)
    controller.reconcile(world, seconds + 0.5)
    controller.reconcile(world, seconds + 3)  # the loss has settled
    return world


def any_attempt() -> Controller:
    return Controller(
        policy(
            rules=(REPLACE_43, IGNORE_44),
            limits=FleetLimits(may_cordon=True),
            on_terminal_failure=OnTerminalFailure.RECREATE_JOB_SET,
        )
    )


def actions(controller: Controller) -> list[AttemptAction]:
    return [attempt.action for attempt in controller.incident.attempts]


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for pair in product(CALLS_FOR, repeat=2) if pair != (AttemptAction.NONE, AttemptAction.NONE)],
)
def test_any_attempt_may_follow_any_other(first: AttemptAction, second: AttemptAction) -> None:
    controller = any_attempt()
    world = calls_for(first, controller, training(), 2, 0)
    if first is not AttemptAction.NONE:
        world = back(controller, world, 10)
    calls_for(second, controller, world, 3, 20)
    assert actions(controller) == [first, second]


WITH_SETTINGS = (AttemptAction.AVOID_NODE, AttemptAction.SHRINK, AttemptAction.GROW)
"""Attempts whose Jobs are created with settings of their own, or without the earlier ones."""


def decided(action: AttemptAction) -> tuple[Controller, World, float]:
    """An open incident whose latest attempt has this action and no effect yet. The number says since when."""
    rules, limits = (REPLACE_43, IGNORE_44, AVOID_45), FleetLimits(may_cordon=True)
    recreates = OnTerminalFailure.RECREATE_JOB_SET
    controller = elastic_controller(rules=rules, limits=limits, on_terminal_failure=recreates)
    world, seconds = with_room(sixteen(), 4), 121.0
    for rank in range(16):
        world = world.with_node(f"gpu-{rank}", labels={HOSTNAME_LABEL: f"gpu-{rank}"})
    if action is AttemptAction.AVOID_NODE:
        world = world.pod_failed(1, 45, 0)
        controller.reconcile(world, 0.5)
        _, world = reconciled(controller, world, 3)  # the loss has settled
        return controller, world, 3
    _, world = reconciled(controller, rack_lost(world, 0), 0.5)
    world = born(controller, world, 3, unplaced=(12, 13, 14, 15))
    reconciled(controller, world, 4)
    _, world = reconciled(controller, world, seconds)
    if action is AttemptAction.GROW:
        world, seconds = born(controller, world, 125).all_ready(130), 500.0
        controller.settle(world, 131)
        controller.reconcile(world, 132)
        _, world = reconciled(controller, world, seconds)
    assert actions(controller)[-1] is action
    return controller, world, seconds


@pytest.mark.parametrize("second", CALLS_FOR)
@pytest.mark.parametrize("first", WITH_SETTINGS)
def test_any_other_may_follow_one_with_settings_at_birth(first: AttemptAction, second: AttemptAction) -> None:
    controller, world, seconds = decided(first)
    world = born(controller, world, seconds + 5).all_started(seconds + 6)
    controller.reconcile(world, seconds + 7)
    calls_for(second, controller, world, 3, 600)
    assert actions(controller)[-2:] == [first, second]


@pytest.mark.parametrize("action", WITH_SETTINGS)
def test_one_with_settings_that_the_jobset_was_faster_with_becomes_the_platforms(action: AttemptAction) -> None:
    controller, world, seconds = decided(action)
    controller.reconcile(world.restarted_by_jobset(), seconds + 4)
    assert actions(controller)[-1] is AttemptAction.ADOPTED


def test_one_loss_after_another_may_be_left_to_the_job_of_a_restarted_group() -> None:
    controller = any_attempt()
    world = calls_for(AttemptAction.RECREATE_GROUP, controller, training(), 2, 0).recreated(5).all_scheduled()
    for rank in (0, 1):
        world = world.started(rank, 6)
        controller.reconcile(world, 7 + rank)
        world = world.pod_deleted(rank, 10 + rank)
        controller.reconcile(world, 10.5 + rank)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP, AttemptAction.NONE, AttemptAction.NONE]


@pytest.mark.parametrize("action", [AttemptAction.RECREATE_GROUP, AttemptAction.REPLACE_NODE])
def test_a_restart_that_the_jobset_was_faster_with_becomes_the_platforms(action: AttemptAction) -> None:
    controller = any_attempt()
    world = calls_for(action, controller, training(), 2, 0)
    controller.reconcile(world.restarted_by_jobset(), 4)
    assert actions(controller) == [AttemptAction.ADOPTED]


def test_so_does_that_of_a_jobset_whose_jobs_outlive_it() -> None:
    """A person deleted the old JobSet and orphaned its Job. The next JobSet counts a restart."""
    controller = any_attempt()
    world = calls_for(AttemptAction.RECREATE_JOB_SET, controller, training(), 2, 0)
    world = with_new_jobset(world, 5).restarted_by_jobset()
    controller.reconcile(world, 6)
    assert actions(controller) == [AttemptAction.ADOPTED]
