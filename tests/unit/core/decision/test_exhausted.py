"""`budget.onExhausted`: what happens to a group that has lost a member when the budget is exhausted."""

import pytest

from recovery.core.incident import requests
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.annotations import KUEUE_QUEUE_LABEL
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJob, FailJobSet, JobRef, ResumeWorkload, SuspendWorkload
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import OnExhausted, OnNativeIgnore
from tests.unit.core.diagnosis.test_native_policies import on_condition
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

SUSPENDS = policy(limit=0, on_exhausted=OnExhausted.SUSPEND)
FAILS = policy(limit=0, on_exhausted=OnExhausted.FAIL_JOB, may_fail_jobs=True)


def lost() -> World:
    return training(4).pod_deleted(3, 0)


def test_suspend_frees_the_gpus_without_an_attempt() -> None:
    controller = Controller(SUSPENDS)
    controller.reconcile(lost(), 1)
    assert controller.phase() is Phase.HELD
    assert controller.workload_actions == [SuspendWorkload(0, "0d2f5c9e-1", lost().workload.uid, None)]  # type: ignore[union-attr]
    assert controller.incident.attempts == ()
    assert controller.incident.message.endswith("the job is suspended to free its GPUs")


def test_a_suspension_that_a_crash_lost_is_asked_for_again() -> None:
    controller = Controller(SUSPENDS)
    controller.reconcile(lost(), 1)
    controller.reconcile(lost(), 2)
    assert len(controller.workload_actions) == 2


def test_when_the_window_lets_it_through_the_group_is_recreated_and_resumed() -> None:
    controller = Controller(policy(limit=1, window_seconds=600, on_exhausted=OnExhausted.SUSPEND))
    controller.reconcile(lost(), 1)
    world = lost().job_deleted(1).all_deleted(1).recreated(3).all_ready(5)
    controller.settle(world, 6)
    world = world.pod_deleted(2, 300)
    plan = controller.reconcile(world, 301)
    assert (controller.phase(), plan.requeue_at) == (Phase.HELD, at(601))
    assert controller.ledger.next_attempt_at == at(601)
    world = world.suspended().suspended_by(controller.incident.id)
    controller.reconcile(world, 400)
    controller.reconcile(world, 602)
    assert controller.phase() is Phase.DECIDED
    assert [type(action) for action in controller.workload_actions][-1] is not SuspendWorkload
    assert controller.triggers[-1].uid == "job-2"
    world = world.job_deleted(602).recreated_suspended(604)
    controller.reconcile(world, 604.1)
    assert isinstance(controller.workload_actions[-1], ResumeWorkload)
    controller.reconcile(world.released(), 604.2)
    controller.settle(world.released().unsuspended(605).all_ready(607), 607.2)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert controller.ledger.totals.charged == 2


def test_a_user_who_resumes_it_is_not_suspended_again() -> None:
    controller = Controller(SUSPENDS)
    controller.reconcile(lost(), 1)
    world = lost().suspended().suspended_by(controller.incident.id)
    controller.reconcile(world, 2)
    resumed = world.resumed(10).released()
    controller.reconcile(resumed, 11)
    controller.reconcile(resumed, 12)
    assert [type(action) for action in controller.workload_actions].count(SuspendWorkload) == 1
    controller.reconcile(resumed.all_ready(15), 15)
    controller.settle(resumed.all_ready(15), 30)
    assert controller.recorded[-1].closing.outcome is Outcome.HELD  # type: ignore[union-attr]


def test_under_kueue_it_is_only_held_and_that_is_said() -> None:
    controller = Controller(SUSPENDS)
    plan = controller.reconcile(lost().with_workload(labels={KUEUE_QUEUE_LABEL: "research"}), 1)
    assert controller.workload_actions == []
    assert plan.message.endswith(
        "the job is not suspended, because Kueue owns the suspension of this job (queue research)"
    )


