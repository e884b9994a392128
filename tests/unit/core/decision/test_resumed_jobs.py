"""A resumed Job is protected like any other. The tests show which pods belong to its present run.

The real Job controller first creates all pods, 20 a second with default limits, and then writes `Suspended=False` in
the same sync. The condition is therefore younger than most pods of the run that it begins.
"""

import msgspec
import pytest

from recovery.core.diagnosis.not_started import not_started
from recovery.core.diagnosis.trained import all_ran_at, pods_of_run, trained_at
from recovery.core.model.facts import Condition, ContainerFacts, ExitFacts
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from tests.unit.core.decision.test_baselines import untouched
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at


def resumed(ranks: int = 4, *, dated: float = 3, failed_before: int = 0) -> World:
    """A Job created suspended and resumed at 0 with all pods, Ready since 10. `dated`: the date of the condition."""
    world = group(ranks, born=0)
    return world.with_job(failed=failed_before, conditions=(world.resumed_condition(dated),)).all_ready(10)


def test_pods_that_are_older_than_the_condition_are_of_the_run() -> None:
    world = resumed()
    assert len(pods_of_run(world.job, world.pods)) == 4
    assert all_ran_at(world.job, world.pods) == at(10)


def test_a_group_that_was_resumed_and_runs_has_started() -> None:
    assert not_started(resumed().snapshot()) is None


def test_a_rank_that_is_lost_after_the_resume_is_one_incident() -> None:
    controller = Controller(policy(since=-60))
    controller.reconcile(resumed(), 60)
    controller.reconcile(resumed().pod_deleted(2, 300), 300.5)
    assert len(controller.triggers) == 1


def test_a_rank_whose_object_is_gone_is_one_incident_too() -> None:
    controller = Controller(policy(since=-60))
    controller.reconcile(resumed().pod_gone(2, 300), 300.5)
    assert len(controller.triggers) == 1


def test_a_rank_that_failed_is_one_incident_too() -> None:
    controller = Controller(policy(since=-60))
    controller.reconcile(resumed().pod_failed(2, 1, 300), 300.5)
    assert len(controller.triggers) == 1


def test_a_rank_that_was_lost_before_a_restart_of_the_controller_is_one_incident() -> None:
    controller = Controller(policy(since=-60))
    controller.reconcile(resumed().pod_gone(2, 300).replaced(2, 301).controller_restarted(), 302)
    assert len(controller.triggers) == 1


def test_a_pod_that_failed_before_the_job_was_suspended_stays_a_matter_of_that_run() -> None:
    """Suspending a Job deletes active pods only. Failed pods keep their objects, and the Job keeps its UID."""
    world = training(born=-3600).pod_failed(1, 1, -600).suspended().resumed(0, dated=3).all_ready(20)
    assert untouched(world, 60) is Reason.NO_FAILURE


def test_a_pod_that_failed_earlier_and_is_deleted_now_too() -> None:
    """Someone deletes the failed pod. That is no loss of the present run."""
    before = training(born=-3600).pod_failed(1, 1, -600).suspended()
    old = before.pod(1).uid
    world = before.resumed(0, dated=3).all_ready(20)
    pods = tuple(
        msgspec.structs.replace(pod, deleting_since=at(50), deletion_grace_seconds=30) if pod.uid == old else pod
        for pod in world.pods
    )
    assert untouched(msgspec.structs.replace(world, pods=pods), 60) is Reason.NO_FAILURE


def test_pods_that_the_suspension_deletes_are_no_losses_of_the_next_run() -> None:
    world = training(born=-3600).all_deleted(-20).suspended().resumed(0, dated=3).all_ready(20)
    assert untouched(world, 60) is Reason.NO_FAILURE


def test_pods_that_a_suspension_of_less_than_a_second_deletes_are_no_losses_of_the_next_run() -> None:
    """Kueue undoes a suspension by others at once. The API server dates deletions and conditions in whole seconds."""
    world = training(born=-3600).all_deleted(0).suspended().resumed(0).all_ready(1)
    assert untouched(world, 2) is Reason.NO_FAILURE


def test_a_pod_of_the_earlier_run_that_ends_after_the_resume_is_no_loss() -> None:
    world = training(born=-3600).pod_deleted(1, -20).suspended()
    old = world.pod(1).uid
    world = world.resumed(-10, dated=-9).all_ready(0)
    exited = ContainerFacts("node", exit=ExitFacts(137, "Error", "", at(-3600), at(5)))
    pods = tuple(
        msgspec.structs.replace(pod, phase="Failed", ready=False, containers=(exited,)) if pod.uid == old else pod
        for pod in world.pods
    )
    assert untouched(msgspec.structs.replace(world, pods=pods), 6) is Reason.NO_FAILURE


