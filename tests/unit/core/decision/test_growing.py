"""A shrunk group grows when there has been room for long enough. A growth that fails is undone."""

import msgspec
import pytest

from recovery.core.model.birth_settings import BirthOutcome
from recovery.core.model.facts import Condition, Room
from recovery.core.model.ledger import AttemptAction, Outcome
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, policy
from tests.unit.core.elastic import ELASTIC, born, reconciled, shrunk, with_room
from tests.unit.core.pods import GPUS_PER_POD
from tests.unit.core.world import World, at


def grows(controller: Controller) -> bool:
    incident = controller.ledger.incident
    return incident is not None and incident.attempts[-1].action is AttemptAction.GROW


def grown(elastic: PinnedElastic = ELASTIC) -> tuple[Controller, World]:
    """There has been room for four more nodes since 1000 s, and the growth was decided at 1301 s."""
    controller, world = shrunk(elastic)
    world = with_room(world, 4)
    reconciled(controller, world, 1000)
    _, world = reconciled(controller, world, 1301)
    return controller, world


def test_the_group_grows_in_one_step_when_there_has_been_room_for_long_enough() -> None:
    controller, world = shrunk()
    world = with_room(world, 4)
    plan = controller.reconcile(world, 1000)
    assert (plan.reason, grows(controller)) == (Reason.WAITING_FOR_ROOM, False)
    assert plan.requeue_at == at(1015)
    reconciled(controller, world, 1299)
    assert not grows(controller)
    reconciled(controller, world, 1301)
    assert grows(controller)
    assert controller.ledger.birth_settings is None, "its template says the whole size"
    assert controller.triggers[-1].uid == "job-3"
    assert (controller.incident.disruption_class, controller.incident.charged) == ("Growth", False)


def test_a_growth_that_finds_its_nodes_ends_the_time_with_fewer() -> None:
    controller, world = grown()
    world = born(controller, world, 1305).all_ready(1310)
    controller.settle(world, 1311)
    incident = controller.recorded[-1]
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.ranks) == (Outcome.RECOVERED, 16)
    assert controller.ledger.elastic is None
    totals = controller.ledger.totals
    assert totals.reduced_seconds == pytest.approx(1301 - 131, abs=2)
    assert totals.gained_gpu_seconds == pytest.approx(totals.reduced_seconds * 12 * GPUS_PER_POD, abs=1)
    assert totals.failures["Growth"] == 1


def test_room_that_comes_and_goes_is_no_room() -> None:
    controller, world = shrunk()
    for number in range(60):
        pods = 4 if number % 2 else 0
        reconciled(controller, with_room(world, pods), 1000 + 20 * number)
        assert controller.ledger.incident is None


def test_room_for_more_of_them_is_waited_for_so_that_one_restart_is_enough() -> None:
    controller, world = shrunk()
    reconciled(controller, with_room(world, 2), 1000)
    reconciled(controller, with_room(world, 4), 1200)
    reconciled(controller, with_room(world, 4), 1301)
    assert controller.ledger.incident is None, "the room for four has been there for 101 s"
    reconciled(controller, with_room(world, 4), 1501)
    assert grows(controller)
    assert controller.ledger.birth_settings is None


def test_room_for_fewer_of_them_than_before_has_been_there_as_long() -> None:
    controller, world = shrunk()
    reconciled(controller, with_room(world, 4), 1000)
    reconciled(controller, with_room(world, 2), 1200)
    reconciled(controller, with_room(world, 2), 1301)
    assert grows(controller)
    assert controller.ledger.birth_settings is not None
    assert controller.ledger.birth_settings.nodes == 14


def test_a_growth_without_its_nodes_is_undone_and_the_next_one_waits_twice_as_long() -> None:
    controller, world = grown()
    world = born(controller, world, 1305, unplaced=(12, 13, 14, 15))
    reconciled(controller, world, 1306)
    plan, _ = reconciled(controller, world, 1320)
    assert plan.requeue_at is not None
    _, world = reconciled(controller, world, 1336)
    assert [attempt.action for attempt in controller.incident.attempts] == [AttemptAction.GROW, AttemptAction.SHRINK]
    assert controller.incident.reason is Reason.GROWTH_UNDONE
    world = born(controller, world, 1340).all_ready(1345)
    controller.settle(world, 1346)
    state = controller.ledger.elastic
    assert state is not None
    assert (state.nodes, state.wanted_nodes, state.failed_growths) == (12, 16, 1)
    reconciled(controller, with_room(world, 4), 2000)
    reconciled(controller, with_room(world, 4), 2301)
    assert controller.ledger.incident is None
    reconciled(controller, with_room(world, 4), 2601)
    assert grows(controller)


