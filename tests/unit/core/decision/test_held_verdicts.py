"""What holds a group or fails its job, what does not, and how a Hold ends."""

import pytest

from recovery.core.decision.decide import decide
from recovery.core.decision.resuming import OUTLIVES_IN
from recovery.core.incident.lifecycle import MAX_ATTEMPTS
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.reason import Reason
from recovery.core.model.rules import RuleAction
from recovery.core.plan.actions import DeleteJobSet, FailJobSet
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import OnExhausted, OnTerminalFailure, Restart
from tests.unit.core.decision.test_verdicts import MAY, on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

FAIL_42 = on_exit(42, RuleAction.FAIL_JOB, name="fail-forty-two")
RECREATE_42 = on_exit(42, RuleAction.RECREATE_GROUP)
OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
WATCHDOG = "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"


def made_to_fail(controller: Controller) -> list[FailJobSet]:
    return [action for action in controller.done if isinstance(action, FailJobSet)]


def asks_for(verb: str, world: World, seconds: float) -> World:
    return world.asked(f"recovery.trainjob.dev/{verb}", at(seconds).isoformat())


def restarted_and_lost_again(controller: Controller, code: int) -> World:
    """The group is restarted for one loss, and all ranks run at 15 s. Rank 1 is lost at 20 s, before all are Ready."""
    world = training().pod_failed(2, code, 0)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    return world.pod_failed(1, code, 20)


# --- errors that come back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "held"),
    [
        pytest.param(OFF_THE_BUS, False, id="the hardware"),
        pytest.param(WATCHDOG, False, id="the network"),
        pytest.param("KeyError: 'lr'", True, id="the job itself"),
    ],
)
def test_only_an_error_that_may_be_the_jobs_own_is_held_against_it_when_it_comes_back(message: str, held: bool) -> None:
    """The error comes early and on another node. Bad nodes fail early too, and the network fails on any node."""
    controller = Controller(policy(limits=MAY))
    world = training(born=-30).pod_failed(2, 134, 0, message=message)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_ready(20)
    controller.settle(world, 22)
    controller.reconcile(world.with_pod(2, node="gpu-9").pod_failed(2, 134, 60, message=message), 61)
    assert (controller.phase() is Phase.HELD) == held
    assert len(controller.triggers) == (1 if held else 2)


def test_a_held_job_that_its_kubelet_restarts_stays_held_until_it_has_outlived_its_error() -> None:
    """Otherwise each restart by the kubelet would open an incident of its own."""
    message = "KeyError: 'lr'"
    controller = Controller()
    world = training(born=-30, restart_policy="OnFailure").container_exited(2, 1, 0, message=message)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_ready(20)
    controller.settle(world, 22)
    world = world.with_pod(2, node="gpu-9")
    for seconds in range(60, 360, 60):
        world = world.container_exited(2, 1, seconds, message=message)
        controller.reconcile(world, seconds + 1)
        for rank in (0, 1, 3):
            world = world.container_restarted(rank, 134, seconds + 1)
        world = world.container_back(2, seconds + 3)
        controller.settle(world, seconds + 12)
        assert controller.phase() is Phase.HELD
    assert controller.ledger.totals.incidents == 2
    outlived = 303 + OUTLIVES_IN.total_seconds()
    assert controller.reconcile(world, outlived - 1).requeue_at == at(outlived)
    controller.settle(world, outlived)
    assert controller.recorded[-1].closing is not None
    assert controller.recorded[-1].closing.outcome is Outcome.HELD
    assert (controller.ledger.incident, len(controller.triggers)) == (None, 1)


def test_a_held_job_that_runs_whole_again_books_no_idle_time_when_its_user_suspends_it() -> None:
    message = "KeyError: 'lr'"
    controller = Controller()
    world = training(born=-30, restart_policy="OnFailure").container_exited(2, 1, 0, message=message)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_ready(20)
    controller.settle(world, 22)
    world = world.with_pod(2, node="gpu-9").container_exited(2, 1, 60, message=message)
    controller.reconcile(world, 61)
    world = world.container_back(2, 63)
    controller.settle(world, 72)
    assert controller.phase() is Phase.HELD
    controller.settle(world.suspended(), 400)
    closed = controller.recorded[-1]
    assert closed.closing is not None
    assert (closed.closing.outcome_reason, closed.closing.ended_at) == (Reason.JOB_SUSPENDED, at(64))
    assert sum(span.idle_gpu_seconds for span in closed.phases) == 4 * closed.gpus


# --- jobs that are made to fail ------------------------------------------------------------------------------------


def exhausted(limit: int) -> Policy:
    return policy(limit=limit, on_exhausted=OnExhausted.FAIL_JOB, may_fail_jobs=True)


