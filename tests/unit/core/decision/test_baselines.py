"""What looks like a loss and is none. Nothing is done or written, and the plan gives the reason."""

import msgspec
import pytest

from recovery.core.model.facts import Condition
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.progress import Progress
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

NO_FAILURE, BASELINE = Reason.NO_FAILURE, Reason.BASELINE


def untouched(world: World, seconds: float, *, since: float = -86_400) -> Reason:
    """Nothing is written or done. Returns the plan's reason."""
    controller = Controller(policy(since=since))
    plan = controller.reconcile(world, seconds)
    assert controller.ledger == Ledger()
    assert controller.done == []
    return plan.reason


def test_a_group_that_runs_is_left_alone_without_a_live_read() -> None:
    controller = Controller()
    assert controller.reconcile(training(), 0).reason is NO_FAILURE
    assert controller.live_reads == 0


def test_a_restart_from_before_the_policy() -> None:
    world = training(restart_policy="OnFailure").container_restarted(2, 1, -10)
    assert untouched(world, 0, since=-9) == BASELINE


def test_a_restart_from_before_the_switch_to_enforce() -> None:
    world = training(restart_policy="OnFailure").container_restarted(2, 1, -600)
    world = world.pod_gone(3, -300).replaced(3, -299).started(3, -290).pod_ready(3, -280)
    assert untouched(world, 10, since=-1) is BASELINE


def test_what_is_left_as_a_baseline_comes_with_the_command_that_recovers_it() -> None:
    world = training(restart_policy="OnFailure").container_restarted(2, 1, -10)
    message = Controller(policy(since=-9)).reconcile(world, 0).message
    assert "rank 2, node gpu-2" in message
    assert message.endswith("if the ranks hang, run recovery restart train --reason TEXT")


def test_a_group_with_a_ledger_has_a_condition_that_says_so_for_as_long_as_it_holds() -> None:
    budget_reset = Ledger(epoch=3)
    controller = Controller(policy(since=-9), budget_reset)
    lost = training(restart_policy="OnFailure").container_restarted(2, 1, -10)
    controller.reconcile(lost, 0)
    (condition,) = (each for each in controller.ledger.conditions if each.type == "EarlierLoss")
    assert (condition.status, condition.reason) == ("True", "Baseline")
    assert condition.message.endswith("recovery restart train --reason TEXT")
    written = controller.ledger
    controller.reconcile(lost, 60)
    assert controller.ledger == written, "once"
    controller.reconcile(lost.with_workload(progress=Progress(at(60), 0.1)), 70)
    (condition,) = (each for each in controller.ledger.conditions if each.type == "EarlierLoss")
    assert condition.status == "False"
    assert controller.done == []


def test_a_training_that_has_reported_progress_since_does_not_hang() -> None:
    world = training(restart_policy="OnFailure").container_restarted(2, 1, -10)
    assert untouched(world.with_workload(progress=Progress(at(-5), 0.1)), 0, since=-9) is NO_FAILURE
    assert untouched(world.with_workload(progress=Progress(at(-15), 0.1)), 0, since=-9) is BASELINE


@pytest.mark.parametrize(
    "world",
    [
        training().pod_gone(3, -1000),
        training().pod_gone(3, -1000).replaced(3, -999),
        training().pod_deleted(3, -1000),
        training(restart_policy="OnFailure").container_exited(3, 1, -1000),
    ],
    ids=["no pod", "a pod that is Pending", "a pod that is being deleted", "a container that waits"],
)
def test_a_rank_that_no_one_fills_is_no_baseline_whatever_its_age(world: World) -> None:
    controller = Controller(policy(since=-1))
    controller.reconcile(world, 10)
    assert len(controller.triggers) == 1


def test_a_pod_that_its_kubelet_rejected_before_the_policy_is_a_baseline_although_nothing_dates_its_end() -> None:
    """The Job has replaced the pod since, so the pod ended before the policy was written."""
    world = training().pod_deleted(2, -600).pod_gone(2, -590).replaced(2, -590)
    rejected = world.scheduled(2).with_pod(2, phase="Failed", reason="UnexpectedAdmissionError")
    controller = Controller(policy(since=-30))
    controller.reconcile(rejected.replaced(2, -300).started(2, -290).pod_ready(2, -290), 1)
    assert controller.ledger.incident is None
    assert controller.triggers == []


def test_the_second_of_the_switch_itself_counts_as_after_it() -> None:
    """API times are whole seconds. Within that second, a missed loss costs more than a false one."""
    controller = Controller(policy(since=0.7))
    controller.reconcile(training().pod_deleted(3, 0), 1)
    assert len(controller.triggers) == 1


