"""Groups that a restart recreates."""

from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World


def triggered(**settings: object) -> tuple[Controller, World]:
    """The trigger has been sent, and the Job is about to be deleted."""
    controller = Controller(policy(**settings))  # type: ignore[arg-type]
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    return controller, world


def recreated(**settings: object) -> tuple[Controller, World]:
    """Job 2 was created at 12:00:10. Its pods are Pending."""
    controller, world = triggered(**settings)
    back = world.recreated(10)
    controller.reconcile(back, 10.5)
    return controller, back


def recovered() -> tuple[Controller, World]:
    """All ranks of the new group have been Ready since 12:00:21, and the incident is closed."""
    controller, back = recreated()
    whole = back.all_scheduled().all_started(20).all_ready(21)
    controller.settle(whole, 22)
    assert controller.recorded[0].closing is not None
    assert controller.ledger.incident is None
    return controller, whole
