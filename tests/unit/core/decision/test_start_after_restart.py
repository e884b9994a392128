"""After the trigger: a Job without pods, ranks that do not start, and the explanation of each wait."""

import msgspec
import pytest

from recovery.core.diagnosis.membership import place
from recovery.core.model.ledger import Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, TouchJob
from tests.unit.core.decision.restarted import recovered, recreated, triggered
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

# --- a Job without pods --------------------------------------------------------------------------------------------


def without_pods(**job: object) -> tuple[Controller, World]:
    controller, world = triggered()
    empty = world.job_gone().job_created(10).with_job(**job)
    controller.reconcile(empty, 10)
    return controller, empty


def test_a_job_without_pods_is_touched_once_after_a_minute() -> None:
    controller, empty = without_pods()
    assert controller.reconcile(empty, 20).requeue_at == at(70)
    assert controller.touches == []
    plan = controller.reconcile(empty, 70)
    assert controller.touches == [TouchJob(1, "train-node-0", "job-2", "0d2f5c9e-1-1")]
    assert plan.requeue_at == at(130)
    controller.reconcile(empty.with_job(touched="0d2f5c9e-1-1"), 80)
    assert len(controller.touches) == 1


def test_after_two_minutes_it_is_another_attempt() -> None:
    controller, empty = without_pods()
    plan = controller.reconcile(empty, 130)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1", "job-2"]
    assert plan.message == "Job train-node-0 has had no pods for 120 s; attempt 2: deleting Job train-node-0 again"
    again = empty.job_gone().job_created(140)
    controller.reconcile(again, 140)
    controller.reconcile(again, 200)
    assert controller.touches[-1].value == "0d2f5c9e-1-2"


def test_it_is_touched_before_it_is_given_up_though_no_one_looked_for_minutes() -> None:
    """The controller was down from before the old Job's deletion until long after the new Job's creation."""
    controller, world = triggered()
    empty = world.job_gone().job_created(10)
    controller.reconcile(empty, 200)
    assert controller.reconcile(empty, 200.5).requeue_at == at(260)
    assert len(controller.triggers) == 1, "not once more, for a time in which no one touched it"
    controller.reconcile(empty, 260)
    assert [touch.uid for touch in controller.touches] == ["job-2"]
    controller.reconcile(empty.with_job(touched="0d2f5c9e-1-1"), 320)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1", "job-2"]


def with_a_late_successor() -> tuple[Controller, World]:
    """Rank 2 fails before rank 3 has started, and the Job delays the replacement of rank 2."""
    controller, world = triggered()
    starting = world.job_gone().job_created(10).pods_created(10).all_scheduled(11)
    for index in (0, 1):
        starting = starting.started(index, 12)
    controller.reconcile(starting.started(2, 12).pod_failed(2, 1, 100), 101)
    return controller, starting.started(2, 12).pod_failed(2, 1, 100)


def test_a_job_that_delays_the_next_pod_is_waited_for_and_named() -> None:
    controller, world = with_a_late_successor()
    plan = controller.settle(world, 140)
    assert plan.ledger.incident is not None
    assert "waiting for the Job to replace pod train-node-0-2" in plan.ledger.incident.message
    assert len(controller.triggers) == 1


def test_after_the_start_timeout_it_is_another_attempt_because_a_new_job_delays_nothing() -> None:
    controller, world = with_a_late_successor()
    timeout = controller.incident.pinned.start_timeout_seconds
    assert controller.reconcile(world, 99 + timeout).requeue_at == at(100 + timeout)
    assert len(controller.triggers) == 1
    plan = controller.reconcile(world, 100 + timeout)
    assert len(controller.triggers) == 2
    assert plan.ledger.current_incident.reason is Reason.START_TIMEOUT


