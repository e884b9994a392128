"""A node whose kubelet refuses pods of a group for the second time is avoided by this group, for 15 minutes."""

import msgspec
import pytest

from recovery.core.model.annotations import HOSTNAME_LABEL
from recovery.core.model.birth_settings import BirthOutcome
from recovery.core.model.facts import Room
from recovery.core.model.ledger import AttemptAction
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_avoiding import actions, hosts, world_with_room
from tests.unit.core.driver import Controller, policy
from tests.unit.core.elastic import born, reconciled
from tests.unit.core.world import World, at, whole

MESSAGE = "Pod was rejected: Allocate failed due to no healthy devices present, which is unexpected"
REASONS = ["UnexpectedAdmissionError", "OutOfnvidia.com/gpu", "OutOfcpu", "NodeAffinity", "TopologyAffinityError"]


def refused(world: World, index: int, seconds: float, *, node: str = "", reason: str = REASONS[0]) -> World:
    """The kubelet of the node refused the rank's pod."""
    placed = world.scheduled(index).with_pod(index, accepted_at=whole(seconds), node=node or f"gpu-{index}")
    return placed.with_pod(index, phase="Failed", reason=reason, message=MESSAGE, containers=(), ready=False)


def others_accepted(world: World, *but: int) -> World:
    for index in range(world.job.parallelism):
        world = world if index in but else world.scheduled(index).with_pod(index, accepted_at=whole(11))
    return world


def starting(one: Controller, world: World | None = None) -> World:
    """Rank 1 of 16 was lost, and the group is recreated at 10 s. The kubelets have accepted all but rank 2."""
    lost = (world or world_with_room()).pod_deleted(1, 0)
    one.reconcile(lost, 1)
    again = others_accepted(lost.recreated(10), 2)
    one.reconcile(again, 11)
    return again


@pytest.mark.parametrize("reason", REASONS)
def test_the_second_refusal_takes_the_group_off_the_node_whatever_the_kubelet_calls_it(reason: str) -> None:
    one = Controller()
    world = refused(starting(one), 2, 12, reason=reason)
    reconciled(one, world, 13)
    assert actions(one)[:1] == [AttemptAction.RECREATE_GROUP], "one refusal may have passed before the next pod"
    assert hosts(one) == ()
    reconciled(one, refused(world.replaced(2, 22), 2, 23, reason=reason), 24)
    assert (actions(one)[-1], hosts(one)) == (AttemptAction.AVOID_NODE, ("host-2",))
    assert one.incident.reason is Reason.NODE_REFUSES_PODS


def test_two_pods_that_are_refused_at_once_count_as_two() -> None:
    """Each refusal leaves the node empty, so several ranks of a group land there."""
    one = Controller()
    world = refused(starting(one), 2, 12)
    reconciled(one, refused(world, 5, 12, node="gpu-2"), 13)
    assert (actions(one)[-1], hosts(one)) == (AttemptAction.AVOID_NODE, ("host-2",))


def test_the_group_avoids_the_node_for_15_minutes() -> None:
    one = Controller()
    world = refused(refused(starting(one), 2, 12), 5, 12, node="gpu-2")
    _, world = reconciled(one, world, 13)
    [avoided] = one.ledger.avoided
    assert 900 <= (avoided.until - at(13)).total_seconds() <= 901
    world = born(one, world, 20).all_ready(25)
    one.settle(world, 26)
    one.reconcile(world, 800)
    assert hosts(one) == ("host-2",)
    one.reconcile(world, 920)
    assert (hosts(one), one.ledger.avoided) == ((), ())


def test_the_first_restart_already_avoids_a_node_that_refused_several_of_the_pods_that_ran_on_it() -> None:
    """A kubelet that restarts admits its pods again, before the device plugin has registered the devices."""
    one = Controller()
    world = world_with_room().with_pod(5, node="gpu-2")
    reconciled(one, refused(refused(world, 2, 0), 5, 0, node="gpu-2"), 1)
    assert (actions(one), hosts(one)) == ([AttemptAction.AVOID_NODE], ("host-2",))