@pytest.mark.parametrize(
    ("policy_", "code"),
    [
        pytest.param(policy(rules=(FAIL_42,), may_fail_jobs=True), 42, id="by a rule"),
        pytest.param(exhausted(0), 1, id="by an exhausted budget"),
    ],
)
def test_a_training_that_is_finishing_is_not_made_to_fail(policy_: Policy, code: int) -> None:
    controller = Controller(policy_)
    world = training().succeeded(0).pod_failed(2, code, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world, 4)
    assert controller.workload_actions == []
    assert controller.phase() is Phase.HEALTHY


@pytest.mark.parametrize(
    ("policy_", "code"),
    [
        pytest.param(policy(rules=(FAIL_42,), may_fail_jobs=True), 42, id="by a rule"),
        pytest.param(exhausted(1), 1, id="by an exhausted budget"),
    ],
)
def test_a_training_that_is_finishing_after_a_restart_is_not_made_to_fail(policy_: Policy, code: int) -> None:
    controller = Controller(policy_)
    world = training().pod_failed(2, 1, 0)
    controller.reconcile(world, 3)
    controller.reconcile(world, 5)
    assert controller.ledger.totals.restarts == 1
    world = world.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.settle(world.succeeded(0).succeeded(1).pod_failed(2, code, 100), 101)
    assert made_to_fail(controller) == []
    assert controller.recorded[-1].closing is not None
    assert controller.recorded[-1].closing.outcome_reason == "JobFinishing"


def test_a_training_that_finishes_before_the_action_is_not_made_to_fail() -> None:
    """The process ends once the verdict is in the ledger. Rank 0 has Succeeded when the next process reconciles."""
    controller = Controller(policy(rules=(FAIL_42,), may_fail_jobs=True))
    world = training().pod_failed(2, 1, 0)
    controller.reconcile(world, 3)
    controller.reconcile(world, 5)
    world = world.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    world = world.pod_failed(2, 42, 100)
    controller.reconcile(world, 101)
    controller.write(controller.plan(world, 104))
    assert controller.phase() is Phase.HELD
    assert controller.incident.step.fails_job
    controller.reconcile(world.succeeded(0), 110)
    assert made_to_fail(controller) == []


def test_a_group_held_by_its_budget_is_made_to_fail_by_a_cause_that_comes_in_later() -> None:
    """The action follows what the message says."""
    controller = Controller(policy(rules=(FAIL_42,), may_fail_jobs=True, limit=0))
    world = training().pod_failed(2, 1, 2)
    controller.reconcile(world, 3)
    controller.reconcile(world, 6)
    assert controller.incident.reason is Reason.BUDGET_EXHAUSTED
    controller.reconcile(world.pod_failed(1, 42, 1), 7)
    assert "says FailJob; the controller fails the JobSet" in controller.incident.message
    assert len(made_to_fail(controller)) == 1
    assert controller.phase() is Phase.HELD


def test_a_group_that_may_not_be_made_to_fail_any_more_is_restarted_by_retry() -> None:
    """Between the verdict and the action, RecoveryConfig revokes its permission."""
    controller = Controller(policy(rules=(FAIL_42,), may_fail_jobs=True))
    world = training().pod_failed(2, 42, 0)
    controller.reconcile(world, 1)
    controller.write(controller.plan(world, 4))  # the verdict is in the ledger, and the process ends
    controller.policy = policy(rules=(FAIL_42,), may_fail_jobs=False)
    controller.reconcile(world, 10)
    assert controller.workload_actions == []
    controller.reconcile(asks_for("retry", world, 20), 21)
    assert made_to_fail(controller) == []
    assert len(controller.triggers) == 1


def test_a_group_that_is_being_made_to_fail_is_not_restarted_by_retry() -> None:
    controller = Controller(policy(rules=(FAIL_42,), may_fail_jobs=True))
    world = training().pod_failed(2, 42, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world, 4)
    controller.reconcile(asks_for("retry", world, 20), 21)
    assert controller.triggers == []
    assert [(told.accepted, told.message) for told in controller.ledger.requests] == [
        (False, "the group stays Held until its JobSet has failed")
    ]


def test_a_retry_by_hand_is_not_ascribed_to_the_rule_that_held_the_group() -> None:
    controller = Controller(policy(rules=(FAIL_42,)))
    world = training().pod_failed(2, 42, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world, 4)
    assert (controller.phase(), controller.incident.rule) == (Phase.HELD, "fail-forty-two")
    controller.reconcile(asks_for("retry", world, 500), 501)
    assert len(controller.triggers) == 1
    assert controller.incident.rule == ""
    assert controller.incident.reason is Reason.RESTARTED_BY_HAND


# --- the budget ----------------------------------------------------------------------------------------------------


def test_a_restart_after_one_of_the_platforms_own_is_charged_once() -> None:
    """Only ours is charged, and the message states the recoveries that are really left."""
    controller = Controller(policy(limit=1))
    world = training(failure_policy=FailurePolicyFacts(max_restarts=5)).pod_failed(2, 1, 0)
    adopted = world.job_failing("BackoffLimitExceeded", 0).restarted_by_jobset().job_deleted(1)
    controller.reconcile(adopted, 1)
    assert controller.incident.attempts[-1].action is AttemptAction.ADOPTED
    world = adopted.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.reconcile(world.pod_failed(1, 1, 20), 21)
    assert len(controller.triggers) == 1
    assert controller.ledger.budget.charges == (at(21),)
    assert "(0 of 1 recoveries left)" in controller.incident.message


