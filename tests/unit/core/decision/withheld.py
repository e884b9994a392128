"""Groups whose restart is withheld for the backoff, because the job must not be suspended."""

from collections.abc import Callable
from datetime import timedelta

from recovery.core.model.annotations import KUEUE_PATCH_MANAGER, KUEUE_QUEUE_LABEL
from recovery.core.plan.actions import SuspendWorkload
from recovery.core.policy.resolved import Backoff
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World

BACKOFF = Backoff(initial=timedelta(seconds=60))
WAITS = policy(backoff=BACKOFF)
DEADLINE_SECONDS = 3600
OWNERS: dict[str, Callable[[World], World]] = {
    "TrainJob": lambda world: world.with_workload(active_deadline_seconds=DEADLINE_SECONDS),
    "JobSet": lambda world: world.with_jobset(active_deadline_seconds=DEADLINE_SECONDS),
    "Kueue": lambda world: world.with_workload(labels={KUEUE_QUEUE_LABEL: "research"}),
    "Kueue without a queue label": lambda world: world.with_workload(patched_by=(KUEUE_PATCH_MANAGER,)),
}
"""Who owns the suspension, or whose deadline it would reset."""


def job(ranks: int = 4, **settings: object) -> World:
    """A job with a deadline, whose Job survives many exits. `settings` may change that."""
    made: World = training(ranks, **{"backoff_limit": 50, **settings})  # type: ignore[arg-type]
    return OWNERS["TrainJob"](made)


def shipped(ranks: int) -> World:
    """A job with the runtime that ships with Trainer."""
    return job(ranks, backoff_limit=6, restart_policy="OnFailure")


def recovered_once(controller: Controller, world: World) -> World:
    """A first attempt brought the group back. The next loss calls for the second attempt in a row."""
    world = world.pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    assert len(controller.triggers) == 1, "the first attempt does not wait"
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    assert controller.ledger.incident is None
    return world


def waiting(world: World | None = None, controller: Controller | None = None) -> tuple[Controller, World]:
    """Rank 2 was deleted at 300 s. The restart is withheld until 360.2 s."""
    controller = controller or Controller(WAITS)
    world = recovered_once(controller, world or job()).pod_deleted(2, 300)
    controller.reconcile(world, 300.2)
    assert len(controller.triggers) == 1
    return controller, world


def suspensions(controller: Controller) -> list[SuspendWorkload]:
    return [action for action in controller.done if isinstance(action, SuspendWorkload)]