def test_a_late_pod_that_has_been_scheduled_causes_no_new_attempt_at_the_start_timeout() -> None:
    controller, world = with_a_late_successor()
    timeout = controller.incident.pinned.start_timeout_seconds
    controller.reconcile(world.replaced(2, 110).scheduled(2, 99 + timeout), 100 + timeout)
    assert len(controller.triggers) == 1


def test_pods_that_have_failed_are_not_counted_among_those_that_exist() -> None:
    controller, world = triggered()
    starting = world.job_gone().job_created(10).pods_created(10).scheduled(0, 11).scheduled(1, 11).scheduled(2, 11)
    failed = starting.started(2, 12).pod_failed(2, 1, 13).replaced(2, 14)
    controller.reconcile(failed, 14)
    plan = controller.settle(failed, 60)
    assert "4 of 4 pods exist so far, and 2 of them have a node" in plan.ledger.current_incident.message


def test_pods_that_are_refused_are_only_spoken_of() -> None:
    controller, empty = without_pods(failed_create='pods "train-node-0-0-abc" is forbidden: exceeded quota: gpus')
    plan = controller.reconcile(empty, 300)
    assert plan.message.startswith("pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; no rule matched")
    assert plan.message.endswith(
        'Job train-node-0 cannot create its pods: pods "train-node-0-0-abc" is forbidden: exceeded quota: gpus'
    )
    assert plan.requeue_at == at(330)
    assert controller.touches == []
    assert len(controller.triggers) == 1
    assert controller.reconcile(empty, 330).message == plan.message


def test_a_job_that_has_just_lost_all_its_pods_is_not_given_up_at_once() -> None:
    controller, back = recreated()
    gone = back
    for index in range(4):
        gone = gone.pod_gone(index, 500)
    plan = controller.reconcile(gone, 501)
    assert len(controller.triggers) == 1
    assert controller.touches == []
    assert plan.requeue_at == at(560)


def test_pods_that_went_with_another_job_do_not_delay_the_watchdog() -> None:
    controller, empty = without_pods()
    stranger = msgspec.structs.replace(training().pod(0), job_uid="job-9", gone_at=at(65))
    # The store forgets the pod with its Job. A decision does not rely on that.
    world = msgspec.structs.replace(empty, pods=(stranger,)).although("gone-pod-without-job")
    controller.reconcile(world, 70)
    assert len(controller.touches) == 1


def test_the_watchdog_does_not_touch_a_suspended_job_or_a_paused_one() -> None:
    controller, empty = without_pods()
    controller.reconcile(empty.with_job(suspended=True), 300)
    controller.reconcile(empty.paused(), 300)
    assert controller.touches == []
    assert len(controller.triggers) == 1


# --- waiting for nodes, and for the start --------------------------------------------------------------------------


def test_a_replacement_that_waits_for_capacity_is_not_held_against_the_start() -> None:
    """docs/policy.md: `timeouts.start` runs from when all pods have a node. Waiting for capacity does not count."""
    controller, back = recreated()
    placed = back.all_scheduled()
    controller.reconcile(placed, 12)
    waiting = placed.pod_gone(3, 20).replaced(3, 21).unschedulable(3, "0/16 nodes are available")
    controller.reconcile(waiting, 22)
    controller.reconcile(waiting, 60)
    assert controller.phase() is Phase.SCHEDULING
    assert controller.incident.reason is Reason.WAITING_FOR_CAPACITY
    controller.reconcile(waiting, 5000)
    assert len(controller.triggers) == 1
    again = waiting.scheduled(3)
    assert controller.reconcile(again, 5001).requeue_at == at(5901)
    controller.reconcile(again, 5901)
    assert len(controller.triggers) == 2


