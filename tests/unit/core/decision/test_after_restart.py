"""From the trigger until all ranks are Ready: what may go wrong on the way."""

import msgspec
import pytest

from recovery.core.diagnosis.membership import place
from recovery.core.model.facts import ContainerFacts
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, DeletePods, TouchJob
from tests.unit.core.diagnosis.test_native_policies import on_exit
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.world import World, at, training


def triggered(**settings: object) -> tuple[Controller, World]:
    """The trigger has been sent; the Job is about to go."""
    controller = Controller(policy(**settings))  # type: ignore[arg-type]
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    return controller, world


def recreated(**settings: object) -> tuple[Controller, World]:
    """Job 2 is there since 12:00:10, its pods are Pending."""
    controller, world = triggered(**settings)
    back = world.recreated(10)
    controller.reconcile(back, 10.5)
    return controller, back


def restarts_in_place(world: World) -> World:
    """A kubelet restarts its containers."""
    return world.with_job(pod_restart_policy="OnFailure")


def actions(controller: Controller) -> list[AttemptAction]:
    return [attempt.action for attempt in controller.incident.attempts]


def recovered() -> tuple[Controller, World]:
    """The new group runs whole since 12:00:21, and the incident is history."""
    controller, back = recreated()
    whole = back.all_scheduled().all_started(20).all_ready(21)
    controller.settle(whole, 22)
    assert controller.recorded[0].closing is not None
    assert controller.ledger.incident is None
    return controller, whole


# --- the trigger ---------------------------------------------------------------------------------------------------


def test_a_trigger_that_was_lost_is_sent_again_in_the_version_that_is_there_now() -> None:
    controller, world = triggered()
    changed = world.with_job(failed=1)
    controller.reconcile(changed, 2)
    assert [trigger.resource_version for trigger in controller.triggers] == [
        world.job.resource_version,
        changed.job.resource_version,
    ]
    assert controller.ledger.epoch == 1


def test_old_pods_are_asked_to_go_until_all_are() -> None:
    controller, world = triggered()
    going = world.job_deleted(1).pod_deleted(0, 1)
    controller.done.clear()
    controller.reconcile(going, 2)
    assert [name[:14] for name in controller.pod_deletes] == ["train-node-0-1", "train-node-0-2"]
    assert all(action.grace_seconds is None for action in controller.done if isinstance(action, DeletePods))
    assert controller.triggers == []


def test_pods_of_an_adopted_restart_are_the_jobsets_to_delete() -> None:
    controller = Controller()
    world = training().pod_failed(3, 1, 0).restarted_by_jobset()
    controller.reconcile(world, 1)
    controller.reconcile(world.job_deleted(1), 2)
    assert controller.phase() is Phase.TEARING_DOWN
    assert controller.pod_deletes == []


def test_an_old_pod_that_outlives_its_job_is_still_tearing_down() -> None:
    controller, world = triggered()
    back = world.recreated(10)
    controller.reconcile(msgspec.structs.replace(back, pods=(world.pod(0), *back.pods)), 11)
    assert controller.phase() is Phase.TEARING_DOWN


def test_old_pods_that_do_not_go_are_named_once() -> None:
    """A dead kubelet: the grace is over long since, and nothing may be forced yet."""
    controller, world = triggered()
    going = world.job_deleted(1).all_deleted(1)
    assert controller.reconcile(going, 2).requeue_at == at(62)
    plan = controller.reconcile(going.pod_gone(0, 30).pod_gone(1, 30).pod_gone(2, 30), 62)
    assert plan.message.endswith("; waiting for pod train-node-0-3-10 (rank 3, node gpu-3) to be gone")
    assert controller.reconcile(going, 100).message == plan.message
    other, world = triggered()
    other.reconcile(going, 2)
    assert other.reconcile(going, 62).message.endswith("(rank 0, node gpu-0) and 3 more to be gone")


def test_a_failed_pod_fills_no_place() -> None:
    controller, back = recreated()
    half = back.all_scheduled().started(0, 12).started(1, 12).started(2, 12).with_pod(3, phase="Failed")
    controller.reconcile(half, 13)
    assert controller.phase() is Phase.SCHEDULING


# --- losses on the way ---------------------------------------------------------------------------------------------


def test_a_member_lost_before_all_ran_is_replaced_without_a_trigger() -> None:
    controller, back = recreated()
    lost = back.all_scheduled().started(0, 12).pod_deleted(1, 13)
    plan = controller.reconcile(lost, 14)
    assert plan.reason is Reason.MEMBER_REPLACED
    assert actions(controller) == [AttemptAction.RECREATE_GROUP, AttemptAction.NONE]
    assert controller.ledger.epoch == 1
    controller.settle(lost.came_back(1, 20, 30).all_ready(30), 31)
    assert len(controller.triggers) == 1
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome is Outcome.RECOVERED


