"""`onTerminalFailure: RecreateJobSet`: the controller deletes a JobSet that has Failed, and Trainer recreates it."""

import msgspec

from recovery.core.model.facts import JobSetFacts
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import DeleteJobSet
from recovery.core.policy.spec import OnTerminalFailure
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at, whole

RECREATE = OnTerminalFailure.RECREATE_JOB_SET


def given_up() -> World:
    return training(4).pod_failed(3, 1, 0).job_failing("BackoffLimitExceeded", 1, finally_=True).jobset_failed(3)


def jobset_deletes(controller: Controller) -> list[DeleteJobSet]:
    return [action for action in controller.done if isinstance(action, DeleteJobSet)]


def without_jobset(world: World) -> World:
    return msgspec.structs.replace(world.job_gone(), jobset=None)


def with_new_jobset(world: World, seconds: float) -> World:
    jobset = JobSetFacts(
        name="train",
        uid="jobset-2",
        resource_version="9",
        generation=1,
        created_at=whole(seconds),
        replicated_jobs=training(4).jobset.replicated_jobs,  # type: ignore[union-attr]
    )
    template = msgspec.structs.replace(world.job_template, jobset_uid="jobset-2")
    return msgspec.structs.replace(world, jobset=jobset, job_template=template)


def test_it_is_left_as_it_is_unless_the_policy_says_otherwise() -> None:
    controller = Controller()
    controller.settle(given_up(), 4)
    assert jobset_deletes(controller) == []
    assert controller.recorded[-1].closing.outcome_reason == "PlatformGaveUp"  # type: ignore[union-attr]


def test_one_of_which_a_rank_has_trained_to_its_end_is_not_deleted() -> None:
    """Starting over would discard finished training."""
    controller = Controller(policy(on_terminal_failure=RECREATE))
    world = training(4).succeeded(0).pod_failed(3, 1, 0)
    controller.settle(world.job_failing("BackoffLimitExceeded", 1, finally_=True).jobset_failed(3), 4)
    assert jobset_deletes(controller) == []
    assert controller.recorded[-1].closing.outcome is Outcome.FAILED  # type: ignore[union-attr]


def test_it_is_deleted_once_and_the_new_one_is_seen_through() -> None:
    controller = Controller(policy(on_terminal_failure=RECREATE))
    world = given_up()
    controller.reconcile(world, 4)
    (action,) = jobset_deletes(controller)
    assert (action.uid, action.resource_version) == ("jobset-1", "1")
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_JOB_SET
    assert "onTerminalFailure: RecreateJobSet" in controller.incident.message
    controller.reconcile(world.with_jobset(deleting_since=whole(4)), 4.2)
    assert controller.phase() is Phase.TEARING_DOWN
    controller.reconcile(without_jobset(world), 5)
    assert controller.phase() is Phase.SCHEDULING
    world = with_new_jobset(without_jobset(world), 6)
    controller.reconcile(world, 6.1)
    assert controller.incident.target.job_set_uid == "jobset-2"
    world = world.job_created(6).pods_created(6)
    controller.reconcile(world, 6.2)
    controller.settle(world.all_ready(9), 9.1)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert (controller.ledger.epoch, controller.ledger.totals.charged, len(jobset_deletes(controller))) == (1, 1, 1)


def test_a_delete_that_a_crash_lost_is_sent_again() -> None:
    controller = Controller(policy(on_terminal_failure=RECREATE))
    controller.write(controller.plan(given_up(), 4))
    controller.reconcile(given_up(), 5)
    controller.reconcile(given_up(), 6)
    assert (controller.ledger.epoch, len(jobset_deletes(controller))) == (1, 2)


def test_waits_for_the_end_of_the_old_jobset_and_for_its_successor_are_reported_after_30_seconds() -> None:
    controller = Controller(policy(on_terminal_failure=RECREATE))
    world = given_up()
    controller.reconcile(world, 4)
    going = world.with_jobset(deleting_since=whole(4))
    assert controller.reconcile(going, 5).requeue_at == at(35)
    assert controller.reconcile(going, 36).reason is Reason.WAITING_FOR_TEARDOWN
    controller = Controller(policy(on_terminal_failure=RECREATE))
    controller.reconcile(world, 4)
    gone = without_jobset(world)
    assert controller.reconcile(gone, 5).requeue_at == at(35)
    assert controller.reconcile(gone, 36).reason is Reason.WAITING_FOR_JOB_SET


def test_a_new_one_that_fails_as_well_is_another_attempt_within_the_budget() -> None:
    controller = Controller(policy(on_terminal_failure=RECREATE, limit=2))
    controller.reconcile(given_up(), 4)
    world = given_up()
    for number, moment in ((2, 10), (3, 20)):
        new = with_new_jobset(without_jobset(world), moment)
        new = new.with_jobset(uid=f"jobset-{number}")
        controller.reconcile(new, moment + 0.1)
        failed = new.jobset_failed(moment + 2)
        controller.settle(failed, moment + 2.5)
    assert len(jobset_deletes(controller)) == 2
    closing = controller.recorded[-1].closing
    assert closing is not None
    assert closing.outcome is Outcome.FAILED
    assert "the controller does not recreate it, because" in controller.recorded[-1].message


def test_no_one_would_make_a_bare_jobset_again() -> None:
    controller = Controller(policy(on_terminal_failure=RECREATE))
    controller.settle(given_up().with_workload(kind="JobSet"), 4)
    assert jobset_deletes(controller) == []
    assert "without a TrainJob nothing would create it again" in controller.recorded[-1].message


def test_the_decision_of_the_users_own_policy_stands() -> None:
    controller = Controller(policy(on_terminal_failure=RECREATE))
    world = training(4, backoff_limit=0).pod_failed(3, 1, 0).job_failing("BackoffLimitExceeded", 1).jobset_failed(3)
    controller.settle(world, 4)
    assert jobset_deletes(controller) == []
    assert controller.recorded[-1].closing.outcome_reason == "NativePolicy"  # type: ignore[union-attr]


def test_a_user_who_deletes_the_train_job_meanwhile_supersedes_it() -> None:
    controller = Controller(policy(on_terminal_failure=RECREATE))
    controller.reconcile(given_up(), 4)
    controller.settle(without_jobset(given_up()).with_workload(deleting_since=at(5)), 5)
    assert controller.recorded[-1].closing.outcome is Outcome.SUPERSEDED  # type: ignore[union-attr]


def test_a_new_one_that_asks_for_fewer_members_is_whole_with_those() -> None:
    controller = Controller(policy(on_terminal_failure=RECREATE))
    controller.reconcile(given_up(), 4)
    world = with_new_jobset(without_jobset(given_up()), 6).job_created(6).with_job(parallelism=2, completions=2)
    snapshot = msgspec.structs.replace(world.pods_created(6).all_ready(9).snapshot(live=True), expected_jobs=1)
    plan = controller.plan_on(snapshot, snapshot, 9.1)
    assert plan.ledger.incident is not None
    assert plan.ledger.incident.closing is not None
    assert plan.ledger.incident.closing.outcome is Outcome.RECOVERED