def test_a_refusal_counts_after_the_restart_that_was_made_for_it() -> None:
    one = Controller()
    _, world = reconciled(one, refused(world_with_room(), 2, 0), 1)
    assert actions(one) == [AttemptAction.RECREATE_GROUP]
    again = others_accepted(world.recreated(10), 2)
    reconciled(one, refused(again, 2, 12), 13)
    assert (actions(one)[-1], hosts(one)) == (AttemptAction.AVOID_NODE, ("host-2",))


def test_a_refusal_of_long_ago_does_not_count() -> None:
    one = Controller()
    _, world = reconciled(one, refused(world_with_room(), 2, 0), 1)
    again = others_accepted(world.recreated(10), 2)
    reconciled(one, refused(again, 2, 12), 1000)
    assert AttemptAction.AVOID_NODE not in actions(one)


def test_what_most_nodes_refuse_is_no_fault_of_a_node() -> None:
    one = Controller()
    world = starting(one)
    for index in range(8):
        world = refused(world, index, 12)
        world = refused(world, index + 8, 12, node=f"gpu-{index}")
    reconciled(one, world, 13)
    assert AttemptAction.AVOID_NODE not in actions(one)


def test_a_rank_whose_next_pod_has_another_node_needs_no_restart() -> None:
    one = Controller()
    world = refused(starting(one), 2, 12).replaced(2, 22)
    world = refused(world, 2, 23).replaced(2, 42).with_pod(2, node="gpu-20", accepted_at=whole(43))
    reconciled(one, world, 44)
    assert AttemptAction.AVOID_NODE not in actions(one)


def test_a_node_that_the_group_needs_is_not_avoided_and_the_facts_are_asked_once() -> None:
    one = Controller()
    full = msgspec.structs.replace(world_with_room(), room=Room(0))
    world = refused(refused(starting(one, full), 2, 12), 5, 12, node="gpu-2")
    reconciled(one, world, 13)
    assert [each.reason for each in one.incident.considered] == [Reason.NODE_NOT_AVOIDED]
    assert len(one.triggers) == 1
    reads = one.live_reads
    for seconds in (14, 30, 60):
        one.reconcile(world, seconds)
    assert (one.live_reads, len(one.triggers)) == (reads, 1)


def test_without_working_settings_the_group_is_not_restarted_onto_the_same_node() -> None:
    one = Controller()
    world = refused(refused(starting(one), 2, 12), 5, 12, node="gpu-2")
    reconciled(one, world, 13, BirthOutcome.NOT_ALLOWED)
    one.reconcile(world, 30)
    assert len(one.triggers) == 1
    assert [each.action for each in one.incident.considered] == ["AvoidNode"]
    assert (hosts(one), one.ledger.avoided) == ((), ())


def test_a_group_that_finds_no_room_elsewhere_does_not_go_in_circles() -> None:
    one = Controller()
    world = refused(refused(starting(one), 2, 12), 5, 12, node="gpu-2")
    _, world = reconciled(one, world, 13)
    world = born(one, world, 20, unplaced=(15,))
    reconciled(one, world, 21)
    _, world = reconciled(one, world, 40)
    assert one.incident.attempts[-1].reason is Reason.AVOIDANCE_ENDED
    again = others_accepted(world.recreated(50), 2)
    reconciled(one, refused(refused(again, 2, 52), 5, 52, node="gpu-2"), 53)
    assert one.incident.attempts[-1].action is not AttemptAction.AVOID_NODE


def test_observe_says_that_the_node_would_be_avoided() -> None:
    one = Controller(policy(Mode.OBSERVE))
    world = world_with_room().with_pod(5, node="gpu-2").with_node("gpu-2", labels={HOSTNAME_LABEL: "host-2"})
    one.reconcile(refused(refused(world, 2, 0), 5, 0, node="gpu-2"), 1)
    assert one.incident.would == "AvoidNode"