def test_a_last_delete_of_a_pod_of_the_earlier_run_after_the_resume_is_no_loss() -> None:
    """Seed 11191: the kubelet finally deletes the pod with a grace period of 0, which dates the deletion once more. A
    controller that starts then sees only the later date."""
    world = training(born=-3600).pod_deleted(1, -20).suspended()
    old = world.pod(1).uid
    world = world.resumed(-10, dated=-9).all_ready(0)
    exited = ContainerFacts("node", exit=ExitFacts(137, "Error", "", at(-3600), at(5)))
    last = {"deleting_since": at(5), "deletion_grace_seconds": 0, "deletion_dated_again": True, "gone_at": at(5)}
    pods = tuple(
        msgspec.structs.replace(pod, phase="Failed", ready=False, containers=(exited,), **last)
        if pod.uid == old
        else pod
        for pod in world.pods
    )
    assert untouched(msgspec.structs.replace(world, pods=pods), 6) is Reason.NO_FAILURE


def test_a_resumed_job_has_not_trained_because_its_earlier_run_trained() -> None:
    """Rank 0 of the next run is deleted before all ranks ran. The Job replaces it, and no rank hangs."""
    world = training(born=-3600).suspended()
    remembered = world.trained_at["job-1"]
    world = world.resumed(0, dated=3).started(1, 5).started(2, 5).pod_deleted(0, 6)
    assert trained_at(world.job, world.pods, remembered) is None
    assert untouched(world, 7) is Reason.NO_FAILURE


def test_a_moment_that_is_remembered_from_before_the_condition_is_of_the_run() -> None:
    """Kubelets may start the last pod before the Job controller has written its condition."""
    world = resumed(dated=13)
    assert trained_at(world.job, world.pods, at(10)) == at(10)


def test_batches_that_come_late_are_no_replacements() -> None:
    """An earlier run counted a failure, and the API server stalled between two batches. Rank 3 is just the last."""
    world = group(born=0).with_job(failed=1)
    for index in range(3):
        world = world.started(index, 1)
    late = tuple(msgspec.structs.replace(pod, created_at=at(5)) if pod.index == 3 else pod for pod in world.pods)
    world = msgspec.structs.replace(world, pods=late).with_job(conditions=(world.resumed_condition(5),))
    assert all_ran_at(world.job, world.pods) is None
    assert untouched(world, 8) is Reason.NO_FAILURE


def test_nothing_is_inferred_until_the_job_controller_has_written_that_the_job_is_resumed() -> None:
    """It creates the pods first. By then the Job still counts the failures of the earlier run."""
    world = group(born=0).with_job(failed=1)
    for index in range(3):
        world = world.started(index, 1)
    late = tuple(msgspec.structs.replace(pod, created_at=at(2)) if pod.index == 3 else pod for pod in world.pods)
    world = msgspec.structs.replace(world, pods=late)
    assert all_ran_at(world.job, world.pods) == at(1), "the same of a Job that was never suspended"
    suspended = world.with_job(conditions=(Condition("Suspended", "True", "JobSuspended", "Job suspended", at(-60)),))
    assert all_ran_at(suspended.job, suspended.pods) is None


# --- a suspension that only the pods show --------------------------------------------------------------------------


def let_go(world: World, seconds: float, *indexes: int) -> World:
    """The Job deletes these pods: all of a suspended Job, else those that it does not want any more."""
    for index in indexes:
        world = world.pod_deleted(index, seconds).with_pod(index, let_go=True)
    return world


def briefly_suspended(*, failed_before: int = 0) -> World:
    """Seeds 43 and 489: Kueue resumes the Job at once. The watch of Jobs lags, and the Job controller meets a conflict
    when it writes that the Job is suspended, so it never writes it."""
    return let_go(training(born=-3600), 0, 0, 1, 2, 3).with_job(failed=failed_before)


def run_again(world: World, *started: int) -> World:
    """The Job has made its next pods at 1, and these ranks have started at 5. What its store remembers follows."""
    pods = world.resumed(1).pods
    world = msgspec.structs.replace(world, pods=pods, trained_at={}, trained_members={})
    for index in started:
        world = world.started(index, 5)
    return world


def test_pods_that_their_job_lets_go_are_no_losses() -> None:
    assert untouched(briefly_suspended(), 1) is Reason.NO_FAILURE
    assert untouched(let_go(training(born=-3600), 0, 0, 1), 1) is Reason.NO_FAILURE, "the others follow"


