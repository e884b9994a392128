"""During a pause nothing is restarted. A loss meanwhile counts when the pause ends, and the message says so."""

import pytest

from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Reason
from recovery.core.policy.resolved import Policy
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

IN_PLACE = training(restart_policy="OnFailure").container_restarted(2, 1, 0)
BY_ANNOTATION, GLOBAL = policy(), policy(global_pause="RecoveryConfig default pauses all recoveries")
PAUSES = pytest.mark.parametrize(
    ("settings", "reason"),
    [(BY_ANNOTATION, Reason.JOB_PAUSED), (GLOBAL, Reason.GLOBAL_PAUSE)],
    ids=["of the job", "of all"],
)


def paused(settings: Policy, world: World) -> World:
    return world if settings.global_pause is not None else world.paused()


@PAUSES
def test_a_loss_during_a_pause_is_named_and_counts_from_its_own_time_when_the_pause_ends(
    settings: Policy, reason: Reason
) -> None:
    controller = Controller(settings)
    assert "rank 2" not in controller.reconcile(paused(settings, training()), -1).message
    plan = controller.reconcile(paused(settings, IN_PLACE), 600)
    assert plan.reason is reason
    assert "rank 2, node gpu-2) exited with exit code 1" in plan.message
    assert (controller.ledger, controller.done) == (Ledger(), [])
    controller.policy = policy()
    controller.reconcile(IN_PLACE, 899)
    assert len(controller.triggers) == 1
    assert controller.incident.started_at == at(0)


@PAUSES
def test_one_that_is_older_by_then_is_a_baseline_if_its_rank_runs_again(settings: Policy, reason: Reason) -> None:
    controller = Controller(settings)
    controller.reconcile(paused(settings, IN_PLACE), 1)
    assert "exited" not in controller.reconcile(paused(settings, IN_PLACE), 901).message, "it counts no more"
    controller.policy = policy()
    plan = controller.reconcile(IN_PLACE, 901)
    assert (plan.reason, controller.triggers) == (Reason.BASELINE, [])
    assert plan.message.endswith("run recovery restart train --reason TEXT")


@pytest.mark.parametrize(
    "world", [training().pod_deleted(3, 0), training().pod_gone(3, 0), training().pod_gone(3, 0).replaced(3, 1)]
)
def test_a_rank_that_does_not_run_counts_whatever_the_age_of_its_loss(world: World) -> None:
    controller = Controller()
    assert "(rank 3, node gpu-3)" in controller.reconcile(world.paused(), 90_000).message
    controller.reconcile(world, 90_001)
    assert len(controller.triggers) == 1


def test_several_losses_are_counted() -> None:
    world = IN_PLACE.container_restarted(0, 1, 3).container_restarted(1, 1, 3)
    assert "(2 more like it)" in Controller().reconcile(world.paused(), 5).message