def test_a_job_is_failed_the_documented_way_where_nothing_would_restart_it() -> None:
    controller = Controller(FAILS)
    controller.reconcile(lost(), 1)
    (action,) = controller.workload_actions
    assert isinstance(action, FailJobSet)
    assert (action.uid, action.job) == ("jobset-1", JobRef("train-node-0", "job-1"))
    controller.settle(lost().jobset_failed(3), 3)
    closing = controller.recorded[-1].closing
    assert closing is not None
    assert (closing.outcome, closing.outcome_reason) == (Outcome.FAILED, "BudgetExhausted")


def test_a_failure_policy_that_might_restart_it_is_passed_by() -> None:
    controller = Controller(FAILS)
    controller.reconcile(training(4, failure_policy=FailurePolicyFacts(max_restarts=3)).pod_deleted(3, 0), 1)
    (action,) = controller.workload_actions
    assert isinstance(action, FailJobSet)
    assert action.job is None


def test_a_job_that_the_platform_fails_before_us_loses_its_ttl_before_the_incident_ends() -> None:
    """Else Trainer trains it again once its JobSet has expired, although the record says that it was failed."""
    controller = Controller(FAILS)
    controller.reconcile(lost(), 1)
    failed = lost().with_jobset(ttl_seconds=600).jobset_failed(1)
    controller.reconcile(failed, 2)
    asked = [action for action in controller.workload_actions if isinstance(action, FailJobSet)]
    assert (len(asked), controller.recorded) == (2, [])
    controller.settle(failed.with_jobset(ttl_seconds=None), 3)
    assert controller.recorded[-1].closing.outcome_reason == "BudgetExhausted"  # type: ignore[union-attr]


def test_a_job_that_the_platform_fails_for_its_own_reasons_keeps_its_ttl() -> None:
    controller = Controller(policy(limit=0))
    controller.reconcile(lost(), 1)
    controller.settle(lost().with_jobset(ttl_seconds=600).jobset_failed(1), 2)
    assert controller.workload_actions == []
    assert len(controller.recorded) == 1


def test_a_job_that_we_have_suspended_fails_once_it_is_resumed() -> None:
    """Trainer writes the TTL of its JobSet again as long as one of the two is suspended."""
    controller = Controller(FAILS)
    controller.reconcile(lost(), 1)
    suspended = lost().suspended().suspended_by(controller.incident.id)
    controller.reconcile(suspended, 2)
    controller.reconcile(suspended.released().resumed(3).with_jobset(suspended=True), 3)
    assert [type(action) for action in controller.workload_actions] == [FailJobSet, ResumeWorkload]
    controller.reconcile(lost(), 4)
    assert isinstance(controller.workload_actions[-1], FailJobSet)


def test_failing_a_job_is_repeated_until_it_has_failed() -> None:
    controller = Controller(FAILS)
    controller.reconcile(lost(), 1)
    controller.reconcile(lost(), 2)
    assert len(controller.workload_actions) == 2


def test_a_suspension_of_a_job_that_is_failing_does_not_end_its_incident() -> None:
    """Nothing takes a Job's failure back. A pod that cannot end delays it, and meanwhile Kueue evicts the job."""
    controller = Controller(FAILS)
    controller.reconcile(lost(), 1)
    failing = lost().job_failing("DeadlineExceeded", 2)
    controller.reconcile(failing.suspended(), 60)
    controller.reconcile(failing, 70)
    assert controller.recorded == []
    controller.settle(failing.jobset_failed(400), 400)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.FAILED, "BudgetExhausted")


def test_pods_of_a_failing_job_that_exit_with_0_do_not_end_its_incident() -> None:
    """The failing Job deletes its pods. A trainer may exit with 0 on SIGTERM, so its pod is Succeeded."""
    controller = Controller(FAILS)
    controller.reconcile(lost(), 1)
    controller.reconcile(lost().job_failing("DeadlineExceeded", 2).all_deleted(2).succeeded(0), 5)
    assert (controller.recorded, controller.phase()) == ([], Phase.HELD)


