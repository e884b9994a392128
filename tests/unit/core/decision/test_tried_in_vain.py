"""Birth settings that were tried and then not used. A later restart by others finds the group as it was."""

import pytest

from recovery.core.model.annotations import RESTART_ANNOTATION
from recovery.core.model.birth_settings import BirthOutcome
from recovery.core.model.ledger import AttemptAction
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import ExtendBackoffLimit, TryBirth
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_avoiding import AVOID_43, FAILED, avoiding, hosts, world_with_room
from tests.unit.core.driver import Controller, policy
from tests.unit.core.elastic import ELASTIC, born, reconciled, shrunk, waiting_for_a_rack, with_room
from tests.unit.core.world import World


def nodes(controller: Controller) -> int | None:
    settings = controller.ledger.birth_settings
    return settings.nodes if settings is not None else None


def trying_fourteen() -> tuple[Controller, World]:
    """A group with twelve of sixteen nodes is about to grow by two, and a dry run has been requested."""
    controller, world = shrunk()
    world = with_room(world, 2)
    reconciled(controller, world, 1000)
    plan = controller.reconcile(world, 1301)
    assert [type(action) for action in plan.actions] == [TryBirth]
    assert nodes(controller) == 14
    return controller, world


@pytest.mark.parametrize("why", ["room", "Observe", "no elastic", "no policy", "paused", "paused everywhere"])
def test_a_growth_that_is_given_up_leaves_the_size_that_the_group_has(why: str) -> None:
    controller, world = trying_fourteen()
    match why:
        case "room":
            world = with_room(world, 0)
        case "Observe":
            controller.policy = policy(Mode.OBSERVE, elastic=ELASTIC)
        case "no elastic":
            controller.policy = policy()
        case "no policy":
            controller.policy = None
        case "paused":
            world = world.paused()
        case "paused everywhere":
            controller.policy = policy(elastic=ELASTIC, global_pause="maintenance")
    controller.reconcile(world, 1301.2)
    assert (controller.ledger.incident, nodes(controller)) == (None, 12)


def test_a_loss_meanwhile_is_no_growth() -> None:
    controller, world = trying_fourteen()
    reconciled(controller, world.pod_deleted(3, 1301), 1301.2)
    assert [attempt.action for attempt in controller.incident.attempts] == [AttemptAction.RECREATE_GROUP]
    assert nodes(controller) == 12


def test_a_restart_by_hand_is_no_growth() -> None:
    controller, world = trying_fourteen()
    asked = '{"at": "2026-11-21T12:21:41Z", "by": "ops", "reason": "now"}'
    controller.reconcile(world.asked(RESTART_ANNOTATION, asked), 1301.2)
    assert controller.incident.attempts[-1].reason is Reason.RESTARTED_BY_HAND
    assert nodes(controller) == 12


def test_the_size_by_hand_counts_though_nothing_was_reconciled_between_the_patch_and_the_restart() -> None:
    controller, world = shrunk()
    world = world.with_job(parallelism=16, completions=16)
    asked = '{"at": "2026-11-21T12:02:20Z", "by": "ops", "reason": "whole size"}'
    controller.reconcile(world.asked(RESTART_ANNOTATION, asked), 141)
    assert controller.incident.attempts[-1].reason is Reason.RESTARTED_BY_HAND
    assert (controller.ledger.birth_settings, controller.ledger.elastic) == (None, None)


def test_a_node_that_was_to_be_avoided_is_not_where_no_restart_was_made_for_it() -> None:
    """Otherwise the group would keep off the node for ever, and would wait for the node where it needs it."""
    controller = Controller(policy(rules=(AVOID_43,)))
    world = world_with_room().pod_failed(FAILED, 43, 0)
    plan = controller.reconcile(world, 0.5)
    assert TryBirth in {type(action) for action in plan.actions}
    paused = world.paused().came_back(FAILED, 1, 2)
    controller.settle(paused, 3)
    controller.settle(paused, 9)
    assert (controller.ledger.incident, controller.ledger.avoided) == (None, ())
    controller.reconcile(paused, 10)
    assert controller.ledger.birth_settings is None


def test_what_was_avoided_before_a_refusal_is_avoided_still() -> None:
    controller, world = avoiding()
    world = born(controller, world, 3).all_ready(10)
    controller.settle(world, 11)
    reconciled(controller, world.pod_failed(3, 43, 5000), 5000.5, BirthOutcome.REFUSED, "invalid")
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    assert ([each.node for each in controller.ledger.avoided], hosts(controller)) == (["gpu-2"], ("host-2",))


def test_a_group_whose_job_was_refused_at_birth_avoids_none_any_more() -> None:
    """Otherwise the API server would refuse the next restart's Job as well, without a dry run."""
    controller, world = avoiding()
    gone = world.job_gone()
    controller.reconcile(gone, 3)
    refused = gone.with_jobset(failed_create="invalid", failed_create_at=controller.incident.attempts[-1].started_at)
    controller.reconcile(refused, 6)
    assert controller.incident.reason is Reason.BIRTH_SETTINGS_REFUSED
    world = gone.job_created(7).pods_created(7).all_ready(20)
    controller.settle(world, 21)
    controller.settle(world, 30)
    assert (controller.ledger.birth_settings, controller.ledger.avoided) == (None, ())


def test_a_size_that_was_tried_until_the_nodes_came_is_forgotten() -> None:
    controller, world = waiting_for_a_rack()
    plan = controller.reconcile(world, 121)
    assert [type(action) for action in plan.actions] == [TryBirth, ExtendBackoffLimit]
    controller.settle(world.all_ready(122), 123)
    controller.reconcile(world.all_ready(122), 124)
    assert (controller.ledger.birth_settings, controller.ledger.elastic) == (None, None)
