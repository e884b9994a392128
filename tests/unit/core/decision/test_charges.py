"""What an incident costs: our first restart of it, once. What others do is not charged, and refunds nothing."""

from datetime import timedelta

from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.policy.resolved import Backoff
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

RESTARTS = FailurePolicyFacts(max_restarts=50)


def restarted_by_jobset(world: World, seconds: float) -> World:
    """The Job has failed for good, and the JobSet restarts the group by its failurePolicy."""
    return world.job_failing("BackoffLimitExceeded", seconds, finally_=True).restarted_by_jobset()


def test_a_restart_by_the_jobset_before_any_of_ours_is_not_charged() -> None:
    controller = Controller(policy(limit=1))
    world = training(failure_policy=RESTARTS)
    for number in range(3):
        now = 3600.0 * number
        going = restarted_by_jobset(world.pod_failed(3, 137, now), now).job_deleted(now + 1)
        controller.reconcile(going, now + 1.5)
        world = going.recreated(now + 10).all_ready(now + 30)
        controller.settle(world, now + 31)
    assert controller.triggers == []
    assert [incident.restarts for incident in controller.recorded] == [1, 1, 1]
    assert [incident.charged for incident in controller.recorded] == [False, False, False]
    assert controller.ledger.budget.charges == ()


def test_a_restart_by_another_client_during_our_backoff_is_not_charged() -> None:
    """The job has a deadline, so the backoff does not suspend it."""
    controller = Controller(policy(backoff=Backoff(initial=timedelta(seconds=60))))
    first = training(backoff_limit=50).with_workload(active_deadline_seconds=864_000).pod_deleted(3, 0)
    controller.reconcile(first, 0.5)
    world = first.job_deleted(1).recreated(5).all_ready(20)
    controller.settle(world, 21)
    controller.reconcile(world.pod_deleted(3, 40), 40.5)
    assert controller.phase() is Phase.BACKOFF
    controller.reconcile(world.pod_deleted(3, 40).job_deleted(45), 45.5)
    assert controller.incident.attempts[-1].action is AttemptAction.ADOPTED
    assert not controller.incident.charged
    assert controller.ledger.totals.charged == 1


def test_a_suspension_before_our_first_restart_is_not_charged() -> None:
    controller = Controller(policy(limit=0))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    controller.settle(world.suspended(), 5)
    [incident] = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.charged) == (Outcome.SUPERSEDED, False)


def test_our_restart_after_one_of_the_jobsets_is_charged() -> None:
    controller = Controller()
    going = restarted_by_jobset(training(failure_policy=RESTARTS).pod_failed(3, 137, 0), 0).job_deleted(1)
    controller.reconcile(going, 1.5)
    world = going.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.reconcile(world.pod_failed(1, 1, 20), 21)
    assert len(controller.triggers) == 1
    assert controller.ledger.budget.charges == (at(21),)


def test_a_suspension_after_our_restart_refunds_nothing() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    controller.settle(world.job_deleted(1).recreated(5).suspended(), 6)
    [incident] = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.charged) == (Outcome.SUPERSEDED, True)
    assert controller.ledger.budget.charges == (at(0.5),)


def test_a_crash_our_restart_and_a_restart_by_the_jobset_do_not_repeat_for_ever() -> None:
    """The group that we restart fails before it has met, and the JobSet's own restart is the one that works."""
    controller = Controller(policy(limit=2))
    world = training(failure_policy=RESTARTS)
    for number in range(3):
        now = 3600.0 * number
        lost = world.pod_failed(3, 137, now)
        controller.reconcile(lost, now + 0.5)
        if controller.phase() is Phase.HELD:
            break
        coming = lost.job_deleted(now + 1).recreated(now + 5).all_scheduled()
        controller.reconcile(coming, now + 6)
        going = restarted_by_jobset(coming, now + 20)
        controller.reconcile(going, now + 21)
        world = going.job_deleted(now + 22).recreated(now + 30).all_ready(now + 40)
        controller.settle(world, now + 41)
    assert controller.phase() is Phase.HELD
    assert len(controller.triggers) == len(controller.ledger.budget.charges) == 2