def test_room_for_some_of_them_is_used_where_the_size_is_allowed() -> None:
    controller, world = shrunk()
    reconciled(controller, with_room(world, 2), 1000)
    reconciled(controller, with_room(world, 2), 1301)
    assert grows(controller)
    assert controller.ledger.birth_settings is not None
    assert controller.ledger.birth_settings.nodes == 14
    by_four = PinnedElastic(8, 16, multiple_of=4)
    controller, world = shrunk(by_four)
    reconciled(controller, with_room(world, 3), 1000)
    reconciled(controller, with_room(world, 3), 1301)
    assert controller.ledger.incident is None


@pytest.mark.parametrize("why", ["unknown room", "Observe", "no elastic", "paused", "an index has succeeded", "a gang"])
def test_a_group_that_may_not_grow_stays_as_it_is(why: str) -> None:
    controller, world = shrunk()
    world = with_room(world, 4)
    match why:
        case "unknown room":
            world = msgspec.structs.replace(world, room=None)
        case "Observe":
            controller.policy = policy(Mode.OBSERVE, elastic=ELASTIC)
        case "no elastic":
            controller.policy = policy()
        case "paused":
            world = world.paused()
        case "an index has succeeded":
            world = world.with_job(succeeded=1).although("job counts")
        case "a gang":
            world = world.with_job(gang="scheduling.x-k8s.io/pod-group")
    reconciled(controller, world, 1000)
    reconciled(controller, world, 1301)
    assert controller.ledger.incident is None
    assert controller.ledger.elastic is not None, "it still runs with fewer"


def test_a_growth_that_costs_budget_waits_for_the_budget() -> None:
    controller, world = shrunk()
    charged = msgspec.structs.replace(ELASTIC, charge=True)
    controller.policy = policy(elastic=charged, limit=1, window_seconds=3600)
    assert controller.ledger.totals.charged == 1
    world = with_room(world, 4)
    reconciled(controller, world, 1000)
    plan, _ = reconciled(controller, world, 1301)
    assert (controller.ledger.incident, plan.reason) == (None, Reason.BUDGET_EXHAUSTED)
    reconciled(controller, world, 3601)
    assert grows(controller)
    assert controller.ledger.totals.charged == 2


def test_a_growth_that_used_up_the_budget_is_undone_when_its_pods_find_no_node() -> None:
    controller, world = shrunk()
    controller.policy = policy(elastic=msgspec.structs.replace(ELASTIC, charge=True), limit=1, window_seconds=3600)
    world = with_room(world, 4)
    reconciled(controller, world, 4000)
    _, world = reconciled(controller, world, 4301)
    assert controller.incident.charged
    world = born(controller, world, 4305, unplaced=(12, 13, 14, 15))
    reconciled(controller, world, 4306)
    reconciled(controller, world, 4336)
    assert [attempt.action for attempt in controller.incident.attempts] == [AttemptAction.GROW, AttemptAction.SHRINK]


def test_a_growth_to_some_of_them_ends_the_row_of_those_that_failed() -> None:
    controller, world = grown()
    world = born(controller, world, 1305, unplaced=(12, 13, 14, 15))
    reconciled(controller, world, 1306)
    _, world = reconciled(controller, world, 1336)
    world = born(controller, world, 1340).all_ready(1345)
    controller.settle(world, 1346)
    world = with_room(world, 2)
    reconciled(controller, world, 2000)
    _, world = reconciled(controller, world, 2601)
    world = born(controller, world, 2605).all_ready(2610)
    controller.settle(world, 2611)
    state = controller.ledger.elastic
    assert state is not None
    assert (state.nodes, state.failed_growths) == (14, 0)


