"""The message of an incident of several attempts when it is over."""

from tests.unit.core.driver import Controller
from tests.unit.core.groups import training


def test_an_incident_of_two_attempts_tells_how_it_began_and_what_was_done_last() -> None:
    controller = Controller()
    world = training(4).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4)
    controller.reconcile(world, 0.5)
    world = world.recreated(2).all_started(3).pod_ready(0, 3)
    controller.reconcile(world, 3.2)
    controller.reconcile(world.pod_failed(2, 137, 4), 4.2)
    world = world.job_deleted(4.3).all_deleted(4.4).recreated(6).all_ready(7)
    controller.settle(world, 7.5)
    said = controller.ledger.history[0].message
    assert said.startswith("pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; no rule matched, so the default")
    assert "(9 of 10 recoveries left); then pod train-node-0-2-" in said
    assert "failed with exit code 137; attempt 2: deleting Job train-node-0 again; all 4 ranks are Ready" in said


def test_an_incident_of_one_attempt_tells_it_once() -> None:
    controller = Controller()
    world = training(4).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    controller.settle(world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(3), 3.5)
    said = controller.ledger.history[0].message
    assert said.count("was deleted") == 1
    assert "; then " not in said