def test_what_the_window_lets_through_is_for_the_rules_to_decide_again() -> None:
    """The default is None, so only the rule that called for the first restart can call for the next one."""
    controller = Controller(policy(rules=(RECREATE_42,), restart=Restart.NONE, limit=1, window_seconds=100))
    lost = restarted_and_lost_again(controller, 42)
    assert controller.reconcile(lost, 21).requeue_at == at(101)
    assert controller.phase() is Phase.HELD
    controller.reconcile(lost, 101)
    assert len(controller.triggers) == 2
    assert controller.incident.rule == "mine"
    assert "the group was held until the budget allowed another attempt" in controller.incident.message


def test_an_incident_free_of_charge_gets_no_more_attempts_than_any_other() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.RECREATE_GROUP, charge=False),)))
    world = training().pod_failed(2, 42, 0)
    controller.reconcile(world, 1)
    seconds = 1.0
    for _ in range(MAX_ATTEMPTS):
        seconds += 20
        assert controller.phase() is not Phase.HELD
        world = world.recreated(seconds).all_started(seconds + 5)
        controller.reconcile(world, seconds + 6)
        world = world.pod_failed(2, 42, seconds + 8)
        controller.reconcile(world, seconds + 9)
    assert controller.phase() is Phase.HELD
    controller.reconcile(world, seconds + 10)
    assert controller.phase() is Phase.HELD
    assert len(controller.triggers) == MAX_ATTEMPTS


def test_a_start_that_takes_too_long_is_left_alone_once_where_the_default_is_none() -> None:
    """No rule covers a slow start. The ledger records it once, and another reconcile changes nothing."""
    controller = Controller(policy(rules=(RECREATE_42,), restart=Restart.NONE))
    world = training().pod_failed(2, 42, 0)
    controller.reconcile(world, 1)
    starting = world.recreated(10).all_scheduled()
    controller.reconcile(starting, 16)
    controller.reconcile(starting, 950)
    assert controller.incident.reason is Reason.RESTART_NONE
    before = controller.ledger
    controller.reconcile(starting, 951)
    assert controller.ledger == before
    assert len(controller.triggers) == 1


def test_a_cached_reconcile_says_of_a_held_group_what_a_live_one_says() -> None:
    """Only a live reconcile knows of the storm. The message must not alternate between reconciles."""
    controller = Controller(policy(limit=0, limits=MAY))
    world = training().node_silent("gpu-2", 0).node_deleted("gpu-2")
    controller.reconcile(world, 1)
    assert controller.phase() is Phase.HELD
    said = controller.incident.message
    storm = world.nodes_lost(("gpu-2", 0), ("gpu-50", 1), ("gpu-51", 2))
    live = decide(storm.snapshot(live=True), controller.ledger, controller.policy, at(3))
    cached = decide(storm.snapshot(), controller.ledger, controller.policy, at(3))
    assert (live.message, cached.message) == (said, said)
    controller.write(live)
    assert decide(storm.snapshot(), controller.ledger, controller.policy, at(4)).ledger == controller.ledger


# --- native policies that are overridden ---------------------------------------------------------------------------


@pytest.mark.parametrize(("override", "restarts"), [(True, 1), (False, 0)])
def test_override_native_restarts_a_group_that_its_backoff_limit_would_fail(override: bool, restarts: int) -> None:
    controller = Controller(policy(override_native=override))
    controller.reconcile(training(backoff_limit=0).pod_failed(2, 1, 0), 1)
    assert len(controller.triggers) == restarts
    assert ("standing aside, because" in controller.incident.message) != override


def test_override_native_holds_for_what_is_lost_after_a_restart_as_well() -> None:
    controller = Controller(policy(override_native=True))
    world = training(backoff_limit=0).pod_failed(2, 1, 0)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.reconcile(world.pod_failed(1, 1, 20), 21)
    assert len(controller.triggers) == 2


@pytest.mark.parametrize("override", [True, False])
def test_a_jobset_that_failed_before_override_native_could_act_is_recreated(override: bool) -> None:
    """With the override the native decision does not count. Without it, nothing is done on top of that decision."""
    settings = policy(override_native=override, on_terminal_failure=OnTerminalFailure.RECREATE_JOB_SET)
    controller = Controller(settings)
    lost = training(backoff_limit=0).pod_failed(2, 1, 0)
    controller.reconcile(lost.job_failing("BackoffLimitExceeded", 1, finally_=True).jobset_failed(1), 2)
    recreated = [action for action in controller.done if isinstance(action, DeleteJobSet)]
    assert len(recreated) == (1 if override else 0)