def test_what_trained_before_they_were_let_go_says_nothing_about_the_next_run() -> None:
    before = briefly_suspended(failed_before=1)
    world = run_again(before, 1, 2, 3)
    assert trained_at(world.job, world.pods, before.trained_at["job-1"]) is None
    assert untouched(world.pod_deleted(0, 6), 7) is Reason.NO_FAILURE


def test_a_rank_that_is_lost_in_the_next_run_is_one_incident() -> None:
    controller = Controller(policy(since=-60))
    world = run_again(briefly_suspended(), 0, 1, 2, 3).all_ready(10)
    controller.reconcile(world, 60)
    controller.reconcile(world.pod_deleted(2, 300), 300.5)
    assert len(controller.triggers) == 1


def test_a_rank_that_is_lost_after_its_job_became_smaller_and_larger_again_is_one_incident_too() -> None:
    controller = Controller(policy(since=-60))
    world = let_go(training(born=-3600), 0, 3)
    assert trained_at(world.job, world.pods, at(-3590)) == at(-3590)
    controller.reconcile(world, 1)
    controller.reconcile(world.pod_deleted(1, 2), 2.5)
    assert len(controller.triggers) == 1


# --- a resume within the grace period of the old pods --------------------------------------------------------------


def resumed_within_the_grace(*, seen: bool, failed_before: int = 0) -> World:
    """A running group is suspended at 0 and resumed at 2. SIGTERM takes 8 s, and longer for each higher rank. With
    podReplacementPolicy Failed, each new pod waits for the end of an old one, whose last delete has a later date.

    `seen`: this process saw the suspension. If not, it saw no date but the last ones."""
    before = training(born=-3600).all_deleted(0).suspended()
    old = [before.pod(index) for index in range(4)]
    world = before.resumed(2)
    condition = world.resumed_condition(2)
    world = world.with_job(suspended_at=at(0) if seen else None, failed=failed_before, conditions=(condition,))
    pods = []
    for index, pod in enumerate(old):
        ended = at(8 + 4 * index)
        exited = ContainerFacts("node", exit=ExitFacts(143, "Error", "", at(-3600), ended))
        last = {"deleting_since": ended, "deletion_grace_seconds": 0, "deletion_dated_again": not seen}
        pods.append(msgspec.structs.replace(pod, phase="Failed", ready=False, containers=(exited,), **last))
        new = msgspec.structs.replace(world.pod(index), created_at=ended)
        pods.append(new)
    world = msgspec.structs.replace(world, pods=tuple(pods), trained_at={}, trained_members={})
    for index in range(4):
        world = world.started(index, 10 + 4 * index)
    return world


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "a new leader"])
def test_the_ends_of_the_earlier_run_are_no_losses_of_the_one_that_began_meanwhile(seen: bool) -> None:
    assert untouched(resumed_within_the_grace(seen=seen), 25) is Reason.NO_FAILURE


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "a new leader"])
def test_pods_that_waited_for_the_ends_of_earlier_ones_replace_no_one(seen: bool) -> None:
    """The earlier run counted a failure. The last rank is created long after the others run, and they wait for it."""
    world = resumed_within_the_grace(seen=seen, failed_before=1)
    assert all_ran_at(world.job, world.pods) == at(22)
    assert untouched(world, 25) is Reason.NO_FAILURE
    alone = msgspec.structs.replace(world, pods=tuple(pod for pod in world.pods if pod.deleting_since is None))
    assert all_ran_at(alone.job, alone.pods) == at(22)
    assert untouched(alone, 25) is Reason.NO_FAILURE


def test_a_rank_that_is_lost_after_such_a_resume_is_one_incident() -> None:
    controller = Controller(policy(since=-60))
    controller.reconcile(resumed_within_the_grace(seen=True), 25)
    controller.reconcile(resumed_within_the_grace(seen=True).pod_deleted(2, 300), 300.5)
    assert len(controller.triggers) == 1


def test_a_rank_that_is_deleted_by_force_just_after_the_resume_hangs_no_one_before_its_process_ends() -> None:
    """A delete with a grace period of 0 may be the last of several, so its date does not say of which run the pod is.
    But its rank has no other pod, and all ranks have run."""
    forced = resumed().pod_deleted(2, 11, grace_seconds=0).with_pod(2, deletion_dated_again=True)
    controller, standings = Controller(policy(since=-60)), []
    for world, seconds in ((forced, 11.2), (forced.pod_failed(2, 137, 11.4), 11.5)):
        controller.reconcile(world, seconds)
        standings.append(controller.ledger.standing)
    assert standings == [Standing.MET, Standing.BROKEN]
    assert controller.incident.evidence == (f"pod {forced.pod(2).name} (rank 2, node gpu-2) was deleted",)
