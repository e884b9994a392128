"""A job never fails because of a secondary failure: the end of a rank that only waited for another one."""

import msgspec
import pytest

from recovery.core.diagnosis.evidence import gather
from recovery.core.diagnosis.secondary import follows_a_known_loss
from recovery.core.model.facts import Condition
from recovery.core.model.progress import Progress
from recovery.core.model.rules import RuleAction
from recovery.core.plan.actions import FailJobSet
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_verdicts import on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

WATCHDOG = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE) timed out"
ABORT_IS_FINAL = policy(rules=(on_exit(134, RuleAction.FAIL_JOB),), may_fail_jobs=True, since=100)


def fails_the_job(controller: Controller, world: World, seconds: float) -> bool:
    controller.reconcile(world, seconds)
    controller.reconcile(world, seconds + 4)
    return any(isinstance(action, FailJobSet) for action in controller.done)


@pytest.mark.parametrize("message", ["", WATCHDOG])
@pytest.mark.parametrize("node_fails_too", [False, True])
def test_a_survivor_of_a_loss_that_was_only_observed(message: str, node_fails_too: bool) -> None:
    """The other ranks hang after the loss and abort minutes later, when the policy enforces. A later report that the
    node is faulty does not explain the abort."""
    controller = Controller(policy(Mode.OBSERVE))
    world = training().pod_deleted(2, 0)
    controller.reconcile(world, 1)
    world = world.came_back(2, 5, 8)
    controller.settle(world, 20)
    assert controller.ledger.incident is None
    controller.policy = ABORT_IS_FINAL
    world = world.pod_failed(1, 134, 600, message=message)
    if node_fails_too:
        world = world.with_node("gpu-1", conditions=(Condition("GpuUnhealthy", "True", since=at(600)),))
    assert not fails_the_job(controller, world, 601)
    assert len(controller.triggers) == 1


def test_a_node_that_is_reported_later_does_not_make_a_survivor_a_cause() -> None:
    """The group is held for another reason, so the verdict is passed again. The message of the exit still counts."""
    controller = Controller(msgspec.structs.replace(ABORT_IS_FINAL, budget_limit=0))
    world = training().pod_failed(1, 134, 600, message=WATCHDOG)
    assert not fails_the_job(controller, world, 601)
    controller.policy = msgspec.structs.replace(ABORT_IS_FINAL, budget_limit=5)
    world = world.with_node("gpu-1", conditions=(Condition("GpuUnhealthy", "True", since=at(840)),))
    assert not fails_the_job(controller, world, 841)


def aborts_after(world: World) -> tuple[Controller, World]:
    return Controller(ABORT_IS_FINAL), world.pod_failed(1, 134, 1000)


def test_an_abort_with_no_loss_before_it_is_a_cause() -> None:
    assert fails_the_job(*aborts_after(training()), 1001)


def test_an_abort_of_a_process_that_began_after_the_loss_is_a_cause() -> None:
    world = training().pod_deleted(2, 0).came_back(2, 5, 8).pod_failed(1, 134, 1000)
    aborted = next(item for item in gather(world.snapshot()) if item.exit is not None)
    assert follows_a_known_loss(aborted, world.snapshot())
    assert aborted.exit is not None
    began = msgspec.structs.replace(aborted, exit=msgspec.structs.replace(aborted.exit, started_at=at(20)))
    assert not follows_a_known_loss(began, world.snapshot())


def test_an_abort_after_a_loss_from_before_the_training_is_a_cause() -> None:
    """The other ranks waited for that rank, and trained once it had joined."""
    world = group().all_scheduled(-3600)
    for index in (0, 1, 3):
        world = world.started(index, -3590).pod_ready(index, -3590)
    world = world.pod_deleted(2, -3580).came_back(2, -3570, -3560)
    assert fails_the_job(*aborts_after(world), 1001)


def test_an_abort_after_the_training_has_reported_progress_is_a_cause() -> None:
    lost = training().pod_deleted(2, 0).came_back(2, 5, 8)
    assert fails_the_job(*aborts_after(lost.with_workload(progress=Progress(at(500)))), 1001)