def test_a_clock_that_jumped_back_does_not_make_it_wait_for_longer() -> None:
    controller, world = shrunk()
    world = with_room(world, 4)
    reconciled(controller, world, 100_000)
    reconciled(controller, world, 1000)
    reconciled(controller, world, 1301)
    assert grows(controller)


def test_a_size_that_the_api_server_refuses_is_tried_again_later() -> None:
    controller, world = shrunk()
    reconciled(controller, with_room(world, 2), 1000)
    reconciled(controller, with_room(world, 2), 1301, BirthOutcome.REFUSED, "invalid")
    state, settings = controller.ledger.elastic, controller.ledger.birth_settings
    assert controller.ledger.incident is None
    assert state is not None
    assert (state.nodes, state.failed_growths) == (12, 1)
    assert settings is not None
    assert settings.nodes == 12, "whoever restarts the group finds the size that it runs with"


def test_a_users_own_size_becomes_the_one_that_it_is_to_have() -> None:
    controller, world = shrunk()
    smaller = msgspec.structs.replace(world, pods=tuple(pod for pod in world.pods if (pod.index or 0) < 10))
    smaller = smaller.with_job(parallelism=10, completions=10)
    reconciled(controller, with_room(smaller, 6), 1000)
    reconciled(controller, with_room(smaller, 6), 1400)
    assert (controller.ledger.incident, controller.ledger.elastic) == (None, None)
    assert controller.ledger.birth_settings is not None
    assert controller.ledger.birth_settings.nodes == 10


def test_a_group_that_others_have_made_whole_is_no_smaller_one() -> None:
    controller, world = shrunk()
    whole_again = world.job_gone().job_created(1000).pods_created(1000).all_ready(1010)
    reconciled(controller, whole_again, 1020)
    assert (controller.ledger.elastic, controller.ledger.birth_settings) == (None, None)


def test_what_a_job_gained_is_booked_when_it_ends_and_its_settings_go() -> None:
    controller, world = shrunk()
    done = world.with_workload(conditions=(Condition("Complete", "True", since=at(900)),))
    reconciled(controller, done, 901)
    assert (controller.ledger.elastic, controller.ledger.birth_settings) == (None, None)
    assert controller.ledger.totals.reduced_seconds == pytest.approx(901 - 131, abs=2)


def test_what_it_did_not_run_while_it_was_suspended_and_no_one_led_is_no_gain() -> None:
    controller, world = shrunk()
    suspended = world.suspended().with_workload(conditions=(Condition("Suspended", "True", since=at(900)),))
    controller.reconcile(suspended, 9000)
    assert controller.ledger.totals.reduced_seconds == pytest.approx(900 - 131, abs=2)


@pytest.mark.parametrize("watched", [True, False], ids=["as it happens", "afterwards"])
def test_what_a_job_that_its_user_has_deleted_did_not_run_is_no_gain(watched: bool) -> None:
    """The group waits for its nodes as long as it takes. A deletion that the controller has seen is an incident."""
    controller, world = shrunk()
    settings = controller.ledger.birth_settings
    if watched:
        controller.reconcile(world.job_deleted(1000), 1001)
        assert controller.ledger.totals.reduced_seconds == pytest.approx(1000 - 131, abs=1)
    world = world.born(1004, settings)
    controller.reconcile(world, 1010)
    controller.reconcile(world, 2000)
    controller.settle(world.all_ready(3000), 3001)
    done = world.all_ready(3000).with_workload(conditions=(Condition("Complete", "True", since=at(3501)),))
    controller.reconcile(done, 3502)
    assert controller.ledger.totals.reduced_seconds == pytest.approx(1002 - 131 + 500, abs=3)
    assert len(controller.recorded[1:]) == watched


def test_the_message_of_a_growth_counts_the_spare_nodes() -> None:
    controller, world = shrunk()
    spare = msgspec.structs.replace(world, room=Room(4, ("a", "b", "c", "d", "e"), spares=("a",)))
    reconciled(controller, spare, 1000)
    reconciled(controller, spare, 1301)
    assert "a, b, c, d and 1 more, 1 of them spares" in controller.incident.message