def test_a_restart_of_long_ago_in_a_group_whose_members_all_run() -> None:
    world = training(restart_policy="OnFailure").container_restarted(2, 1, -901)
    assert untouched(world, 0) == BASELINE


def test_a_restart_of_a_moment_ago_is_none_even_if_all_run() -> None:
    controller = Controller()
    controller.reconcile(training(restart_policy="OnFailure").container_restarted(2, 1, -899), 0)
    assert len(controller.triggers) == 1


def test_an_old_loss_whose_rank_does_not_run_yet_restarts_the_group() -> None:
    controller = Controller()
    controller.reconcile(training().pod_gone(3, -1000).replaced(3, -999), 0)
    assert len(controller.triggers) == 1
    assert controller.incident.started_at == at(-1000)


@pytest.mark.parametrize("ago", [1000, 100], ids=["an old loss", "a loss of a moment ago"])
def test_an_old_baseline_does_not_come_back_to_life_when_the_ranks_have_trained_to_their_end(
    ago: float,
) -> None:
    """Seed 3459: all ranks were lost during a pause and replaced. Once all have Succeeded, none of them runs."""
    world = training(2)
    for index in range(2):
        world = world.came_back(index, -ago, 1 - ago)
    controller = Controller()
    controller.settle(world, 0)
    controller.settle(world, 6)
    plan = controller.settle(world.succeeded(0).succeeded(1), 100_000)
    assert controller.ledger.incident is None
    assert plan.reason in {Reason.NO_FAILURE, Reason.BASELINE}


def test_an_old_baseline_does_not_come_back_to_life_when_another_member_is_lost() -> None:
    """A rank restarted, and no one handled it. An hour later another pod goes, and only that starts the incident."""
    world = training(restart_policy="OnFailure").container_restarted(2, 1, -3000).pod_deleted(0, 0)
    controller = Controller()
    controller.reconcile(world, 0.5)
    assert controller.incident.started_at == at(0)
    assert controller.incident.cause == "PodDeleted"
    assert len(controller.incident.evidence) == 1


def test_a_rank_without_a_pod_is_found_by_a_controller_that_has_just_started() -> None:
    """No controller saw the pod go, and the Job has not replaced it: a quota may refuse that."""
    world = training().pod_gone(1, -1000).with_job(failed=1).controller_restarted()
    controller = Controller(policy(since=-1))
    controller.reconcile(world, 10)
    assert len(controller.triggers) == 1


def test_a_job_that_never_had_all_its_pods_is_left_alone_by_a_controller_that_has_just_started() -> None:
    world = group(born=-1000).all_started(-900)
    world = msgspec.structs.replace(world, pods=world.pods[:3]).controller_restarted()
    assert untouched(world, 10, since=-1) == NO_FAILURE


# --- before the group has trained ----------------------------------------------------------------------------------


def test_a_pod_lost_before_the_group_ever_ran_whole() -> None:
    world = group().all_scheduled().started(0, -5).pod_deleted(1, -3)
    assert untouched(world, 0) is NO_FAILURE


def test_a_job_that_fails_before_it_ever_ran_whole() -> None:
    assert untouched(group().job_failing("BackoffLimitExceeded", -3), 0) is NO_FAILURE


def test_a_pod_that_failed_on_the_way_to_the_first_full_group() -> None:
    """restartPolicy Never: the failed pod stays. Its replacement ran when the group first did."""
    world = group(born=-60).started(3, -55).pod_failed(3, 1, -52).replaced(3, -51)
    for index in range(3):
        world = world.started(index, -50)
    world = world.all_ready(-40)
    assert world.trained_at == {"job-1": at(-40)}
    assert untouched(world, 0) is NO_FAILURE


def test_a_pod_deleted_on_the_way_to_the_first_full_group() -> None:
    world = group(born=-60).started(0, -50).pod_deleted(3, -45).pod_gone(3, -44).replaced(3, -44).all_ready(-30)
    assert untouched(world, 0) is NO_FAILURE


def test_its_successor_lost_after_training_is_a_failure() -> None:
    world = group(born=-60).started(0, -50).pod_gone(3, -44).replaced(3, -44).all_ready(-30).pod_deleted(3, 0)
    controller = Controller()
    controller.reconcile(world, 1)
    assert controller.incident.started_at == at(0)
    assert len(controller.incident.evidence) == 1


def test_a_pod_lost_early_and_replaced_within_its_second() -> None:
    world = group(born=-60).started(0, -50).pod_gone(3, -60).replaced(3, -60).all_ready(-30)
    assert untouched(world, 0) is NO_FAILURE


