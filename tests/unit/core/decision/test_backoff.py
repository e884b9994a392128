"""The second attempt in a row waits while we suspend the job. The client that takes over the suspension wins."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from recovery.core.incident.budget import delay
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, DeletePods, RaiseBackoffLimit, ResumeWorkload, SuspendWorkload
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import given_up, training
from tests.unit.core.world import World, at

BACKOFF = Backoff(initial=timedelta(seconds=10))
WAITS = policy(backoff=BACKOFF)


def terms(initial: float = 10, factor: float = 2, longest: float = 300) -> PinnedPolicy:
    return PinnedPolicy(
        policy_name="p",
        policy_uid="u",
        policy_generation=1,
        restart="",
        budget_limit=1,
        budget_window_seconds=1,
        start_timeout_seconds=1,
        backoff_initial_seconds=initial,
        backoff_factor=factor,
        backoff_max_seconds=longest,
    )


@pytest.mark.parametrize(
    ("number", "seconds"), [(1, 0), (2, 10), (3, 20), (4, 40), (7, 300), (1_000_000, 300)], ids=str
)
def test_the_first_attempt_does_not_wait_and_later_ones_ever_longer(number: int, seconds: float) -> None:
    assert delay(terms(), number) == timedelta(seconds=seconds)


def test_no_initial_delay_is_no_backoff() -> None:
    assert delay(terms(initial=0), 9) == timedelta()


def failed_again(controller: Controller) -> World:
    """A first attempt brought the group back. It loses a member again five minutes later, which triggers a restart."""
    world = training(4).pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    assert controller.ledger.incident is None
    assert not suspensions(controller), "the first attempt does not wait"
    world = world.pod_deleted(2, 300)
    controller.reconcile(world, 300.2)
    return world


def suspensions(controller: Controller) -> list[SuspendWorkload]:
    return [action for action in controller.done if isinstance(action, SuspendWorkload)]


def resumptions(controller: Controller) -> list[ResumeWorkload]:
    return [action for action in controller.done if isinstance(action, ResumeWorkload)]


def in_backoff(controller: Controller) -> World:
    world = failed_again(controller).job_deleted(300.3).suspended_by(controller.incident.id).all_deleted(300.4)
    controller.reconcile(world, 300.6)
    assert controller.phase() is Phase.TEARING_DOWN
    world = world.recreated_suspended(303)
    controller.reconcile(world, 303.1)
    assert controller.phase() is Phase.BACKOFF
    return world


def test_the_trigger_comes_first_then_the_suspension_then_the_pods() -> None:
    controller = Controller(WAITS)
    failed_again(controller)
    kinds = [type(action) for action in controller.workload_actions][-4:]
    assert kinds == [DeleteJob, SuspendWorkload, RaiseBackoffLimit, DeletePods]
    (asked,) = suspensions(controller)
    assert (asked.incident_id, asked.resume_at) == (controller.incident.id, at(310.2))
    assert controller.ledger.next_attempt_at == at(310.2)
    assert controller.incident.message.endswith("the job stays suspended for 10s first (attempt 2 in a row)")


def test_it_is_resumed_when_its_time_has_come_and_seen_through() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller)
    plan = controller.reconcile(world, 309)
    assert (plan.requeue_at, resumptions(controller)) == (at(310.2), [])
    controller.reconcile(world, 310.3)
    assert resumptions(controller) == [ResumeWorkload(world.workload.uid, "0d2f5c9e-2", suspended=True)]  # type: ignore[union-attr]
    assert controller.ledger.next_attempt_at is None
    world = world.released()
    controller.reconcile(world, 310.4)
    assert controller.phase() is Phase.BACKOFF, "Trainer has not carried it on yet"
    world = world.unsuspended(311)
    controller.reconcile(world, 311.1)
    assert controller.phase() is Phase.SCHEDULING
    controller.settle(world.all_ready(314), 314.2)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert len(controller.triggers) == 2
    assert len(suspensions(controller)) == 1
    assert controller.ledger.totals.charged == 2


def test_the_watchdog_counts_from_the_end_of_the_backoff_not_from_the_creation_of_the_suspended_job() -> None:
    """Seed 11 of the simulation: for a moment a resumed Job still says that it is suspended, and has no pods."""
    controller = Controller(policy(backoff=Backoff(initial=timedelta(seconds=200))))
    world = in_backoff(controller)
    controller.reconcile(world, 500.3)
    resumed = world.released().with_jobset(suspended=False).with_job(suspended=False)
    controller.reconcile(resumed, 500.6)
    assert controller.phase() is Phase.SCHEDULING
    plan = controller.reconcile(resumed, 500.7)
    assert len(controller.triggers) == 2
    assert controller.touches == []
    assert plan.requeue_at == at(560.6)


def test_a_resumed_group_is_dated_by_live_facts_where_the_cache_lags_behind() -> None:
    """Seed 8770: a process freezes after the resume. It reads that the JobSet runs again before it reads the Jobs, and
    the ranks met long before that."""
    controller = Controller(WAITS)
    world = in_backoff(controller)
    controller.reconcile(world, 310.3)
    cached = world.released().with_jobset(suspended=False)
    live = world.released().unsuspended(311).all_scheduled(311).all_started(312)
    controller.write(controller.plan_on(cached.snapshot(), live.snapshot(live=True), 400))
    assert controller.phase() is Phase.RENDEZVOUS
    assert controller.incident.phases[-1].started_at == at(313), "within the second"


def test_a_suspension_that_was_lost_in_a_crash_is_asked_for_again_while_the_old_group_is_there() -> None:
    controller = Controller(WAITS)
    world = failed_again(controller).job_deleted(300.3)
    controller.reconcile(world, 300.4)
    assert len(suspensions(controller)) == 2


def test_one_that_comes_too_late_is_dropped_and_the_group_just_runs() -> None:
    controller = Controller(WAITS)
    world = failed_again(controller).job_deleted(300.3).recreated(302)
    controller.reconcile(world, 302.1)
    assert controller.incident.suspension is None
    assert controller.incident.reason is Reason.NOT_SUSPENDED_IN_TIME
    assert len(suspensions(controller)) == 1
    controller.settle(world.all_ready(304), 304.2)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]


def test_the_end_of_a_suspension_that_was_lost_in_a_crash_is_asked_for_again() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller)
    controller.reconcile(world, 310.3)
    controller.reconcile(world, 311)
    assert len(resumptions(controller)) == 2


def test_who_resumes_the_job_ends_the_backoff_and_what_is_left_of_ours_is_removed() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller).with_workload(suspended=False)
    controller.reconcile(world, 305)
    assert controller.incident.suspension is None
    assert [action.suspended for action in resumptions(controller)] == [False]
    assert controller.incident.reason is Reason.RESUMED_BY_OTHERS
    controller.reconcile(world.released().unsuspended(306), 306.1)
    controller.settle(world.released().unsuspended(306).all_ready(308), 308.2)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert len(suspensions(controller)) == 1


def test_who_removes_the_annotation_has_suspended_the_job_and_it_stays_so() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller).with_workload(annotations={})
    controller.settle(world, 305)
    closing = controller.recorded[-1].closing
    assert closing is not None
    assert (closing.outcome, closing.outcome_reason) == (Outcome.SUPERSEDED, "JobSuspended")
    controller.reconcile(world, 400)
    assert resumptions(controller) == []


@pytest.mark.parametrize(
    ("world_after", "policy_after"),
    [
        (lambda world: world.asked("recovery.trainjob.dev/paused", "true"), WAITS),
        (lambda world: world, policy(Mode.OBSERVE)),
        (lambda world: world, policy(global_pause="RecoveryConfig default pauses all recoveries")),
        (lambda world: world, None),
    ],
    ids=["paused", "switched to Observe", "paused everywhere", "policy deleted"],
)
def test_a_pause_a_switch_to_observe_or_a_deleted_policy_ends_the_suspension_by_the_controller(
    world_after: object, policy_after: object
) -> None:
    controller = Controller(WAITS)
    world = world_after(in_backoff(controller))  # type: ignore[operator]
    controller.policy = policy_after  # type: ignore[assignment]
    controller.reconcile(world, 305)
    assert [action.suspended for action in resumptions(controller)] == [True]
    assert controller.incident.reason is Reason.SUSPENSION_RELEASED


def test_a_suspension_whose_incident_no_one_remembers_is_ended_whatever_the_policy_says() -> None:
    """The CRDs or the RecoveryGroup were deleted and created again. Nothing else would ever resume the job."""
    world = training(4).suspended_by("0d2f5c9e-7")
    for policy_ in (WAITS, policy(Mode.OBSERVE)):
        controller = Controller(policy_)
        controller.reconcile(world, 1)
        assert [action.suspended_by for action in resumptions(controller)] == ["0d2f5c9e-7"]
    no_one = Controller()
    no_one.policy = None
    no_one.reconcile(world, 1)
    assert len(resumptions(no_one)) == 1


def test_a_job_that_its_user_has_suspended_is_never_resumed() -> None:
    controller = Controller(WAITS)
    controller.reconcile(training(4).suspended(), 1)
    assert controller.workload_actions == []


def test_a_group_that_ran_whole_for_long_enough_begins_at_its_first_attempt() -> None:
    controller = Controller(policy(backoff=msgspec.structs.replace(BACKOFF, reset_after=timedelta(minutes=4))))
    failed_again(controller)
    assert suspensions(controller) == []
    assert controller.ledger.attempts_in_row == 1


def test_who_has_resumed_the_job_once_is_not_suspended_again_in_the_same_incident() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller).released()
    controller.reconcile(world, 305)
    assert controller.incident.resumed_by_others
    world = world.unsuspended(306).all_started(310)
    controller.reconcile(world, 310.1)
    controller.reconcile(world.pod_deleted(1, 311), 311.1)
    assert len(controller.triggers) == 3
    assert len(suspensions(controller)) == 1
    assert controller.incident.message.endswith("no backoff, because another client has resumed this job before")


@pytest.mark.parametrize(
    "end",
    [
        lambda world: world.succeeded(0),
        lambda world: given_up(world.with_jobset(deleting_since=at(300))),
        lambda world: world.jobset_failed(300),
        lambda world: world.jobset_completed(),
    ],
    ids=["finishing", "JobSet deleted", "JobSet Failed", "JobSet Completed"],
)
def test_a_plan_that_ends_the_incident_does_not_suspend_the_job(end: Callable[[World], World]) -> None:
    """A crash lost the trigger and the suspension, and the training has ended meanwhile."""
    controller = Controller(WAITS)
    world = failed_again(controller)
    controller.done.clear()
    controller.settle(end(world), 301)
    assert controller.recorded
    assert suspensions(controller) == []


def test_standing_aside_after_all_is_without_a_suspension_too() -> None:
    controller = Controller(WAITS)
    world = failed_again(controller)
    world = world.with_jobset(failure_policy=FailurePolicyFacts(max_restarts=3)).job_failing("PodFailurePolicy", 300)
    controller.done.clear()
    controller.reconcile(world, 301)
    assert controller.incident.reason is Reason.JOB_FAILS_BY_ITS_SPEC
    assert controller.workload_actions == []


def test_the_end_of_an_incident_is_the_end_of_its_suspension() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller).jobset_failed(304)
    controller.settle(world, 305)
    assert [action.suspended for action in resumptions(controller)] == [True]
    plan = controller.reconcile(world, 305.1)
    assert [type(action) for action in plan.actions] == [ResumeWorkload], "one that was lost is asked for again"
