"""A Job of another size than the latest restart asked for: the ledger follows it, or the group never grows again."""

import msgspec

from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import AttemptAction, Outcome
from recovery.core.plan.actions import Plan
from tests.unit.core.driver import Controller, policy
from tests.unit.core.elastic import ELASTIC, reconciled, shrunk, waiting_for_a_rack, with_room
from tests.unit.core.pods import GPUS_PER_POD
from tests.unit.core.world import World


def of_one_job(snapshot: Snapshot) -> Snapshot:
    """The number of Jobs is known, as it is wherever the JobSet can be read."""
    return msgspec.structs.replace(snapshot, expected_jobs=1)


def settle(controller: Controller, world: World, seconds: float) -> Plan:
    while True:
        cached, live = of_one_job(world.snapshot()), of_one_job(world.snapshot(live=True))
        plan = controller.plan_on(cached, live, seconds)
        controller.done += plan.first
        controller.write(plan)
        open_ = controller.ledger.incident
        if open_ is None or open_.closing is None:
            return plan


def size(controller: Controller) -> tuple[int, int, int] | None:
    state = controller.ledger.elastic
    return None if state is None else (state.nodes, state.wanted_nodes, state.gpus // GPUS_PER_POD)


def nodes(controller: Controller) -> int | None:
    settings = controller.ledger.birth_settings
    return settings.nodes if settings is not None else None


def growing(pods: int = 4) -> tuple[Controller, World]:
    """The ledger holds the growth of a group with twelve nodes. The trigger has not been sent."""
    controller, world = shrunk()
    world = with_room(world, pods)
    reconciled(controller, world, 1000)
    _, world = reconciled(controller, world, 1301)
    assert controller.incident.attempts[-1].action is AttemptAction.GROW
    return controller, world


def test_a_growth_that_a_pause_kept_from_being_carried_out() -> None:
    controller, world = growing()
    paused = world.paused()
    settle(controller, paused, 1302)
    settle(controller, paused, 2300)
    assert controller.recorded[-1].closing is not None
    assert controller.recorded[-1].closing.outcome is Outcome.SUPERSEDED
    settle(controller, world, 2310)
    assert (size(controller), nodes(controller)) == ((12, 16, 12), 12)
    settle(controller, world, 2320)
    settle(controller, world, 2621)
    assert controller.incident.attempts[-1].action is AttemptAction.GROW


def test_a_job_that_was_suspended_before_its_growth_was_carried_out() -> None:
    controller, world = growing()
    settle(controller, world.suspended(), 1302)
    world = world.suspended().resumed(1400).all_ready(1410)
    settle(controller, world, 1415)
    assert (size(controller), nodes(controller)) == ((12, 16, 12), 12)
    assert controller.ledger.elastic is not None
    assert controller.ledger.elastic.running_since is not None


def test_a_growth_whose_job_an_api_server_gave_the_settings_of_before() -> None:
    """The watch of RecoveryGroups lags in one of several API servers."""
    controller, world = shrunk()
    before = controller.ledger.birth_settings
    world = with_room(world, 4)
    reconciled(controller, world, 1000)
    _, world = reconciled(controller, world, 1301)
    world = with_room(world.born(1305, before).all_ready(1310), 4)
    settle(controller, world, 1311)
    settle(controller, world, 1312)
    assert (size(controller), nodes(controller)) == ((12, 16, 12), 12)


def test_a_restart_of_the_platform_with_the_larger_size_that_was_being_tried() -> None:
    controller, world = shrunk()
    world = with_room(world, 2)
    reconciled(controller, world, 1000)
    controller.reconcile(world, 1301)
    tried = controller.ledger.birth_settings
    assert nodes(controller) == 14
    settle(controller, world.restarted_by_jobset().job_deleted(1301), 1301.5)
    world = with_room(world.restarted_by_jobset().born(1303, tried).all_ready(1310), 0)
    settle(controller, world, 1311)
    settle(controller, world, 1312)
    assert controller.ledger.incident is None
    assert (size(controller), nodes(controller)) == ((14, 16, 14), 14)


def test_a_restart_of_the_platform_with_the_smaller_size_that_was_being_tried() -> None:
    controller, world = waiting_for_a_rack()
    controller.reconcile(world, 121)
    tried = controller.ledger.birth_settings
    assert nodes(controller) == 12
    settle(controller, world.restarted_by_jobset().job_deleted(121), 121.5)
    world = world.restarted_by_jobset().born(123, tried).all_ready(130)
    settle(controller, world, 131)
    settle(controller, world, 132)
    assert (size(controller), nodes(controller)) == ((12, 16, 12), 12)
    controller.policy = policy(elastic=ELASTIC)
    settle(controller, with_room(world, 4), 1000)
    settle(controller, with_room(world, 4), 1301)
    assert controller.incident.attempts[-1].action is AttemptAction.GROW


def test_a_job_that_someone_deleted_while_a_smaller_size_was_being_tried_for_its_successor() -> None:
    """This incident has already restarted the group, so the user's delete does not count as a restart."""
    controller, world = waiting_for_a_rack()
    controller.reconcile(world, 121)
    tried = controller.ledger.birth_settings
    settle(controller, world.job_deleted(121), 121.5)
    world = world.born(123, tried).all_ready(130)
    settle(controller, world, 131)
    settle(controller, world, 132)
    assert controller.ledger.incident is None
    assert (size(controller), nodes(controller)) == ((12, 16, 12), 12)


def test_a_group_whose_ledger_was_deleted_is_a_smaller_one_still() -> None:
    """Deleting the ledger is the way out when it is damaged."""
    _, world = shrunk()
    controller = Controller(policy(elastic=ELASTIC))
    settle(controller, world, 1000)
    settle(controller, with_room(world, 4), 1001)
    assert (size(controller), nodes(controller)) == ((12, 16, 12), 12)
    settle(controller, with_room(world, 4), 1302)
    assert controller.incident.attempts[-1].action is AttemptAction.GROW


def test_a_smaller_group_without_a_ledger_keeps_its_size_after_a_loss() -> None:
    _, world = shrunk()
    controller = Controller(policy(elastic=ELASTIC))
    settle(controller, world.pod_deleted(2, 1000), 1001)
    assert (size(controller), nodes(controller)) == ((12, 16, 12), 12)
