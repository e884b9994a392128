"""What can go wrong between the trigger and the moment when all ranks are Ready."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.facts import ContainerFacts
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeletePods
from recovery.core.policy.resolved import Backoff
from tests.unit.core.decision.restarted import recreated, triggered
from tests.unit.core.diagnosis.test_native_policies import on_exit
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def restarts_in_place(world: World) -> World:
    """The kubelet may restart containers in place."""
    return world.with_job(pod_restart_policy="OnFailure")


def actions(controller: Controller) -> list[AttemptAction]:
    return [attempt.action for attempt in controller.incident.attempts]


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
    """The kubelet is dead: the grace period is long over, and the pod may not be force-deleted yet."""
    controller, world = triggered()
    going = world.job_deleted(1).all_deleted(1)
    assert controller.reconcile(going, 2).requeue_at == at(62)
    plan = controller.reconcile(going.pod_gone(0, 30).pod_gone(1, 30).pod_gone(2, 30), 62)
    assert plan.message.endswith("; waiting for pod train-node-0-3-10 (rank 3, node gpu-3) to be deleted")
    assert controller.reconcile(going, 100).message == plan.message
    other, world = triggered()
    other.reconcile(going, 2)
    assert other.reconcile(going, 62).message.endswith("(rank 0, node gpu-0) and 3 more to be deleted")


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
    """Seed 516 of the simulation: all ranks exit 0 at once, and sidecars keep their pods Running. No rank will become
    Ready any more, and no GPU is idle because of that."""
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
        "pod train-node-0-1-20 (rank 1, node gpu-1) failed with exit code 137; attempt 2: deleting Job "
        "train-node-0 again"
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


@pytest.mark.parametrize("restarted", [4, 3], ids=["all have met", "rank 3 may hang"])
@pytest.mark.parametrize("wait", [0, 60], ids=["at once", "after a backoff"])
def test_a_new_group_of_which_all_ranks_have_begun_again_since_a_loss_is_not_restarted(
    restarted: int, wait: float
) -> None:
    """Seed 3264: no controller led from the trigger until the kubelets had restarted all ranks of the new group."""
    waits = policy(backoff=Backoff(initial=timedelta(seconds=wait)))
    controller, world = Controller(waits), training(restart_policy="OnFailure", backoff_limit=50).pod_deleted(3, 0)
    world = world.with_workload(active_deadline_seconds=86_400)
    controller.reconcile(world, 1)
    back = restarts_in_place(world.recreated(10)).all_ready(20)
    for index in range(restarted):
        back = back.container_restarted(index, 1, 100)
    controller.settle(back, 160)
    if restarted < 4:
        assert controller.ledger.incident is not None
        return
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.ended_at) == (Outcome.RECOVERED, at(102))
    assert len(controller.triggers) == 1
    assert controller.reconcile(back, 170).reason is Reason.NO_FAILURE


def test_a_paused_group_whose_ranks_were_all_replaced_since_the_loss_has_recovered() -> None:
    """Seed 146 of the simulation: all ranks failed while a person had paused recovery, and their Job replaced them.
    They train, so no restart is due when the pause ends."""
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
    ("joined_probe", "new_ready_at", "kept_ready_at", "recovered"),
    [(True, 33, 22, True), (False, 33, 22, False), (True, 32, 22, False), (True, 32, 33, False)],
    ids=["joined", "only-ready", "ready-in-the-second-of-its-start", "only-a-kept-rank-is-ready-again"],
)
def test_a_paused_group_that_kept_a_rank_has_only_where_the_new_rank_has_joined(
    joined_probe: bool, new_ready_at: float, kept_ready_at: float, recovered: bool
) -> None:
    """The barrier of a joined probe ends only with all ranks. The Ready of a kept rank may be from before the loss."""
    controller, back = recreated()
    world = back.all_scheduled().all_started(20)
    for index in range(4):
        world = world.with_pod(index, joined_probe=joined_probe)
    controller.reconcile(world, 21)
    world = world.paused().pod_failed(0, 134, 25).came_back(0, 30, 32).with_pod(0, joined_probe=joined_probe)
    world = world.pod_ready(0, new_ready_at)
    for index in range(1, 4):
        world = world.pod_ready(index, kept_ready_at)
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
        "Job train-node-0 is failing: BackoffLimitExceeded; attempt 2: deleting Job train-node-0 again"
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
    """The restart is adopted while the budget is exhausted. By the next loss the window is over, and it is charged."""
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