def test_a_suspension_of_a_job_that_does_not_fail_yet_ends_its_incident() -> None:
    controller = Controller(FAILS)
    controller.reconcile(lost(), 1)
    controller.settle(lost().suspended(), 60)
    assert controller.recorded[-1].closing.outcome is Outcome.SUPERSEDED  # type: ignore[union-attr]


def test_no_job_is_failed_without_the_leave_of_recovery_config() -> None:
    controller = Controller(policy(limit=0, on_exhausted=OnExhausted.FAIL_JOB))
    plan = controller.reconcile(lost(), 1)
    assert (controller.phase(), controller.workload_actions) == (Phase.HELD, [])
    assert plan.message.endswith(
        "the JobSet is not failed, because RecoveryConfig does not allow it (spec.allow.failJob)"
    )


@pytest.mark.parametrize("what", list(OnExhausted))
def test_a_job_with_budget_left_is_just_recovered(what: OnExhausted) -> None:
    controller = Controller(policy(on_exhausted=what, may_fail_jobs=True))
    controller.reconcile(lost(), 1)
    assert isinstance(controller.workload_actions[0], DeleteJob)


def test_a_platform_restart_ends_a_hold_and_what_it_called_for() -> None:
    """The suspension of a Hold has no end time, so it must not outlast the Hold."""
    controller = Controller(SUSPENDS)
    controller.reconcile(lost(), 1)
    world = lost().suspended().suspended_by(controller.incident.id)
    controller.reconcile(world, 2)
    controller.reconcile(world.job_deleted(3), 3)
    assert controller.phase() is not Phase.HELD
    assert controller.incident.suspension is None
    assert isinstance(controller.workload_actions[-1], ResumeWorkload)


def test_the_suspension_that_did_not_land_before_the_next_attempt_is_asked_for_once_after_the_trigger() -> None:
    controller = Controller(policy(limit=1, window_seconds=600, on_exhausted=OnExhausted.SUSPEND, backoff=Backoff()))
    controller.reconcile(lost(), 1)
    world = lost().job_deleted(1).all_deleted(1).recreated(3).all_ready(5)
    controller.settle(world, 6)
    world = world.pod_deleted(2, 300)
    controller.reconcile(world, 301)
    controller.done.clear()
    controller.reconcile(world, 602)
    trigger, suspend = controller.workload_actions[:2]
    assert isinstance(trigger, DeleteJob)
    assert isinstance(suspend, SuspendWorkload)
    assert suspend.resume_at == controller.ledger.next_attempt_at
    assert [type(action) for action in controller.workload_actions].count(SuspendWorkload) == 1


def test_a_loss_after_standing_aside_that_is_held_is_let_through_by_the_window() -> None:
    controller = Controller(policy(limit=1, window_seconds=600, on_native_ignore=OnNativeIgnore.STAND_ASIDE))
    rules = (on_condition("Ignore"),)
    world = training(4, rules=rules).pod_deleted(3, 0)
    controller.reconcile(world, 1)
    world = world.job_deleted(1).all_deleted(1).recreated(3).all_ready(5)
    controller.settle(world, 6)
    world = world.evicted(1, 300)
    controller.reconcile(world, 301)
    assert controller.incident.reason is Reason.POD_FAILURE_POLICY
    world = world.pod_deleted(2, 302)
    controller.reconcile(world, 302)
    assert controller.phase() is Phase.HELD
    plan = controller.reconcile(world, 303)
    assert plan.requeue_at == at(601)
    controller.reconcile(world, 602)
    assert len(controller.triggers) == 2


