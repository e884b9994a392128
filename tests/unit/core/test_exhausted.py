"""`budget.onExhausted`: what becomes of a group that has lost a member when no recovery is left."""

import pytest

from recovery.core.facts import FailurePolicyFacts
from recovery.core.ledger import Outcome, Phase
from recovery.core.plan import DeleteJob, FailJobSet, JobRef, ResumeWorkload, SuspendWorkload
from recovery.core.policy import KUEUE_QUEUE_LABEL, OnExhausted
from tests.unit.core.driver import Controller, policy
from tests.unit.core.world import World, at, training

SUSPENDS = policy(limit=0, on_exhausted=OnExhausted.SUSPEND)
FAILS = policy(limit=0, on_exhausted=OnExhausted.FAIL_JOB, may_fail_jobs=True)


def lost() -> World:
    return training(4).pod_deleted(3, 0)


def test_suspend_frees_the_gpus_without_an_attempt() -> None:
    controller = Controller(SUSPENDS)
    controller.look(lost(), 1)
    assert controller.phase() is Phase.HELD
    assert controller.workload_actions == [SuspendWorkload(0, "0d2f5c9e-1", lost().workload.uid, None)]  # type: ignore[union-attr]
    assert controller.incident.attempts == ()
    assert controller.incident.reason.endswith("suspended, so that its GPUs are free")


def test_a_suspension_that_a_crash_lost_is_asked_for_again() -> None:
    controller = Controller(SUSPENDS)
    controller.look(lost(), 1)
    controller.look(lost(), 2)
    assert len(controller.workload_actions) == 2


def test_when_the_window_lets_it_through_the_group_is_made_anew_and_resumed() -> None:
    controller = Controller(policy(limit=1, window_seconds=600, on_exhausted=OnExhausted.SUSPEND))
    controller.look(lost(), 1)
    world = lost().job_deleted(1).all_deleted(1).recreated(3).all_ready(5)
    controller.settle(world, 6)
    world = world.pod_deleted(2, 300)
    plan = controller.look(world, 301)
    assert (controller.phase(), plan.look_again_at) == (Phase.HELD, at(601))
    assert controller.ledger.next_attempt_at == at(601)
    world = world.suspended().suspended_by(controller.incident.id)
    controller.look(world, 400)
    controller.look(world, 602)
    assert controller.phase() is Phase.DECIDED
    assert [type(action) for action in controller.workload_actions][-1] is not SuspendWorkload
    assert controller.triggers[-1].uid == "job-2"
    world = world.job_deleted(602).recreated_suspended(604)
    controller.look(world, 604.1)
    assert isinstance(controller.workload_actions[-1], ResumeWorkload)
    controller.look(world.released(), 604.2)
    controller.settle(world.released().unsuspended(605).all_ready(607), 607.2)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert controller.ledger.totals.charged == 2


def test_a_user_who_resumes_it_is_not_suspended_again() -> None:
    controller = Controller(SUSPENDS)
    controller.look(lost(), 1)
    world = lost().suspended().suspended_by(controller.incident.id)
    controller.look(world, 2)
    resumed = world.resumed(10).released()
    controller.look(resumed, 11)
    controller.look(resumed, 12)
    assert [type(action) for action in controller.workload_actions].count(SuspendWorkload) == 1
    controller.look(resumed.all_ready(15), 15)
    controller.settle(resumed.all_ready(15), 30)
    assert controller.recorded[-1].closing.outcome is Outcome.HELD  # type: ignore[union-attr]


def test_under_kueue_it_is_only_held_and_that_is_said() -> None:
    controller = Controller(SUSPENDS)
    plan = controller.look(lost().with_workload(labels={KUEUE_QUEUE_LABEL: "research"}), 1)
    assert controller.workload_actions == []
    assert plan.reason.endswith("it is not suspended, because Kueue owns the suspension of this job (queue research)")


def test_a_job_is_failed_the_documented_way_where_nothing_would_restart_it() -> None:
    controller = Controller(FAILS)
    controller.look(lost(), 1)
    (deed,) = controller.workload_actions
    assert isinstance(deed, FailJobSet)
    assert (deed.uid, deed.job) == ("jobset-1", JobRef("train-node-0", "job-1"))
    controller.settle(lost().jobset_failed(3), 3)
    closing = controller.recorded[-1].closing
    assert closing is not None
    assert (closing.outcome, closing.outcome_reason) == (Outcome.FAILED, "BudgetExhausted")


def test_a_failure_policy_that_might_restart_it_is_passed_by() -> None:
    controller = Controller(FAILS)
    controller.look(training(4, failure_policy=FailurePolicyFacts(max_restarts=3)).pod_deleted(3, 0), 1)
    (deed,) = controller.workload_actions
    assert isinstance(deed, FailJobSet)
    assert deed.job is None


def test_failing_a_job_is_repeated_until_it_has_failed() -> None:
    controller = Controller(FAILS)
    controller.look(lost(), 1)
    controller.look(lost(), 2)
    assert len(controller.workload_actions) == 2


def test_no_job_is_failed_without_the_leave_of_recovery_config() -> None:
    controller = Controller(policy(limit=0, on_exhausted=OnExhausted.FAIL_JOB))
    plan = controller.look(lost(), 1)
    assert (controller.phase(), controller.workload_actions) == (Phase.HELD, [])
    assert plan.reason.endswith("it is not made to fail, because RecoveryConfig does not allow FailJob")


@pytest.mark.parametrize("what", list(OnExhausted))
def test_a_job_with_budget_left_is_just_recovered(what: OnExhausted) -> None:
    controller = Controller(policy(on_exhausted=what, may_fail_jobs=True))
    controller.look(lost(), 1)
    assert isinstance(controller.workload_actions[0], DeleteJob)