def test_a_new_group_that_has_trained_to_its_end_is_waited_for_no_longer() -> None:
    """Seed 516 of the simulation: all ranks exit 0 at once, and sidecars keep their pods Running. Nobody becomes Ready
    any more, and no GPU waits for that."""
    controller, back = recreated()
    world = back.all_scheduled().all_started(20)
    sidecar = ContainerFacts("log-shipper", ready=True, running_since=at(20))
    for index in range(4):
        controller.settle(world, 21 + index)
        assert controller.recorded == [], "one still trains"
        world = world.succeeded(index).with_other(index, sidecar).with_pod(index, phase="Running")
    controller.settle(world, 60)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.SUPERSEDED, Reason.JOB_FINISHING)
    assert incident.closing.ended_at == at(21), "within the second in which the last of them began"


def test_each_such_loss_is_noted_once() -> None:
    controller, back = recreated()
    lost = back.all_scheduled().pod_deleted(1, 13)
    controller.reconcile(lost, 14)
    controller.reconcile(lost, 15)
    controller.reconcile(lost.pod_gone(1, 16).replaced(1, 16), 17)
    assert len(controller.incident.attempts) == 2


def test_a_member_lost_after_all_ran_is_another_attempt_without_a_charge() -> None:
    controller, back = recreated()
    running = back.all_started(20)
    controller.reconcile(running, 21)
    assert controller.phase() is Phase.RENDEZVOUS
    plan = controller.reconcile(running.pod_failed(1, 137, 25), 26)
    assert plan.message == (
        "pod train-node-0-1-20 (rank 1, node gpu-1) failed with exit code 137; attempt 2: deleting Job train-node-0 "
        "once more"
    )
    assert [trigger.uid for trigger in controller.triggers] == ["job-1", "job-2"]
    assert controller.phase() is Phase.DECIDED
    assert controller.ledger.epoch == controller.ledger.totals.restarts == 2
    assert controller.ledger.totals.charged == controller.ledger.totals.incidents == 1
    assert controller.incident.evidence[1].startswith("pod train-node-0-1-20 (rank 1, node gpu-1) failed")
    third = running.recreated(40).all_ready(50)
    controller.settle(third, 51)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert incident.closing.outcome is Outcome.RECOVERED
    assert controller.events == ["RecreatingGroup", "RecreatingGroup", "IncidentRecovered"]


def test_a_paused_group_whose_ranks_were_all_replaced_since_the_loss_has_recovered() -> None:
    """Seed 146 of the simulation: all ranks failed while a person kept the controller from acting, and their Job made
    them again. They train, so no restart is due when the pause ends."""
    controller, back = recreated()
    running = back.all_scheduled().all_started(20)
    controller.reconcile(running, 21)
    world = running.paused()
    for index in range(4):
        world = world.pod_failed(index, 134, 25)
    controller.reconcile(world, 26)
    for index in range(3):
        world = world.came_back(index, 30, 32 + index)
    controller.settle(world, 36)
    assert controller.recorded == [], "one has not come back"
    controller.settle(world.came_back(3, 40, 42), 60)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.ended_at) == (Outcome.RECOVERED, at(43))
    controller.settle(world.came_back(3, 40, 42).asked("recovery.trainjob.dev/paused", "false"), 70)
    assert len(controller.triggers) == 1


@pytest.mark.parametrize(
    ("joined_probe", "ready_at", "recovered"), [(False, 33, False), (True, 33, True), (True, 22, False)]
)
def test_a_paused_group_that_kept_a_rank_has_only_where_that_rank_has_joined_since(
    joined_probe: bool, ready_at: float, recovered: bool
) -> None:
    controller, back = recreated()
    world = back.all_scheduled().all_started(20)
    for index in range(4):
        world = world.with_pod(index, joined_probe=joined_probe)
    controller.reconcile(world, 21)
    world = world.paused().pod_failed(0, 134, 25).came_back(0, 30, 32).with_pod(0, joined_probe=joined_probe)
    for index in range(1, 4):
        world = world.pod_ready(index, ready_at)
    controller.settle(world, 60)
    assert bool(controller.recorded) is recovered