def test_waiting_for_capacity_is_said_once_and_tears_nothing_down() -> None:
    controller, back = recreated()
    waiting = back.unschedulable(0, "0/16 nodes are available: 16 Insufficient nvidia.com/gpu.")
    assert controller.reconcile(waiting, 11).requeue_at == at(40.5)
    plan = controller.reconcile(waiting, 41)
    assert plan.message.endswith(
        "; waiting for capacity: pod train-node-0-0-20 (rank 0, not scheduled): 0/16 nodes are available: "
        "16 Insufficient nvidia.com/gpu.; the exits of the other ranks do not end the job, but with restartPolicy "
        "Never a rank that exits leaves its node, and others may take it: whileWaiting Release suits this job better"
    )
    changed = back.unschedulable(0, "0/17 nodes are available: 17 Insufficient nvidia.com/gpu.")
    assert controller.reconcile(changed, 90_000).message == plan.message
    assert len(controller.triggers) == 1


def test_a_pod_that_has_a_node_by_now_is_not_waited_for() -> None:
    controller, back = recreated()
    placed = back.unschedulable(0, "0/16 nodes are available").scheduled(0)
    assert "waiting" not in controller.reconcile(placed, 41).message


def test_ranks_that_do_not_start_in_time_are_another_attempt() -> None:
    controller, back = recreated(start_seconds=600)
    scheduled = back.all_scheduled().started(0, 20)
    assert controller.reconcile(scheduled, 21).requeue_at == at(621)
    assert controller.reconcile(scheduled, 620).requeue_at == at(621)
    plan = controller.reconcile(scheduled, 621)
    assert plan.message == (
        "not all ranks started within 600 s after they were scheduled; attempt 2: deleting Job train-node-0 again"
    )
    assert [trigger.uid for trigger in controller.triggers] == ["job-1", "job-2"]


def test_the_start_is_timed_again_in_each_attempt() -> None:
    controller, back = recreated(start_seconds=600)
    controller.reconcile(back.all_scheduled(), 21)
    controller.reconcile(back.all_scheduled(), 621)
    second = back.recreated(640).all_scheduled()
    assert controller.reconcile(second, 650).requeue_at == at(1250)


def test_a_start_that_takes_too_long_under_a_pause_waits_for_its_end() -> None:
    controller, back = recreated(start_seconds=600)
    slow = back.all_scheduled()
    controller.reconcile(slow, 21)
    plan = controller.reconcile(slow.paused(), 700)
    assert plan.reason is Reason.JOB_PAUSED
    assert len(controller.triggers) == 1


def test_the_rendezvous_ends_by_ready_and_says_so() -> None:
    controller, back = recreated()
    plan = controller.reconcile(back.all_ready(20), 25)
    assert controller.incident.closing is not None
    assert controller.incident.closing.ended_at == at(21)
    assert plan.message.endswith("all 4 ranks are Ready (source: ready, verified: false)")


# --- no wait is silent ---------------------------------------------------------------------------------------------


def said_after(controller: Controller, world: World, seconds: float) -> str:
    """The explanation once the phase has lasted for a while. Nothing is explained before that, and nothing is done."""
    first = controller.reconcile(world, seconds)
    assert first.requeue_at is not None
    plan = controller.reconcile(world, (first.requeue_at - at(0)).total_seconds())
    assert not any(isinstance(action, DeleteJob | TouchJob) for action in plan.actions)
    assert plan.message.startswith(first.message + "; ")
    return plan.message.removeprefix(first.message + "; ")


def test_a_job_set_that_does_not_create_its_job_again_is_named() -> None:
    controller, world = triggered()
    assert said_after(controller, world.job_gone(), 5) == "waiting for JobSet to create the Job again"


def test_an_old_job_that_a_finalizer_keeps_is_named() -> None:
    controller, world = triggered()
    going = world.job_deleted(1)
    kept = msgspec.structs.replace(going, pods=())
    assert said_after(controller, kept, 5).startswith("waiting for Job train-node-0 to be deleted: its pods are")


def test_pods_that_are_not_all_created_are_counted() -> None:
    controller, back = recreated()
    some = msgspec.structs.replace(back, pods=back.pods[:3])
    assert said_after(controller, some, 11) == "3 of 4 pods exist so far, and 0 of them have a node"