def test_its_successor_restarted_after_training_does_not_bring_the_early_loss_back() -> None:
    world = group(born=-60, restart_policy="OnFailure")
    world = world.started(0, -50).pod_gone(3, -44).replaced(3, -44).all_ready(-30)
    controller = Controller()
    controller.reconcile(world.container_restarted(3, 1, 0), 2)
    assert len(controller.incident.evidence) == 1
    assert controller.incident.disruption_class == "Unknown"


def test_a_loss_is_not_taken_for_an_early_one_because_a_kubelets_clock_is_ahead() -> None:
    """By the API server's clock the group ran at 12:00:00. The kubelets' clocks are 3 s ahead and say 12:00:03."""
    world = group(born=-10).all_ready(3).pod_deleted(3, 1)
    controller = Controller()
    controller.reconcile(world, 2)
    assert len(controller.triggers) == 1


def test_pods_are_not_taken_for_replacements_because_a_kubelets_clock_is_behind() -> None:
    world = group(born=0).with_job(failed=1).all_ready(-4).although("begun-before-its-pod")
    assert world.trained_at == {"job-1": at(0)}
    assert untouched(world, 5) == NO_FAILURE


def test_a_container_that_crashed_on_the_way_to_the_first_full_group() -> None:
    world = group(born=-60, restart_policy="OnFailure").started(2, -55).container_exited(2, 1, -52)
    for index in (0, 1, 3):
        world = world.started(index, -50)
    world = world.container_back(2, -48).all_ready(-40)
    assert world.trained_at == {"job-1": at(-48)}
    assert untouched(world, 0) is NO_FAILURE


def test_a_job_of_which_no_one_knows_whether_it_trained() -> None:
    """A controller that has just started finds a missing pod, and nothing shows that the pod ever ran."""
    world = training().pod_gone(3, -5).controller_restarted()
    assert world.trained_at == {}
    assert untouched(world, 0) == NO_FAILURE


# --- expected deletions --------------------------------------------------------------------------------------------


def test_scaled_away_pods_are_no_loss() -> None:
    world = training(4).with_job(parallelism=3, completions=3).pod_deleted(3, 0)
    assert untouched(world, 1) == NO_FAILURE


def test_added_pods_are_no_replacements() -> None:
    world = training(4).with_job(parallelism=5, completions=5)
    pod = world.pod(0)
    grown = world.replaced(4, 0).with_job(failed=0)
    assert pod in grown.pods
    assert untouched(grown, 1) == NO_FAILURE


def test_added_pods_are_no_replacements_of_members_that_the_job_has_lost_before() -> None:
    """Seeds 536 and 828: the Job had counted failures. It was scaled up long after all its ranks ran again."""
    repaired = training(4).pod_failed(3, 1, -900).came_back(3, -899, -890)
    grown = repaired.with_job(parallelism=5, completions=5).replaced(4, 0).with_job(failed=1)
    assert untouched(grown, 1) == BASELINE


def test_a_pod_that_jobset_moves_for_exclusive_placement() -> None:
    world = training().evicted(1, 0, reason="ExclusivePlacementViolation")
    assert untouched(world, 1) == NO_FAILURE
    assert untouched(world.pod_gone(1, 1).replaced(1, 1), 2) == NO_FAILURE


def test_a_pod_that_succeeded_is_no_loss() -> None:
    assert untouched(training().succeeded(2).pod_deleted(2, 0), 1) == NO_FAILURE


def test_pods_of_a_job_that_a_client_deletes_are_no_losses_of_their_own() -> None:
    controller = Controller()
    controller.reconcile(training().job_deleted(0).all_deleted(0), 1)
    assert controller.incident.evidence == ("Job train-node-0 was deleted",)


def test_pods_that_a_failing_job_deletes_are_its_doing() -> None:
    world = training().job_failing("BackoffLimitExceeded", 0).all_deleted(1)
    controller = Controller()
    controller.reconcile(world, 1.5)
    assert [text for text in controller.incident.evidence if "was deleted" in text] == []


def test_a_suspended_job_and_its_resumption_are_no_loss() -> None:
    """The Job keeps its UID, all its pods are deleted, and all are recreated."""
    world = training().suspended()
    for index in range(4):
        world = world.pod_deleted(index, 0).pod_gone(index, 30)
    assert untouched(world, 31) is Reason.JOB_SUSPENDED
    back = world.resumed(600)
    assert untouched(back, 601) == NO_FAILURE
    assert untouched(back.with_job(failed=4), 601) == NO_FAILURE
    assert untouched(back.all_ready(660), 661) == NO_FAILURE


def test_a_resumption_that_the_job_controller_has_not_seen_is_no_loss() -> None:
    """A rank on a dead node outlives the suspension, and kube-controller-manager is down."""
    still = Condition("Suspended", "True", "JobSuspended", "Job suspended", at(1))
    world = training().suspended().pod_deleted(0, 1)
    for index in (1, 2, 3):
        world = world.pod_deleted(index, 1).pod_gone(index, 30)
    awake = world.with_workload(suspended=False).with_jobset(suspended=False)
    assert untouched(awake.with_job(suspended=False, conditions=(still,)), 61) == NO_FAILURE