def test_a_container_restarted_in_place_on_the_way_counts_by_whether_all_had_run() -> None:
    controller, back = recreated()
    early = restarts_in_place(back).all_scheduled().started(0, 12).container_restarted(0, 1, 14)
    controller.reconcile(early, 16)
    assert len(controller.triggers) == 1
    late = early.all_started(20).container_restarted(0, 1, 25)
    controller.reconcile(late, 27)
    assert len(controller.triggers) == 2


def test_a_new_job_that_fails_before_all_ran_is_not_replacing_anybody() -> None:
    controller, back = recreated()
    plan = controller.reconcile(back.all_scheduled().job_failing("BackoffLimitExceeded", 20), 20.5)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1", "job-2"]
    assert plan.message == (
        "Job train-node-0 is failing: BackoffLimitExceeded; attempt 2: deleting Job train-node-0 once more"
    )


def test_a_new_job_that_fails_by_the_users_rule_is_left_to_fail() -> None:
    controller = Controller()
    world = training(rules=(on_exit("FailJob", 42),)).pod_deleted(3, 0)
    controller.reconcile(world, 1)
    back = world.recreated(10).all_started(20).pod_failed(1, 42, 25)
    controller.reconcile(back, 26)
    plan = controller.reconcile(back.job_failing("PodFailurePolicy", 26), 27)
    assert plan.reason is Reason.POD_FAILURE_POLICY
    assert len(controller.triggers) == 1
    controller.settle(back.job_failing("PodFailurePolicy", 26, finally_=True).jobset_failed(28), 29)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome_reason == "NativePolicy"


def test_a_kubelet_whose_clock_is_behind_does_not_hide_a_second_loss() -> None:
    controller, back = recreated()
    late = back.all_started(20).pod_failed(1, 137, -30).although("ended-before-begun")
    controller.reconcile(late, 26)
    assert len(controller.triggers) == 2


def test_crashes_without_end_on_the_way_forget_neither_the_restart_nor_the_bounds() -> None:
    controller, back = recreated()
    world = restarts_in_place(back).all_scheduled().started(0, 12)
    for number in range(40):
        world = world.container_restarted(0, 1, 20 + 10 * number)
        controller.reconcile(world, 22 + 10 * number)
    assert len(controller.triggers) == 1
    assert len(controller.incident.attempts) == 20
    assert actions(controller)[0] is AttemptAction.RECREATE_GROUP
    assert controller.incident.attempts[-1].number == 41
    assert controller.ledger.epoch == 1


def test_observing_an_adopted_restart_acts_on_no_second_loss() -> None:
    controller = observing()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    back = world.recreated(10).all_started(20).pod_deleted(1, 25)
    controller.reconcile(back, 26)
    controller.reconcile(back, 27)
    assert controller.workload_actions == []


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
    assert plan.message == "Job train-node-0 got no pods for 120 s; attempt 2: deleting Job train-node-0 once more"
    again = empty.job_gone().job_created(140)
    controller.reconcile(again, 140)
    controller.reconcile(again, 200)
    assert controller.touches[-1].value == "0d2f5c9e-1-2"


def test_it_is_touched_before_it_is_given_up_though_nobody_looked_for_minutes() -> None:
    """The controller was away from before the old Job went until long after the new one was made."""
    controller, world = triggered()
    empty = world.job_gone().job_created(10)
    controller.reconcile(empty, 200)
    assert controller.reconcile(empty, 200.5).requeue_at == at(260)
    assert len(controller.triggers) == 1, "not once more, for a time in which nobody touched it"
    controller.reconcile(empty, 260)
    assert [touch.uid for touch in controller.touches] == ["job-2"]
    controller.reconcile(empty.with_job(touched="0d2f5c9e-1-1"), 320)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1", "job-2"]


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
    # The store forgets it with its Job; a decision does not rely on that.
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
    """docs/policy.md: `timeouts.start` runs from when all pods have a node; waiting for capacity does not count."""
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
        "16 Insufficient nvidia.com/gpu."
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
        "not all ranks ran within 600 s of being scheduled; attempt 2: deleting Job train-node-0 once more"
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


# --- the end of the platform's patience ----------------------------------------------------------------------------


def test_a_jobset_that_fails_meanwhile_ends_the_incident() -> None:
    controller, back = recreated()
    plan = controller.reconcile(back.jobset_failed(30), 31)
    assert controller.incident.closing is not None
    assert (controller.incident.closing.outcome, controller.incident.closing.outcome_reason) == (
        Outcome.FAILED,
        "PlatformGaveUp",
    )
    assert plan.reason is Reason.PLATFORM_GAVE_UP
    assert controller.events[-1] == "IncidentFailed"


