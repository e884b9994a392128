"""A restart that is not ours is never doubled: the open incident adopts it."""

import msgspec
import pytest

from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.reason import Reason
from recovery.core.model.rules import RuleAction
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_verdicts import on_exit
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

RESTARTS = FailurePolicyFacts(max_restarts=3)


def actions(controller: Controller) -> list[AttemptAction]:
    return [attempt.action for attempt in controller.incident.attempts]


def failing() -> World:
    """A Job whose JobSet has a failurePolicy has failed. The JobSet has not reacted yet."""
    return training(failure_policy=RESTARTS).pod_failed(3, 137, 0).job_failing("BackoffLimitExceeded", 1, finally_=True)


def test_the_jobsets_own_restart_is_adopted_and_not_charged() -> None:
    controller = Controller()
    controller.reconcile(failing(), 1.2)
    restarting = failing().restarted_by_jobset()
    plan = controller.reconcile(restarting, 1.5)
    assert plan.reason is Reason.PLATFORM_RESTART
    controller.reconcile(restarting.job_deleted(1), 2)
    assert controller.phase() is Phase.TEARING_DOWN
    controller.settle(restarting.recreated(10).all_ready(30), 30.5)
    assert controller.workload_actions == []
    assert controller.ledger.epoch == controller.ledger.totals.restarts == 1
    assert controller.ledger.totals.charged == 0
    assert controller.events == ["MemberLost", "RestartAdopted", "IncidentRecovered"]


def test_under_a_rule_that_is_free_of_charge_it_costs_nothing_either() -> None:
    """Seed 3283: another member failed before all ranks ran again, so JobSet restarted the group."""
    controller = Controller(policy(rules=(on_exit(42, RuleAction.RECREATE_GROUP, charge=False),)))
    controller.reconcile(training(failure_policy=RESTARTS).pod_failed(3, 42, 0), 1)
    again = training(failure_policy=RESTARTS).recreated(10)
    controller.reconcile(again, 10.5)
    controller.reconcile(again.restarted_by_jobset().job_deleted(20), 20.5)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP, AttemptAction.ADOPTED]
    assert controller.ledger.totals.charged == 0


def test_under_a_rule_that_leaves_the_failure_to_kubernetes_it_costs_nothing_either() -> None:
    """Seed 7960: JobSet restarted the group for a loss that had vanished while no controller led."""
    controller = Controller(policy(rules=(on_exit(42, RuleAction.IGNORE),)))
    world = training(failure_policy=RESTARTS).pod_failed(3, 42, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world, 4)
    controller.reconcile(world.restarted_by_jobset().job_deleted(20), 20.5)
    assert actions(controller) == [AttemptAction.NONE, AttemptAction.ADOPTED]
    assert controller.ledger.totals.charged == 0


def test_one_that_is_seen_late_is_dated_by_the_job_that_it_brought_back() -> None:
    """No controller led meanwhile. Dated by the present, the incident would end long after the training resumed."""
    controller = Controller()
    controller.reconcile(training().pod_deleted(3, 0), 1)
    controller.reconcile(training().recreated(10), 10.5)
    restarted = training().restarted_by_jobset().recreated(20).recreated(40).all_ready(45)
    controller.reconcile(restarted, 100)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP, AttemptAction.ADOPTED]
    assert [span.started_at for span in controller.incident.phases if span.phase is Phase.DECIDED][-1] == at(41)
    assert controller.incident.closing is not None
    assert controller.incident.closing.ended_at == at(46)


def test_seen_for_the_first_time_while_the_jobset_restarts_it_is_adopted_at_once() -> None:
    controller = Controller()
    plan = controller.reconcile(failing().restarted_by_jobset().job_deleted(1), 1.5)
    assert plan.reason is Reason.PLATFORM_RESTART
    assert actions(controller) == [AttemptAction.ADOPTED]
    assert controller.phase() is Phase.TEARING_DOWN
    assert controller.workload_actions == []


def test_a_jobset_restart_is_adopted_while_only_the_first_of_several_jobs_is_back() -> None:
    """JobSet recreates its Jobs one by one: one Job of the next attempt runs while the other is still being deleted."""
    world = training(2).job_created(-3600, name="train-node-1").pods_created(-3600).all_ready(-3590)
    going = world.pod_failed(1, 1, 0).restarted_by_jobset().job_deleted(1)
    first = msgspec.structs.replace(going.jobs[0], uid="job-3", restart_attempt=1, created_at=at(2))
    controller = Controller()
    plan = controller.reconcile(msgspec.structs.replace(going.job_gone("job-1"), jobs=(first, going.jobs[1])), 3)
    assert plan.reason is Reason.PLATFORM_RESTART
    assert actions(controller) == [AttemptAction.ADOPTED]
    assert controller.incident.target.from_restarts == 1