def test_a_loss_after_standing_aside_that_a_pause_held_up_is_seen_to_afterwards() -> None:
    controller = Controller(policy(on_native_ignore=OnNativeIgnore.STAND_ASIDE))
    world = training(4, rules=(on_condition("Ignore"),)).evicted(1, 0)
    controller.reconcile(world, 1)
    world = world.pod_deleted(2, 2)
    controller.reconcile(world.asked("recovery.trainjob.dev/paused", "true"), 3)
    controller.reconcile(world.asked("recovery.trainjob.dev/paused", "true"), 4)
    assert controller.triggers == []
    controller.reconcile(world, 5)
    assert len(controller.triggers) == 1


def test_leave_to_fail_jobs_that_is_taken_back_stops_it() -> None:
    controller = Controller(FAILS)
    controller.reconcile(lost(), 1)
    controller.done.clear()
    controller.policy = policy(limit=0, on_exhausted=OnExhausted.FAIL_JOB)
    controller.reconcile(lost(), 2)
    assert controller.workload_actions == []


def test_a_jobset_that_is_made_to_fail_gets_no_attempt_although_the_window_would_let_it_through() -> None:
    terms = {"window_seconds": 600.0, "on_exhausted": OnExhausted.FAIL_JOB, "may_fail_jobs": True}
    controller = Controller(policy(limit=1, **terms))  # type: ignore[arg-type]
    controller.reconcile(lost(), 1)
    world = lost().job_deleted(1).all_deleted(1).recreated(3).all_ready(5)
    controller.settle(world, 6)
    world = world.pod_deleted(2, 300)
    controller.reconcile(world, 301)
    controller.reconcile(world, 602)
    assert len(controller.triggers) == 1
    assert isinstance(controller.workload_actions[-1], FailJobSet)


def test_a_held_group_without_a_job_waits_for_its_successor() -> None:
    controller = Controller(policy(limit=1, window_seconds=600, start_seconds=60))
    controller.reconcile(lost(), 1)
    world = lost().job_deleted(1).all_deleted(1).recreated(3).all_scheduled()
    controller.reconcile(world, 5)
    controller.reconcile(world, 70)
    assert controller.phase() is Phase.HELD
    controller.reconcile(world.job_gone(), 602)
    controller.reconcile(world.job_gone().job_created(603).pods_created(603), 603)
    assert [trigger.uid for trigger in controller.triggers] == ["job-1", "job-3"]


def test_a_job_that_fails_by_our_own_action_is_not_taken_for_the_decision_of_its_spec() -> None:
    controller = Controller(FAILS)
    controller.reconcile(lost(), 1)
    said = controller.incident.message
    controller.reconcile(lost().job_failing("DeadlineExceeded", 2), 2)
    assert (controller.phase(), controller.incident.message, controller.incident.attempts) == (Phase.HELD, said, ())


def test_a_suspension_that_has_not_begun_when_a_person_says_retry_does_not_begin() -> None:
    controller = Controller(SUSPENDS)
    controller.reconcile(lost(), 1)
    controller.done.clear()
    request = requests.encode(Request(at(1.1)))
    controller.reconcile(lost().asked(requests.ANNOTATIONS[Verb.RETRY], request), 1.2)
    assert len(controller.triggers) == 1
    assert not any(isinstance(action, SuspendWorkload) for action in controller.workload_actions)


def test_a_suspended_job_that_got_a_kueue_queue_is_resumed_when_the_budget_allows_it() -> None:
    terms = {"window_seconds": 600.0, "on_exhausted": OnExhausted.SUSPEND, "backoff": Backoff()}
    controller = Controller(policy(limit=1, **terms))  # type: ignore[arg-type]
    controller.reconcile(lost(), 1)
    world = lost().job_deleted(1).all_deleted(1).recreated(3).all_ready(5)
    controller.settle(world, 6)
    world = world.pod_deleted(2, 300)
    controller.reconcile(world, 301)
    world = world.suspended().suspended_by(controller.incident.id).with_workload(labels={KUEUE_QUEUE_LABEL: "research"})
    controller.reconcile(world, 602)
    controller.reconcile(world.job_deleted(602).recreated_suspended(604), 604.1)
    assert isinstance(controller.workload_actions[-1], ResumeWorkload)