def test_a_pod_that_runs_and_is_not_ready_is_named() -> None:
    controller, back = recreated()
    slow = back.all_scheduled().all_started(12).all_ready(13).with_pod(2, ready=False)
    assert said_after(controller, slow, 14) == f"waiting for {place(slow.pod(2))} to be Ready"


# --- a controller that was held up, or has just started -------------------------------------------------------------


def test_a_new_controller_knows_from_the_ledger_that_the_group_has_run_whole() -> None:
    """Rank 1 was lost and replaced while no controller ran. Its pods only show that all ranks run since then."""
    controller, whole = recovered()
    replaced = whole.pod_failed(1, 137, 100).came_back(1, 110, 120)
    controller.reconcile(replaced.controller_restarted(), 200)
    assert len(controller.triggers) == 2
    assert "exit code 137" in controller.incident.evidence[0]


def test_a_group_whose_ranks_are_all_new_is_not_restarted_by_a_new_controller() -> None:
    """All pods were deleted while no controller ran, and the Job has replaced them."""
    controller, whole = recovered()
    for index in range(4):
        whole = whole.pod_gone(index, 100).replaced(index, 101)
    for index in range(4):
        whole = whole.started(index, 120).pod_ready(index, 130)
    controller.reconcile(whole.controller_restarted(), 200)
    assert len(controller.triggers) == 1


def test_what_the_ledger_knows_is_not_said_of_a_job_that_was_resumed_since() -> None:
    controller, whole = recovered()
    resumed = whole.suspended().resumed(60).all_scheduled().started(1, 70)
    failed = resumed.pod_failed(1, 137, 71).replaced(1, 72)
    controller.reconcile(failed.controller_restarted(), 73)
    assert len(controller.triggers) == 1, "the new run has yet to be whole"


@pytest.mark.parametrize("unseen", ["the Job and its pods", "the pods of a Job that is not new"])
def test_a_phase_that_the_cache_shows_late_is_dated_by_live_facts(unseen: str) -> None:
    """A process that was frozen for half a minute reads the watch of Jobs before the watch of pods."""
    controller, world = triggered()
    controller.reconcile(world.job_deleted(1).all_deleted(1), 1.5)
    gone = world.job_gone()
    back = gone.job_created(32)
    cached = gone if unseen == "the Job and its pods" else back
    live = back.pods_created(32).all_scheduled(32)
    controller.write(controller.plan_on(cached.snapshot(), live.snapshot(live=True), 60))
    starting = controller.incident.phases[-1]
    assert (starting.phase, starting.started_at) == (Phase.STARTING, at(33)), "within the second"


def test_a_new_job_without_pods_is_believed_to_have_none() -> None:
    controller, world = triggered()
    controller.reconcile(world.job_deleted(1).all_deleted(1), 1.5)
    new = world.job_gone().job_created(10)
    reads = controller.live_reads
    controller.reconcile(new, 11)
    assert controller.ledger.phase is Phase.SCHEDULING
    assert controller.live_reads == reads


def test_pods_that_the_cache_shows_as_they_were_do_not_date_their_teardown() -> None:
    """The watch of Jobs is up to date, and that of pods is not. The old Job was gone when its successor was created."""
    controller, world = triggered()
    cached = msgspec.structs.replace(world.job_gone().job_created(5), pods=world.pods)
    controller.reconcile(cached, 60)
    going = controller.incident.phases[-1]
    assert (going.phase, going.started_at) == (Phase.TEARING_DOWN, at(6)), "within the second"


def test_pods_that_go_after_their_job_date_their_teardown() -> None:
    controller, world = triggered()
    cached = msgspec.structs.replace(world.job_gone().job_created(5), pods=world.all_deleted(2).pods)
    controller.reconcile(cached, 60)
    going = controller.incident.phases[-1]
    assert (going.phase, going.started_at) == (Phase.TEARING_DOWN, at(3)), "within the second"