def test_a_member_that_succeeds_as_another_is_lost_ends_the_incident() -> None:
    controller, back = recreated()
    plan = controller.reconcile(back.all_started(20).succeeded(0).pod_failed(1, 1, 25), 26)
    assert plan.reason is Reason.JOB_FINISHING
    assert len(controller.triggers) == 1
    controller.settle(back.all_started(20).succeeded(0).pod_failed(1, 1, 25), 26)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome is Outcome.SUPERSEDED


def test_a_users_rule_that_ends_the_job_before_the_trigger_is_out_goes_first() -> None:
    controller = Controller()
    world = training(rules=(on_exit("FailJob", 42),)).pod_failed(3, 1, 0)
    controller.write(controller.plan(world, 1))
    plan = controller.reconcile(world.pod_failed(2, 42, 1), 2)
    assert plan.message.endswith(
        "standing aside, because podFailurePolicy rule 0 of Job train-node-0 (action FailJob) "
        "matches pod train-node-0-2-10"
    )
    assert controller.triggers == []
    assert controller.ledger.epoch == 1


def test_a_rule_that_ignores_what_comes_late_does_not_stop_the_trigger() -> None:
    controller = Controller()
    world = training(rules=(on_exit("Ignore", 42),)).pod_failed(3, 1, 0)
    controller.write(controller.plan(world, 1))
    controller.reconcile(world.pod_failed(2, 42, 1), 2)
    assert len(controller.triggers) == 1


def test_a_job_that_ends_by_a_users_rule_is_not_restarted_for_what_comes_later() -> None:
    controller = Controller()
    world = training(rules=(on_exit("FailJob", 42),)).pod_deleted(3, 0)
    controller.reconcile(world, 1)
    back = world.recreated(10).all_started(20).pod_failed(1, 42, 25)
    controller.reconcile(back, 26)
    controller.reconcile(back.pod_failed(0, 134, 27), 28)
    assert len(controller.triggers) == 1


def test_a_restart_without_a_charge_leaves_the_first_one_to_the_budget() -> None:
    """Adopted while the budget was exhausted; by the next loss the window has passed, and the trigger is charged."""
    controller = Controller(policy(limit=1, window_seconds=100))
    controller.ledger = msgspec.structs.replace(
        controller.ledger, budget=msgspec.structs.replace(controller.ledger.budget, charges=(at(-90),), limit=1)
    )
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    assert controller.phase() is Phase.HELD
    back = world.restarted_by_jobset().recreated(5)
    controller.reconcile(back, 6)
    assert not controller.incident.charged
    controller.reconcile(back.all_started(8).pod_deleted(1, 20), 21)
    assert len(controller.triggers) == 1
    assert controller.incident.charged
    assert controller.ledger.totals.charged == 1


# --- no wait is silent ---------------------------------------------------------------------------------------------


def said_after(controller: Controller, world: World, seconds: float) -> str:
    """What is said once the phase has lasted for a while; nothing is added before, and nothing is done."""
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
    assert said_after(controller, kept, 5).startswith("waiting for Job train-node-0 to be gone: its pods are")


def test_pods_that_are_not_all_created_are_counted() -> None:
    controller, back = recreated()
    some = msgspec.structs.replace(back, pods=back.pods[:3])
    assert said_after(controller, some, 11) == "3 of 4 pods have been created so far, 0 of them have a node"


def test_a_pod_that_runs_and_is_not_ready_is_named() -> None:
    controller, back = recreated()
    slow = back.all_scheduled().all_started(12).all_ready(13).with_pod(2, ready=False)
    assert said_after(controller, slow, 14) == f"waiting for {place(slow.pod(2))} to be Ready"


# --- a controller that was held up, or has just started -------------------------------------------------------------


def test_a_new_controller_knows_from_the_ledger_that_the_group_has_run_whole() -> None:
    """Rank 1 was lost and replaced while nobody watched. By its pods alone the group runs whole only since then."""
    controller, whole = recovered()
    replaced = whole.pod_failed(1, 137, 100).came_back(1, 110, 120)
    controller.reconcile(replaced.controller_restarted(), 200)
    assert len(controller.triggers) == 2
    assert "exit code 137" in controller.incident.evidence[0]


def test_a_group_whose_ranks_are_all_new_is_not_restarted_by_a_new_controller() -> None:
    """Somebody deleted all pods while nobody watched, and the Job has made all of them again."""
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
    """A process that was frozen for half a minute reads the watch of pods after that of Jobs."""
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