def test_a_loss_after_the_resumption_is_a_failure() -> None:
    world = training().suspended()
    for index in range(4):
        world = world.pod_gone(index, 30)
    controller = Controller()
    controller.reconcile(world.resumed(600).all_ready(660).pod_deleted(2, 700), 701)
    assert len(controller.triggers) == 1
    assert len(controller.incident.evidence) == 1


def test_a_loss_before_the_resumed_group_ran_whole_is_none() -> None:
    world = training().suspended()
    for index in range(4):
        world = world.pod_gone(index, 30)
    world = world.resumed(600).started(0, 605).pod_deleted(2, 606)
    assert untouched(world, 607) is NO_FAILURE


# --- dealt with already --------------------------------------------------------------------------------------------


def test_what_an_incident_has_dealt_with_never_opens_another() -> None:
    controller = Controller(policy(Mode.OBSERVE))
    world = training(restart_policy="OnFailure").container_restarted(2, 1, 0)
    controller.reconcile(world, 2)
    controller.settle(world, 8)
    assert controller.ledger.totals.incidents == 1
    controller.reconcile(world, 9)
    controller.reconcile(world.controller_restarted(), 10)
    assert (controller.ledger.incident, controller.ledger.totals.incidents) == (None, 1)


def test_the_next_restart_of_the_same_container_does() -> None:
    controller = Controller(policy(Mode.OBSERVE))
    world = training(restart_policy="OnFailure").container_restarted(2, 1, 0)
    controller.reconcile(world, 2)
    controller.settle(world, 8)
    controller.reconcile(world.container_restarted(2, 1, 20), 22)
    assert controller.ledger.totals.incidents == 2
    assert controller.incident.started_at == at(20)


def test_a_replacement_made_before_the_incident_ended_is_dealt_with() -> None:
    """After its restart the controller no longer knows the lost pod. The replacement does not show a second loss."""
    controller = Controller(policy(Mode.OBSERVE))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.settle(world.came_back(3, 30, 40), 41)
    assert controller.phase() is Phase.HEALTHY
    controller.reconcile(world.came_back(3, 30, 40).controller_restarted(), 60)
    assert (controller.ledger.incident, controller.ledger.totals.incidents) == (None, 1)


def test_a_cache_that_lags_makes_nothing_forgotten() -> None:
    """The incident is put away on live facts. On the cached ones its evidence would look new afterwards."""
    controller = Controller(policy(Mode.OBSERVE))
    stale = training(restart_policy="OnFailure")
    world = stale.container_restarted(2, 1, 0)
    controller.reconcile(world, 2)
    controller.settle(world, 8)
    assert len(controller.ledger.handled.keys) == 1


@pytest.mark.parametrize("seconds", [1, 1200])
def test_a_loss_while_paused_is_judged_when_it_is_resumed(seconds: float) -> None:
    lost = training().pod_deleted(3, 0).came_back(3, 30, 40)
    assert untouched(lost.paused(), 41) is Reason.JOB_PAUSED
    controller = Controller()
    controller.reconcile(lost, 60 + seconds)
    assert len(controller.triggers) == (1 if seconds < 900 else 0)


# --- pods without an index -----------------------------------------------------------------------------------------


def without_indexes(world: World) -> World:
    pods = tuple(msgspec.structs.replace(pod, index=None) for pod in world.pods)
    return msgspec.structs.replace(world, pods=pods)


def test_without_indexes_a_loss_counts_by_its_time() -> None:
    lost_early = group(born=-60).started(0, -50).pod_gone(3, -44).replaced(3, -44).all_ready(-30)
    assert untouched(without_indexes(lost_early), 0) is NO_FAILURE
    controller = Controller()
    controller.reconcile(without_indexes(training().pod_deleted(3, 0)), 1)
    assert len(controller.triggers) == 1


def test_a_job_that_has_been_failing_for_long_is_failing_still() -> None:
    controller = Controller()
    controller.reconcile(training().job_failing("BackoffLimitExceeded", -3000), 0)
    assert len(controller.triggers) == 1


def test_an_exit_that_a_failing_jobs_own_deletion_caused_is_no_second_loss() -> None:
    world = training(restart_policy="OnFailure").job_failing("BackoffLimitExceeded", 0).all_deleted(1)
    controller = Controller()
    controller.reconcile(world.container_exited(2, 143, 3), 4)
    assert [text for text in controller.incident.evidence if "143" in text] == []
