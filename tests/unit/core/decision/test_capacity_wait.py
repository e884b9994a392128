"""Members that no node has room for: the other ranks wait, and their exits do not end the job."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from recovery.core.diagnosis.unscheduled import seats
from recovery.core.model.demand import Demand
from recovery.core.model.facts import GroupKey, JobFacts, Room, WaitingGroup
from recovery.core.model.ledger import AttemptAction, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.model.waits import Released, Suspension
from recovery.core.plan.actions import EmitEvent, ExtendBackoffLimit, ResumeWorkload, SuspendWorkload
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import Mode, Restart, WhileWaiting
from tests.unit.core.decision.restarted import recreated, triggered
from tests.unit.core.driver import NO_BACKOFF, Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

NO_NODE = "0/16 nodes are available: 16 Insufficient nvidia.com/gpu."
INCIDENT = "0d2f5c9e-1"


def waiting(**job: object) -> tuple[Controller, World]:
    """Rank 3 of the new group has no node since 12:00:10. The other three run."""
    controller, back = recreated()
    job = {"pod_restart_policy": "OnFailure", "backoff_limit": 6} | job
    return controller, one_waits(back.with_job(**job))


def one_waits(world: World, *, started: float = 12) -> World:
    for index in (0, 1, 2):
        world = world.started(index, started)
    return world.unschedulable(3, NO_NODE)


def raises(controller: Controller, world: World, seconds: float) -> list[ExtendBackoffLimit]:
    plan = controller.reconcile(world, seconds)
    return [action for action in plan.actions if isinstance(action, ExtendBackoffLimit)]


def resumes(controller: Controller) -> int:
    return sum(isinstance(action, ResumeWorkload) for action in controller.done)


# --- hold ----------------------------------------------------------------------------------------------------------


def test_the_limit_is_raised_before_the_ranks_give_up() -> None:
    """6 retries of the user, and two exits of each of 4 ranks; the Job fails when the restarts reach the limit."""
    controller, world = waiting()
    [found] = raises(controller, world, 13)
    assert (found.uid, found.own_limit) == ("job-2", 6)
    assert found.backoff_limit == 6 + 2 * 4 + 1


def test_the_limit_is_raised_while_a_kubelet_refuses_a_pod() -> None:
    """A node after a reboot has room, and its device plugin has not registered yet."""
    controller, back = recreated()
    world = back.with_job(pod_restart_policy="OnFailure")
    for index in (0, 1, 2):
        world = world.started(index, 12)
    message = "Pod was rejected: Allocate failed due to no healthy devices present"
    world = world.scheduled(3).with_pod(3, phase="Failed", reason="UnexpectedAdmissionError", message=message)
    assert len(raises(controller, world, 13)) == 1


def test_the_limit_is_raised_again_when_the_ranks_have_used_up_the_room() -> None:
    controller, world = waiting(backoff_limit=15, own_backoff_limit=6)
    assert raises(controller, world, 13) == []
    for index in (0, 1, 2):
        world = world.container_restarted(index, 1, 610)
    assert raises(controller, world, 612) == []
    for index in (0, 1, 2):
        world = world.container_restarted(index, 1, 1230)
    [again] = raises(controller, world, 1232)
    assert again.backoff_limit == 6 + 6 + 2 * 4 + 1


def test_the_exits_of_the_others_are_no_attempt_and_cost_nothing() -> None:
    controller, world = waiting()
    controller.reconcile(world, 13)
    charged, attempts = controller.ledger.totals.charged, controller.incident.attempts
    for round_ in range(1, 40):
        for index in (0, 1, 2):
            world = world.container_restarted(index, 1, 600.0 * round_)
        controller.reconcile(world, 600.0 * round_ + 2)
    assert controller.ledger.totals.charged == charged
    assert controller.incident.attempts == attempts
    assert len(controller.triggers) == 1
    assert controller.phase() is Phase.SCHEDULING
    assert controller.incident.reason is Reason.WAITING_FOR_CAPACITY


def test_a_member_that_is_deleted_meanwhile_is_said() -> None:
    """It did not give up: another client took it away."""
    controller, world = waiting()
    controller.reconcile(world, 13)
    controller.reconcile(world.pod_deleted(0, 20), 21)
    assert controller.incident.reason is Reason.MEMBER_REPLACED
    assert len(controller.triggers) == 1


def test_nothing_is_deleted_when_the_last_member_starts() -> None:
    """The ranks that exited are back in their containers, and all meet."""
    controller, world = waiting()
    for index in (0, 1, 2):
        world = world.container_restarted(index, 1, 610)
    controller.reconcile(world, 612)
    controller.settle(world.scheduled(3).all_started(7200).all_ready(7201), 7202)
    assert controller.recorded[0].closing is not None
    assert len(controller.triggers) == 1


@pytest.mark.parametrize(
    "job", [{"backoff_limit": 0}, {"backoff_limit_per_index": 2}, {"backoff_limit": 0, "pod_restart_policy": "Never"}]
)
def test_a_limit_that_no_one_may_raise_stays(job: dict[str, object]) -> None:
    controller, world = waiting(**job)
    assert raises(controller, world, 13) == []
    assert "the job may fail before it has a node" in controller.reconcile(world, 45).message


def test_with_never_the_message_says_that_a_rank_that_exits_leaves_its_node() -> None:
    controller, world = waiting(pod_restart_policy="Never")
    assert len(raises(controller, world, 13)) == 1
    assert "with restartPolicy Never a rank that exits leaves its node" in controller.reconcile(world, 45).message


@pytest.mark.parametrize("world_of", [World.paused, World.suspended], ids=["paused", "suspended by its user"])
def test_nothing_is_raised_where_the_job_is_not_to_be_written(world_of: Callable[[World], World]) -> None:
    controller, world = waiting()
    assert raises(controller, world_of(world), 13) == []


def test_nothing_is_raised_under_observe() -> None:
    controller, world = waiting()
    controller.policy = policy(mode=Mode.OBSERVE)
    assert raises(controller, world, 13) == []


def test_a_restart_that_is_put_off_does_not_let_the_job_fail_either() -> None:
    """RecreateGroupAfterStart: the pod that replaces the lost one finds no node."""
    controller = Controller(policy(restart=Restart.RECREATE_GROUP_AFTER_START))
    world = training().with_job(pod_restart_policy="OnFailure").pod_gone(3, 0).replaced(3, 1)
    assert len(raises(controller, world.unschedulable(3, NO_NODE), 2)) == 1
    assert controller.triggers == []


def test_nothing_is_raised_while_the_group_is_held() -> None:
    """docs/policy.md: nothing more is written to the job."""
    controller, back = recreated(limit=1)
    world = back.with_job(pod_restart_policy="OnFailure").all_scheduled().all_started(12)
    controller.reconcile(world, 13)
    again = world.pod_gone(3, 20).replaced(3, 21)
    controller.reconcile(again, 22)
    assert controller.phase() is Phase.HELD
    assert raises(controller, again.unschedulable(3, NO_NODE), 60) == []


def test_nothing_is_raised_where_a_rule_leaves_the_loss_to_kubernetes() -> None:
    controller = Controller(policy(rules=(Rule(name="leave", when=When(), action=RuleAction.IGNORE),)))
    world = training().with_job(pod_restart_policy="OnFailure").pod_gone(3, 0).replaced(3, 1)
    assert raises(controller, world.unschedulable(3, NO_NODE), 2) == []
    assert controller.reconcile(world.unschedulable(3, NO_NODE), 3).requeue_at == at(4)
    for seconds in (4, 60):
        assert raises(controller, world.unschedulable(3, NO_NODE), seconds) == []
    assert controller.incident.attempts[-1].action is AttemptAction.NONE


def test_the_message_of_a_paused_job_does_not_say_that_the_exits_are_harmless() -> None:
    controller, world = waiting()
    controller.reconcile(world.paused(), 13)
    assert "count towards the backoffLimit" in controller.reconcile(world.paused(), 45).message


def test_the_ledger_forgets_exits_that_no_pod_shows_any_more() -> None:
    controller, world = waiting()
    controller.reconcile(world, 13)
    old = tuple(f"pod-{number}/node/0" for number in range(3000))
    handled = msgspec.structs.replace(controller.ledger.handled, keys=(*old, *controller.ledger.handled.keys))
    controller.ledger = msgspec.structs.replace(controller.ledger, handled=handled)
    world = world.container_restarted(0, 1, 610)
    controller.reconcile(world, 612)
    assert len(controller.ledger.handled.keys) < 10
    attempts = controller.incident.attempts
    controller.reconcile(world, 613)
    assert controller.incident.attempts == attempts, "the exit that can be seen is still known"


def test_the_wait_for_a_node_replaces_a_wait_that_is_over() -> None:
    """Else the message says for hours that an old pod is to be deleted, which is gone."""
    controller, world = triggered()
    world = world.job_deleted(2).all_deleted(2)
    controller.reconcile(world, 2)
    controller.reconcile(world, 70)
    before = controller.incident.reason
    back = one_waits(world.recreated(71).with_job(pod_restart_policy="OnFailure"), started=73)
    controller.reconcile(back, 74)
    controller.reconcile(back, 105)
    assert (before, controller.incident.reason) == (Reason.WAITING_FOR_TEARDOWN, Reason.WAITING_FOR_CAPACITY)
    assert "to be deleted" not in controller.incident.message


# --- two groups that wait for each other ----------------------------------------------------------------------------


def other(*held: str) -> WaitingGroup:
    """Group `ml/other` needs four nodes of the same kind, and is on these."""
    return WaitingGroup(GroupKey("ml", "other"), 4, tuple(f"gpu-{number}" for number in range(8)), frozenset(held))


def beside(world: World, *others: WaitingGroup) -> World:
    return msgspec.structs.replace(world, waiting=others, room=Room(0))


@pytest.mark.parametrize("way", [WhileWaiting.HOLD, WhileWaiting.HOLD_THEN_RELEASE])
def test_a_group_that_holds_says_who_waits_for_its_nodes(way: WhileWaiting) -> None:
    """With a deadline neither way releases it."""
    controller, world = releasing(way)
    world = beside(world.with_workload(active_deadline_seconds=86_400), other("gpu-6", "gpu-7"))
    controller.reconcile(world, 13)
    assert controller.reconcile(world, 45).requeue_at == at(10.5 + 1800)
    before = controller.incident.reason
    plan = controller.reconcile(world, 1811)
    assert (before, controller.incident.reason) == (Reason.WAITING_FOR_CAPACITY, Reason.WAITS_FOR_EACH_OTHER)
    assert "group ml/other also waits, and holds 2 nodes" in controller.incident.message
    assert plan.requeue_at == at(1811 + 1800)


def test_it_is_said_once_and_no_more_when_the_other_one_has_its_nodes() -> None:
    controller, world = waiting()
    controller.reconcile(beside(world, other("gpu-6")), 13)
    controller.reconcile(beside(world, other("gpu-6")), 1811)
    said = controller.ledger
    controller.reconcile(beside(world, other("gpu-6", "gpu-7")), 1900)
    assert controller.ledger == said
    controller.reconcile(beside(world), 3611)
    assert controller.incident.reason is Reason.WAITING_FOR_CAPACITY


@pytest.mark.parametrize("others", [(), (other(),), (other("cpu-1"),)], ids=["none", "without nodes", "of other nodes"])
def test_a_group_that_holds_nothing_of_use_is_not_named(others: tuple[WaitingGroup, ...]) -> None:
    controller, world = waiting()
    controller.reconcile(beside(world, *others), 13)
    controller.reconcile(beside(world, *others), 1811)
    assert controller.incident.reason is Reason.WAITING_FOR_CAPACITY


def test_a_group_without_a_node_keeps_no_one_waiting() -> None:
    controller, back = recreated()
    world = back.with_job(pod_restart_policy="OnFailure")
    for index in range(4):
        world = world.unschedulable(index, NO_NODE)
    controller.reconcile(beside(world, other("gpu-6")), 13)
    controller.reconcile(beside(world, other("gpu-6")), 1811)
    assert controller.incident.reason is Reason.WAITING_FOR_CAPACITY


# --- release -------------------------------------------------------------------------------------------------------


def releasing(way: WhileWaiting = WhileWaiting.RELEASE, **settings: object) -> tuple[Controller, World]:
    """Like `waiting`, under a policy that releases the group."""
    controller, back = recreated(while_waiting=way, **settings)
    return controller, one_waits(back.with_job(pod_restart_policy="OnFailure"))


def released(backoff: Backoff = NO_BACKOFF) -> tuple[Controller, World]:
    """The group was suspended at 12:00:41, and its pods are gone."""
    controller, world = releasing(backoff=backoff)
    controller.reconcile(world, 13)
    controller.reconcile(world, 41)
    gone = world.suspended_by(INCIDENT).with_jobset(suspended=True).with_job(suspended=True)
    for index in range(4):
        gone = gone.pod_gone(index, 42)
    return controller, msgspec.structs.replace(gone, room=Room(3, ("gpu-0", "gpu-1", "gpu-2")))


def test_a_group_is_released_when_the_scheduler_has_had_its_time() -> None:
    controller, world = releasing()
    assert controller.reconcile(world, 13).requeue_at == at(40.5)
    plan = controller.reconcile(world, 41)
    assert [type(action) for action in plan.actions] == [SuspendWorkload, EmitEvent]
    assert controller.incident.released == Released(since=at(41))
    assert controller.incident.reason is Reason.RELEASED


def test_a_group_holds_its_nodes_first_if_the_policy_says_so() -> None:
    controller, world = releasing(WhileWaiting.HOLD_THEN_RELEASE)
    controller.reconcile(world, 13)
    controller.reconcile(world, 1800)
    assert controller.incident.released is None
    controller.reconcile(world, 1811)
    assert controller.incident.released is not None


def test_a_released_group_stays_suspended_until_there_is_room_for_all_its_members() -> None:
    controller, gone = released()
    controller.reconcile(gone, 50)
    assert controller.reconcile(gone, 80).requeue_at == at(95)
    assert resumes(controller) == 0
    room = msgspec.structs.replace(gone, room=Room(4, ("gpu-0", "gpu-1", "gpu-2", "gpu-3")))
    controller.reconcile(room, 90)
    assert resumes(controller) == 1
    assert len(controller.triggers) == 1


def test_a_group_that_does_not_find_the_room_is_released_again_for_twice_as_long() -> None:
    controller, gone = released()
    room = msgspec.structs.replace(gone, room=Room(4, ("gpu-0", "gpu-1", "gpu-2", "gpu-3")))
    controller.reconcile(room, 90)
    back = one_waits(msgspec.structs.replace(gone.released().resumed(91), room=None), started=92)
    controller.reconcile(back, 93)
    plan = controller.reconcile(back, 122)
    assert [type(action) for action in plan.actions] == [SuspendWorkload, EmitEvent]
    assert controller.incident.released == Released(since=at(41), times=2)
    assert plan.requeue_at == at(122 + 60)


def test_a_group_for_which_no_room_is_counted_tries_nevertheless_after_long_waits() -> None:
    """The count is stricter than the scheduler. It tries after 60 times its wait: half an hour, then an hour."""
    controller, gone = released()
    tries, doubled = 71 + 30 * 60, 60 * 60
    assert controller.reconcile(gone, tries - 5).requeue_at == at(tries)
    assert resumes(controller) == 0
    controller.reconcile(gone, tries)
    assert resumes(controller) == 1
    back = one_waits(gone.released().resumed(tries + 1), started=tries + 2)
    controller.reconcile(back, tries + 3)
    controller.reconcile(back, tries + 32)
    assert controller.incident.released == Released(since=at(41), times=2)
    controller.reconcile(gone, tries + 32 + 60 + doubled - 5)
    assert resumes(controller) == 1
    controller.reconcile(gone, tries + 32 + 60 + doubled)
    assert resumes(controller) == 2


def test_a_release_keeps_the_priority_of_the_pods_which_go() -> None:
    controller, world = releasing()
    world = world.with_pod(1, priority=1000)
    controller.reconcile(world, 13)
    controller.reconcile(world, 41)
    assert controller.incident.released == Released(since=at(41), priority=1000)


def test_a_crash_before_the_suspension_suspends_only_what_still_waits() -> None:
    controller, world = releasing()
    controller.reconcile(world, 13)
    controller.reconcile(world, 41)
    assert [type(each) for each in controller.reconcile(world, 42).actions] == [SuspendWorkload]
    placed = world.scheduled(3)
    plan = controller.reconcile(placed, 43)
    assert not [each for each in plan.actions if isinstance(each, SuspendWorkload)]
    assert controller.incident.suspension is None


def test_a_retry_resumes_the_group_whether_there_seems_to_be_room_or_not() -> None:
    controller, gone = released()
    controller.reconcile(gone, 50)
    asked = gone.asked("recovery.trainjob.dev/retry", "2026-11-21T12:01:00Z")
    controller.reconcile(asked, 61)
    controller.reconcile(asked, 62)
    assert resumes(controller) == 1


def test_the_backoff_of_a_later_attempt_does_not_wait_for_room() -> None:
    """The group was released, came back, and lost a member again once all of its members had run."""
    controller, gone = released(backoff=Backoff(initial=timedelta(seconds=30)))
    room = msgspec.structs.replace(gone, room=Room(4, ("gpu-0", "gpu-1", "gpu-2", "gpu-3")))
    controller.reconcile(room, 90)
    back = msgspec.structs.replace(gone.released().resumed(91), room=None).all_scheduled().all_started(92)
    controller.reconcile(back, 93)
    controller.reconcile(back.pod_deleted(3, 95), 96)
    assert len(controller.triggers) == 2
    assert controller.incident.released is None
    assert controller.incident.suspension == Suspension(until=at(126))


def test_a_launcher_takes_no_seat_of_its_workers() -> None:
    """Room is counted for pods that ask for accelerators. Eight workers and a launcher need eight seats."""
    of_workers = JobFacts("w", "j-1", "1", "jobset-1", "worker", at(0), parallelism=8, demand=Demand(gpus=8))
    of_launcher = JobFacts("l", "j-2", "1", "jobset-1", "launcher", at(0), parallelism=1)
    world = msgspec.structs.replace(group(), jobs=(of_workers, of_launcher), pods=())
    assert seats(world.snapshot()) == 8


def test_a_release_is_an_event_and_announces_no_time() -> None:
    controller, _ = released()
    assert controller.events.count("Released") == 1
    assert controller.ledger.next_attempt_at is None


def test_a_job_with_a_deadline_is_not_released() -> None:
    """A suspension would give it more time than its user has allowed."""
    controller, world = releasing()
    world = world.with_workload(active_deadline_seconds=86_400)
    controller.reconcile(world, 13)
    assert "its deadline of 86400 s goes on" in controller.reconcile(world, 60).message
    assert controller.incident.released is None
