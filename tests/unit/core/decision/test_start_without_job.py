"""A group whose new Job another client has deleted while it started."""

import pytest

from recovery.core.model.reason import Reason
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training


@pytest.mark.parametrize(
    ("started", "waits"),
    [(False, Reason.WAITING_FOR_PODS), (True, Reason.WAITING_FOR_READY)],
    ids=["Starting", "Rendezvous"],
)
def test_a_start_that_takes_too_long_restarts_nothing_while_there_is_no_job(started: bool, waits: Reason) -> None:
    """JobSet creates the Job again in a while. Until then there is nothing to restart."""
    controller = Controller(policy(start_seconds=60))
    world = training().pod_failed(2, 1, 0)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_scheduled(12)
    controller.reconcile(world, 13)
    if started:
        world = world.all_started(20)
        controller.reconcile(world, 21)
    world = world.job_gone()
    controller.reconcile(world, 40)
    controller.reconcile(world, 100)  # the ledger that it would write breaks the invariant Target
    assert len(controller.triggers) == 1
    assert controller.incident.reason is waits, "no wait is silent"
    said = controller.incident.message
    controller.reconcile(world, 200)
    assert controller.incident.message == said
