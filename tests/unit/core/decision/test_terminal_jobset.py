"""A JobSet that has failed is reported once and never touched."""

from recovery.core.model.facts import Condition
from recovery.core.model.ledger import Ledger, Outcome
from recovery.core.model.reason import Reason
from tests.unit.core.diagnosis.test_native_policies import on_exit
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def failed(seconds: float) -> World:
    """Eight exits occur while no controller runs, and the JobSet has failed."""
    world = training(16, restart_policy="OnFailure")
    for index in range(8):
        world = world.container_exited(index, 1, seconds)
    return world.job_failing("BackoffLimitExceeded", seconds + 1, finally_=True).jobset_failed(seconds + 3)


def test_found_failed_shortly_after_it_is_one_incident_and_no_write_to_the_workload() -> None:
    controller = Controller()
    plan = controller.reconcile(failed(-60), 0)
    assert plan.reason is Reason.PLATFORM_GAVE_UP
    controller.settle(failed(-60), 0)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.FAILED, "PlatformGaveUp")
    assert incident.started_at == at(-60)
    assert incident.detected_at == at(0)
    assert incident.closing.ended_at == at(-56), "within the second in which the JobSet failed"
    assert incident.suspects[0].exit_code == 1
    assert controller.workload_actions == []
    assert controller.ledger.epoch == controller.ledger.totals.charged == 0
    assert controller.reconcile(failed(-60), 60).reason is Reason.JOB_SET_FAILED
    assert len(controller.recorded) == 1


def test_found_failed_with_nothing_left_but_the_condition() -> None:
    controller = Controller()
    world = training().jobset_failed(-60)
    controller.settle(world.controller_restarted(), 0)
    (incident,) = controller.recorded
    assert incident.disruption_class == "JobFailed"
    assert incident.started_at == at(-60)


def test_a_jobset_that_failed_before_the_policy_opens_no_incident() -> None:
    controller = Controller(policy(since=-10))
    assert controller.reconcile(failed(-60), 0).reason is Reason.JOB_SET_FAILED
    assert controller.ledger == Ledger()
    assert controller.live_reads == 0


def test_a_jobset_that_failed_long_ago_opens_no_incident() -> None:
    controller = Controller()
    controller.reconcile(failed(-1000), 0)
    assert controller.ledger == Ledger()


def test_a_jobset_that_failed_without_a_date_opens_no_incident() -> None:
    controller = Controller()
    undated = Condition("Failed", "True", "FailedJobs")
    controller.reconcile(training().with_jobset(terminal_state="Failed", conditions=(undated,)), 0)
    assert controller.ledger == Ledger()


def test_failed_by_the_users_own_rule_it_is_the_users_decision() -> None:
    world = training(rules=(on_exit("FailJob", 42),)).pod_failed(3, 42, -10)
    controller = Controller()
    controller.settle(world.job_failing("PodFailurePolicy", -9, finally_=True).jobset_failed(-8), 0)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome_reason == "NativePolicy"


def test_a_rule_that_only_ignores_has_not_failed_it() -> None:
    world = training(rules=(on_exit("Ignore", 42),)).pod_failed(3, 42, -10)
    controller = Controller()
    controller.settle(world.job_failing("BackoffLimitExceeded", -9, finally_=True).jobset_failed(-8), 0)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome_reason == "PlatformGaveUp"


def test_reported_in_an_incident_it_is_not_reported_again() -> None:
    controller = Controller(policy(limit=0))
    world = training().pod_failed(3, 1, 0)
    controller.reconcile(world, 1)
    end = world.jobset_failed(5)
    controller.settle(end, 6)
    controller.reconcile(end, 7)
    assert controller.ledger.totals.incidents == 1
    assert len(controller.recorded) == 1


def test_observed_as_it_is() -> None:
    controller = observing()
    controller.settle(failed(-60), 0)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome is Outcome.FAILED


def test_paused_it_is_not_even_reported() -> None:
    controller = Controller()
    controller.reconcile(failed(-60).paused(), 0)
    assert controller.ledger == Ledger()