def test_a_job_whose_restart_attempt_is_ahead_of_the_jobset_tells_of_the_restart() -> None:
    """Watches of different kinds are not ordered, so the new Job may arrive before the JobSet's status."""
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    ahead = world.restarted_by_jobset().recreated(5)
    stale = msgspec.structs.replace(ahead, jobset=world.jobset).although("attempt-ahead-of-its-jobset")
    controller.reconcile(stale, 6)
    controller.reconcile(ahead, 7)
    controller.reconcile(ahead.all_scheduled(), 8)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    assert controller.ledger.epoch == 1


def test_a_job_that_someone_else_deletes_in_an_incident_is_adopted() -> None:
    controller = observing()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    plan = controller.reconcile(world.job_deleted(5), 5.5)
    assert plan.reason is Reason.PLATFORM_RESTART
    controller.settle(world.job_deleted(5).recreated(10).all_ready(20), 20.5)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert incident.closing.outcome is Outcome.OBSERVED
    assert controller.ledger.epoch == 1
    assert controller.ledger.totals.charged == 0


def test_a_job_that_is_gone_altogether_is_adopted_as_well() -> None:
    controller = observing()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    controller.reconcile(world.recreated(10), 10.5)
    assert actions(controller) == [AttemptAction.ADOPTED]
    assert controller.phase() is Phase.SCHEDULING


@pytest.mark.parametrize("mode", Mode)
def test_a_job_that_someone_deletes_while_its_group_starts_is_waited_for(mode: Mode) -> None:
    """No Job is left to date the run by, and `decide` must still return a plan."""
    one = Controller(policy(mode))
    world = training().pod_deleted(1, 0)
    one.reconcile(world, 1)
    one.reconcile(world.job_deleted(2), 3)
    world = world.recreated(10).all_scheduled()
    one.reconcile(world, 11)
    assert one.phase() is Phase.STARTING
    one.reconcile(world.job_deleted(12), 13)
    one.settle(world.recreated(20).all_ready(30), 31)
    assert [incident.closing is not None for incident in one.recorded] == [True]


def test_a_job_that_is_going_is_not_deleted_again_on_a_ledger_of_before() -> None:
    """The action was done, but this ledger is from before it, so the deletion looks like that of another client. The
    API server refuses the write of that incident: it would replace a newer ledger."""
    controller = Controller()
    controller.reconcile(training().pod_deleted(3, 0).job_deleted(1).all_deleted(1), 2)
    assert controller.workload_actions == []
    assert actions(controller) == [AttemptAction.ADOPTED]
    assert not controller.incident.charged


def test_a_cache_that_does_not_know_the_job_yet_adopts_nothing() -> None:
    controller = observing()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    stale = msgspec.structs.replace(world, jobs=(), trained_at={})
    cached, live = stale.snapshot(), world.snapshot(live=True)
    plan = controller.plan_on(cached, live, 1)
    assert plan.ledger == controller.ledger


# --- races between the platform's restart and ours -----------------------------------------------------------------


def test_overtaken_before_our_trigger_landed_the_restart_is_the_platforms() -> None:
    controller = Controller()
    world = training(failure_policy=RESTARTS).pod_failed(3, 137, 0)
    controller.write(controller.plan(world, 0.5))  # and the API server answers the DeleteJob with 409
    overtaken = world.job_failing("BackoffLimitExceeded", 1, finally_=True).restarted_by_jobset()
    plan = controller.reconcile(overtaken, 1.1)
    assert actions(controller) == [AttemptAction.ADOPTED]
    assert plan.reason is Reason.PLATFORM_RESTART
    assert controller.triggers == []
    assert controller.ledger.epoch == controller.ledger.totals.restarts == 1


def test_overtaken_after_our_trigger_landed_the_restart_stays_ours() -> None:
    controller = Controller()
    world = training(failure_policy=RESTARTS).pod_failed(3, 137, 0)
    controller.reconcile(world, 0.5)
    controller.reconcile(world.job_deleted(1).restarted_by_jobset(), 1.1)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    assert controller.ledger.epoch == 1
    controller.settle(world.restarted_by_jobset().recreated(5).all_ready(9), 10)
    assert controller.ledger.epoch == 1
    assert len(controller.triggers) == 1


def test_a_restart_of_the_platforms_after_ours_is_another_one() -> None:
    """Our restart got as far as Starting. Then the new Job failed, and the JobSet restarts it."""
    controller = Controller()
    world = training(failure_policy=RESTARTS).pod_failed(3, 137, 0)
    controller.reconcile(world, 0.5)
    coming = world.job_deleted(1).recreated(5).all_scheduled()
    controller.reconcile(coming, 6)
    assert controller.phase() is Phase.STARTING
    broken = coming.job_failing("BackoffLimitExceeded", 20, finally_=True)
    controller.reconcile(broken, 20.5)
    plan = controller.reconcile(broken.restarted_by_jobset(), 21)
    assert plan.reason is Reason.PLATFORM_RESTART
    assert actions(controller) == [AttemptAction.RECREATE_GROUP, AttemptAction.NONE, AttemptAction.ADOPTED]
    assert controller.phase() is Phase.DECIDED
    assert controller.ledger.epoch == 2
    assert controller.ledger.totals.charged == 1
    controller.reconcile(broken.restarted_by_jobset().job_deleted(22), 22)
    assert controller.phase() is Phase.TEARING_DOWN
    controller.settle(broken.restarted_by_jobset().recreated(30).all_ready(40), 41)
    assert len(controller.triggers) == 1
    assert len(controller.recorded) == 1


