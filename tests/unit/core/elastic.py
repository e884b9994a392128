"""A group of 16 ranks under an elastic policy, and the API server's answers to dry runs with its birth settings."""

import msgspec

from recovery.core.model.birth_settings import BirthOutcome, BirthTrial
from recovery.core.model.facts import Room
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.plan.actions import Plan, TryBirth
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World

RANKS = 16
ELASTIC = PinnedElastic(min_nodes=8, max_nodes=RANKS, shrink_after_seconds=120, grow_back_after_seconds=300)


def elastic_controller(elastic: PinnedElastic = ELASTIC, **settings: object) -> Controller:
    return Controller(policy(elastic=elastic, **settings))  # type: ignore[arg-type]


def sixteen(ranks: int = RANKS) -> World:
    """The group trains, and the template in its JobSet states its size."""
    world = training(ranks)
    assert world.jobset is not None
    (template,) = world.jobset.replicated_jobs
    known = msgspec.structs.replace(template, size_known=True, parallelism=ranks, completions=ranks)
    return world.with_jobset(replicated_jobs=(known,))


def rack_lost(world: World, seconds: float, ranks: tuple[int, ...] = (12, 13, 14, 15)) -> World:
    for rank in ranks:
        world = world.pod_deleted(rank, seconds)
    return world


def reconciled(
    controller: Controller, world: World, seconds: float, outcome: BirthOutcome = BirthOutcome.APPLIED, why: str = ""
) -> tuple[Plan, World]:
    """Reconciles until the plan asks for no dry run. The API server answers each dry run with `outcome`."""
    plan = controller.reconcile(world, seconds)
    for number in range(40):
        asked = [action for action in plan.actions if isinstance(action, TryBirth)]
        if not asked:
            return plan, world
        world = msgspec.structs.replace(world, birth_trial=BirthTrial(asked[0].settings, outcome, why))
        plan = controller.reconcile(world, seconds + 0.25 * (number + 1))
    raise AssertionError("the dry runs never end")


def born(controller: Controller, world: World, seconds: float, *, unplaced: tuple[int, ...] = ()) -> World:
    """JobSet has recreated the Job with the ledger's settings. The ranks in `unplaced` find no node."""
    world = world.born(seconds, controller.ledger.birth_settings)
    for rank in range(world.job.parallelism):
        world = world.unschedulable(rank, "0/16 nodes are available") if rank in unplaced else world.scheduled(rank)
    return world


def waiting_for_a_rack() -> tuple[Controller, World]:
    """The group lost a rack of four at 0 and was restarted. Four ranks have had no node since 3."""
    controller = elastic_controller()
    world = rack_lost(sixteen(), 0)
    reconciled(controller, world, 0.5)
    world = born(controller, world, 3, unplaced=(12, 13, 14, 15))
    reconciled(controller, world, 4)
    return controller, world


def shrunk(elastic: PinnedElastic = ELASTIC) -> tuple[Controller, World]:
    """The group has run with twelve nodes since 130, and its incident is recorded."""
    controller, world = waiting_for_a_rack()
    _, world = reconciled(controller, world, 121)
    world = born(controller, world, 125).all_ready(130)
    controller.settle(world, 131)
    controller.policy = policy(elastic=elastic)
    return controller, world


def with_room(world: World, pods: int, *nodes: str) -> World:
    names = nodes or tuple(f"gpu-{20 + number}" for number in range(pods))
    return msgspec.structs.replace(world, room=Room(pods, names))