def test_an_adopted_restart_ends_a_hold_and_asks_for_no_budget() -> None:
    controller = Controller(policy(limit=0))
    world = training(failure_policy=RESTARTS).pod_failed(3, 137, 0)
    controller.reconcile(world, 0.5)
    assert controller.phase() is Phase.HELD
    restarting = world.job_failing("BackoffLimitExceeded", 1, finally_=True).restarted_by_jobset().job_deleted(1)
    controller.reconcile(restarting, 2)
    assert controller.phase() is Phase.TEARING_DOWN
    assert controller.ledger.totals.charged == 0
    assert controller.ledger.budget.charges == ()
    controller.settle(restarting.recreated(5).all_ready(9), 10)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert incident.closing.outcome is Outcome.RECOVERED
    assert not incident.charged
    assert controller.triggers == []


def test_the_first_trigger_after_an_adopted_restart_without_budget_is_held() -> None:
    controller = Controller(policy(limit=0))
    world = training(failure_policy=RESTARTS).pod_failed(3, 137, 0)
    restarting = world.job_failing("BackoffLimitExceeded", 1, finally_=True).restarted_by_jobset().job_deleted(1)
    controller.reconcile(restarting, 2)
    back = restarting.recreated(5).all_started(9).pod_deleted(1, 20)
    plan = controller.reconcile(back, 21)
    assert controller.phase() is Phase.HELD
    assert controller.triggers == []
    assert "held, because the budget of policy default is exhausted (limit 0 within 24h)" in plan.message


def test_no_more_than_one_restart_enters_the_ledger_in_one_write() -> None:
    """While the controller was down, the JobSet restarted the group and the group lost a member again."""
    controller = Controller()
    world = failing()
    controller.reconcile(world, 1.2)
    again = world.restarted_by_jobset().recreated(10).all_started(20).pod_deleted(1, 30)
    controller.reconcile(again, 31)
    assert controller.ledger.epoch == 1
    controller.reconcile(again, 31)
    assert controller.ledger.epoch == 2
    assert actions(controller) == [AttemptAction.NONE, AttemptAction.ADOPTED, AttemptAction.RECREATE_GROUP]
    assert [trigger.uid for trigger in controller.triggers] == ["job-2"]
    assert controller.incident.started_at == at(0)


def test_the_end_of_an_incident_does_not_say_twice_that_the_same_restart_was_adopted() -> None:
    controller = Controller()
    world = training().pod_failed(3, 137, 0)
    for seconds in (2, 40):
        world = world.restarted_by_jobset()
        controller.reconcile(world.job_deleted(seconds), seconds)
        world = world.recreated(seconds + 10).all_started(seconds + 20)
        controller.reconcile(world, seconds + 20)
    assert actions(controller) == [AttemptAction.ADOPTED, AttemptAction.ADOPTED]
    said = controller.incident.message
    assert controller.settle(world.all_ready(90), 91).reason is Reason.INCIDENT_RECORDED
    (closed,) = controller.recorded
    assert closed.message.count("adopted as this incident's restart") == 1
    assert said in closed.message


def test_restarts_by_the_platform_one_after_the_other_do_not_make_the_sentence_grow() -> None:
    """A group that its JobSet restarts all night must not outgrow the API server's size limit for an object."""
    one = observing()
    world = training().pod_failed(2, 1, 0)
    one.reconcile(world, 1)
    assert one.incident.would
    for number in range(30):
        world = world.restarted_by_jobset()
        one.reconcile(world, 10 + 10 * number)
        world = world.recreated(11 + 10 * number)
        one.reconcile(world, 12 + 10 * number)
    assert len(one.incident.message) < 1000
    assert one.incident.message.count("adopted as this incident's restart") == 1
    one.settle(world.all_ready(400), 401)
    (incident,) = one.recorded
    assert "Enforce would have" in incident.message


def test_the_end_of_an_incident_keeps_all_that_was_left_to_the_platform_before_its_restart() -> None:
    """It keeps how the incident began and what came last before someone restarted the group."""
    controller = Controller()
    world = training(backoff_limit=0).pod_failed(2, 1, 0)
    controller.reconcile(world, 1)
    world = world.pod_failed(3, 1, 5)
    controller.reconcile(world, 6)
    (aside,) = controller.incident.attempts
    assert aside.then
    controller.settle(world.restarted_by_jobset().job_deleted(7), 8)
    controller.settle(world.restarted_by_jobset().recreated(20).all_ready(30), 31)
    (closed,) = controller.recorded
    assert aside.whole_message in closed.message
