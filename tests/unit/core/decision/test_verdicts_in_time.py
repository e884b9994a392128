"""When a verdict is passed: how long the controller waits for a loss's cause, and what happens to what waits."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.facts import Condition, Taint
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.rules import NodeConditionRule, NodeTaintRule, Rule, RuleAction, When
from recovery.core.plan.actions import FailJobSet, Plan
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import FencingMode, OnNativeIgnore
from tests.unit.core.decision.test_verdicts import MAY, on_exit
from tests.unit.core.diagnosis.test_native_policies import on_exit as natively_on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import START, World, at

IGNORE_7 = on_exit(7, RuleAction.IGNORE, name="ignore-seven")
FAIL_42 = on_exit(42, RuleAction.FAIL_JOB, name="fail-forty-two")
REPLACE_FAULTY = Rule("gpu", RuleAction.REPLACE_NODE, When(on_node_conditions=(NodeConditionRule("GpuFault"),)))
ASSUME_DEAD = policy(fencing=FencingMode.ASSUME_DEAD, may_assume_dead=True, assume_dead_seconds=0, limits=MAY)
SILENT = training().node_silent("gpu-2", 0)
FAULTY = training().with_node("gpu-2", conditions=(Condition("GpuFault", "True", since=at(0)),))
STORM = SILENT.nodes_lost(("gpu-2", 0), ("gpu-50", 0), ("gpu-51", 1))
WATCHDOG = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"


def reconcile_when_requeued(controller: Controller, world: World, seconds: float, *, until: float) -> Plan:
    """Reconciles now, and then only when a plan asks for it. The world does not change meanwhile."""
    plan = controller.reconcile(world, seconds)
    while plan.requeue_at is not None and plan.requeue_at <= at(until):
        now = (plan.requeue_at - START).total_seconds()
        assert now > seconds, "a plan asks for a look that is yet to come"
        seconds = now
        plan = controller.reconcile(world, seconds)
    return plan


def with_rules(before: Policy, *rules: Rule) -> Policy:
    return msgspec.structs.replace(before, rules=rules)


def made_to_fail(controller: Controller) -> list[FailJobSet]:
    return [action for action in controller.done if isinstance(action, FailJobSet)]


# --- the wait ends -------------------------------------------------------------------------------------------------


def test_the_loss_of_a_deleted_node_is_judged_when_it_has_settled() -> None:
    """Nothing dates the deletion, so the reconcile that notices it does. No later reconcile changes that date."""
    controller = Controller(policy(rules=(FAIL_42,)))
    lost = SILENT.node_deleted("gpu-2")
    assert controller.reconcile(lost, 1).requeue_at == at(3)
    assert controller.reconcile(lost, 2).requeue_at == at(3)
    assert controller.triggers == []
    controller.reconcile(lost, 3)
    assert len(controller.triggers) == 1


def test_a_taint_without_a_date_is_judged_when_it_has_settled() -> None:
    taint = Rule("tainted", RuleAction.REPLACE_NODE, When(on_node_taints=(NodeTaintRule("vendor.example/bad"),)))
    controller = Controller(policy(rules=(FAIL_42, taint), limits=MAY))
    faulty = training().with_node("gpu-2", taints=(Taint("vendor.example/bad"),))
    assert controller.reconcile(faulty, 1).requeue_at == at(3)
    assert controller.reconcile(faulty, 2).requeue_at == at(3)
    assert controller.triggers == []
    controller.reconcile(faulty, 3)
    assert controller.incident.rule == "tainted"
    assert len(controller.triggers) == 1


def test_a_cascade_of_many_ranks_does_not_put_the_verdict_off() -> None:
    """`settle` counts from the first loss: a cascade of a thousand ranks may take minutes."""
    controller = Controller(policy(rules=(FAIL_42,)))
    world = training(40)
    for rank in range(3):
        assert controller.triggers == []
        world = world.pod_failed(rank, 1, rank)
        controller.reconcile(world, rank + 0.5)
    assert len(controller.triggers) == 1


def test_a_kubelet_whose_clock_is_ahead_does_not_cut_the_wait_short() -> None:
    controller = Controller(policy(rules=(FAIL_42,), may_fail_jobs=True))
    ahead = training().pod_failed(2, 42, 3)
    assert controller.reconcile(ahead, 1).requeue_at == at(3)
    assert made_to_fail(controller) == []
    reconcile_when_requeued(controller, ahead.pod_failed(1, 139, 2), 2.5, until=10)
    assert made_to_fail(controller) == [], "what came in within the wait was the cause"
    assert len(controller.triggers) == 1


def test_a_group_that_is_held_by_its_verdict_does_not_settle_again_when_a_clock_jumps() -> None:
    controller = Controller(policy(limit=0, rules=(FAIL_42,)))
    lost = training().pod_deleted(3, 10)
    assert controller.reconcile(lost, 10.5).requeue_at == at(12.5)
    controller.reconcile(lost, 13)
    assert controller.phase() is Phase.HELD
    controller.reconcile(lost, 11)
    assert controller.incident.reason is Reason.BUDGET_EXHAUSTED


def test_a_storm_dated_ahead_of_our_clock_is_waited_out_for_half_a_minute_at_most() -> None:
    controller = Controller(policy(limits=MAY))
    storm = SILENT.node_deleted("gpu-2").nodes_lost(("gpu-2", 0), ("gpu-50", 1), ("gpu-51", 300))
    assert controller.reconcile(storm, 2.5).requeue_at == at(32.5)
    assert controller.triggers == []
    controller.reconcile(storm, 32.5)
    assert len(controller.triggers) == 1


# --- what waits is not forgotten -----------------------------------------------------------------------------------


def test_a_loss_that_waits_is_judged_although_the_one_before_was_ignored() -> None:
    """The group was restarted and has run, but has not been Ready."""
    controller = Controller(policy(rules=(IGNORE_7,)))
    world = training().pod_failed(2, 1, 0)
    reconcile_when_requeued(controller, world, 3, until=5)
    assert len(controller.triggers) == 1
    world = world.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    world = world.pod_failed(3, 7, 17)
    reconcile_when_requeued(controller, world, 18, until=20)
    assert controller.incident.reason is Reason.RULE_IGNORE
    assert len(controller.triggers) == 1
    world = world.pod_failed(1, 1, 30)
    reconcile_when_requeued(controller, world, 30.5, until=40)
    assert "rank 1, node gpu-1) failed with exit code 1" in controller.incident.message
    assert len(controller.triggers) == 2


def test_a_loss_after_one_that_was_ignored_settles_as_well_although_the_first_has_settled() -> None:
    controller = Controller(policy(rules=(IGNORE_7,)))
    world = training().pod_failed(2, 7, 0)
    reconcile_when_requeued(controller, world, 0.5, until=5)
    assert controller.incident.reason is Reason.RULE_IGNORE
    lost = world.pod_deleted(1, 20)
    assert controller.reconcile(lost, 20.5).requeue_at == at(22)
    assert controller.reconcile(lost, 20.6).requeue_at == at(22), "its own ledger write brings this reconcile"
    assert controller.triggers == []
    controller.reconcile(lost, 22)
    assert len(controller.triggers) == 1


def test_a_loss_during_a_pause_restarts_the_group_once_the_pause_is_over() -> None:
    """An earlier loss, while the new group was starting, was left to the platform."""
    controller = Controller()
    world = training().pod_failed(2, 1, 0)
    controller.reconcile(world, 3)
    starting = world.recreated(10).started(0, 12).started(1, 12).started(3, 12).pod_failed(3, 1, 13)
    controller.reconcile(starting, 14)
    assert controller.incident.attempts[-1].reason is Reason.MEMBER_REPLACED
    running = starting.replaced(3, 15).all_started(20)
    controller.reconcile(running, 21)
    lost = running.pod_failed(1, 1, 30)
    controller.reconcile(lost.paused(), 31)
    assert controller.incident.reason is Reason.JOB_PAUSED
    assert len(controller.triggers) == 1
    controller.reconcile(lost, 40)
    assert len(controller.triggers) == 2


def test_a_restart_in_place_is_judged_although_all_ranks_run_again_before_it_has_settled() -> None:
    """The other ranks hang in their collectives, although they are Ready."""
    slow = msgspec.structs.replace(policy(rules=(FAIL_42,)), settle=timedelta(seconds=10))
    controller = Controller(slow)
    world = training(restart_policy="OnFailure").container_restarted(2, 1, 0)
    reconcile_when_requeued(controller, world, 1, until=10)
    assert controller.triggers == []
    reconcile_when_requeued(controller, world, 10.5, until=60)
    assert len(controller.triggers) == 1


def test_a_job_that_is_to_fail_fails_although_all_its_ranks_run_again() -> None:
    """The kubelet restarts the container in place before the action. The verdict stands."""
    controller = Controller(policy(rules=(FAIL_42,), may_fail_jobs=True))
    exited = training(restart_policy="OnFailure").container_exited(2, 42, 0)
    controller.reconcile(exited, 1)
    controller.write(controller.plan(exited, 4))  # the verdict is in the ledger, and the process ends
    assert made_to_fail(controller) == []
    controller.reconcile(exited.container_back(2, 5), 12)
    assert len(made_to_fail(controller)) == 1
    assert controller.phase() is Phase.HELD


# --- what is over restarts nothing ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy_", "lost", "over"),
    [
        pytest.param(with_rules(ASSUME_DEAD, FAIL_42), SILENT, training(), id="the node answers again"),
        pytest.param(with_rules(ASSUME_DEAD, FAIL_42, REPLACE_FAULTY), FAULTY, training(), id="the fault has ended"),
        pytest.param(ASSUME_DEAD, STORM, training(), id="the storm is over"),
        pytest.param(ASSUME_DEAD, STORM, STORM.node_back("gpu-2").nodes_lost(), id="over, and not all are Ready yet"),
    ],
)
def test_what_is_over_before_its_verdict_falls_restarts_nothing(policy_: Policy, lost: World, over: World) -> None:
    controller = Controller(policy_)
    assert controller.reconcile(lost, 1.5).requeue_at is not None
    assert controller.incident.attempts == ()
    controller.reconcile(over, 4)
    assert controller.triggers == []
    assert (
        "no sign of the failure is left and all 4 ranks run: waiting for them to be Ready"
        in controller.incident.message
    )
    controller.settle(training(), 10)
    assert controller.ledger.incident is None
    assert controller.workload_actions == []
    assert controller.ledger.totals.charged == 0


def test_a_fault_whose_rule_is_removed_before_its_verdict_falls_restarts_nothing() -> None:
    controller = Controller(policy(rules=(FAIL_42, REPLACE_FAULTY), limits=MAY))
    controller.reconcile(FAULTY, 1)
    assert controller.incident.disruption_class == "HardwareFault"
    controller.policy = policy(rules=(FAIL_42,), limits=MAY)
    controller.reconcile(FAULTY, 3.5)
    controller.settle(FAULTY, 10)
    assert controller.ledger.incident is None
    assert controller.workload_actions == []


# --- causes and what follows from them -----------------------------------------------------------------------------


def test_a_node_that_was_deleted_first_stays_the_cause_of_what_exits_after_it() -> None:
    controller = Controller(policy(rules=(FAIL_42,), may_fail_jobs=True))
    lost = SILENT.node_deleted("gpu-2")
    controller.reconcile(lost, 1)
    reconcile_when_requeued(controller, lost.pod_failed(1, 42, 2), 3, until=30)
    assert made_to_fail(controller) == []
    assert controller.incident.disruption_class == "NodeLost"
    assert len(controller.triggers) == 1


@pytest.mark.parametrize("reconciles", [(601, 604), (604,)], ids=["seen at once", "seen when it has settled"])
def test_a_late_cascade_of_an_ignored_loss_never_makes_the_job_fail(reconciles: tuple[float, ...]) -> None:
    """Ten minutes after the loss that is left to Kubernetes, the collectives of the other ranks time out."""
    controller = Controller(policy(rules=(IGNORE_7, FAIL_42), may_fail_jobs=True))
    world = training().pod_failed(2, 7, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world, 3)
    assert controller.incident.rule == "ignore-seven"
    late = world.pod_failed(1, 42, 600, message=WATCHDOG)
    for seconds in reconciles:
        controller.reconcile(late, seconds)
    assert controller.workload_actions == []
    assert controller.incident.rule == "ignore-seven"
    assert controller.phase() is not Phase.HELD
    replaced = late.came_back(2, 700, 710).came_back(1, 700, 710)
    controller.settle(replaced, 711)
    assert controller.recorded[-1].closing is not None
    assert controller.recorded[-1].closing.outcome is Outcome.OBSERVED


def test_what_was_left_to_the_jobs_own_policy_is_not_judged_again_beside_a_new_loss() -> None:
    """podFailurePolicy ignores exit code 42, so the rule that names the code was never consulted."""
    aside = OnNativeIgnore.STAND_ASIDE
    controller = Controller(policy(rules=(FAIL_42,), may_fail_jobs=True, on_native_ignore=aside))
    world = training(rules=(natively_on_exit("Ignore", 42),)).pod_failed(2, 42, 0)
    reconcile_when_requeued(controller, world, 1, until=10)
    assert "standing aside, because podFailurePolicy rule 0" in controller.incident.message
    controller.reconcile(world.pod_failed(1, 1, 20, message="KeyError: 'lr'"), 23)
    assert made_to_fail(controller) == []
    assert controller.incident.rule == ""
    assert len(controller.triggers) == 1


def test_what_was_left_to_the_jobs_own_policy_is_not_judged_when_the_new_verdict_had_to_wait() -> None:
    """podFailurePolicy ignores exit code 42, so the rule that names the code was never consulted."""
    aside = OnNativeIgnore.STAND_ASIDE
    controller = Controller(policy(rules=(FAIL_42,), may_fail_jobs=True, on_native_ignore=aside))
    world = training(rules=(natively_on_exit("Ignore", 42),)).pod_failed(2, 42, 0)
    reconcile_when_requeued(controller, world, 1, until=10)
    assert "standing aside, because podFailurePolicy rule 0" in controller.incident.message
    reconcile_when_requeued(controller, world.pod_failed(1, 1, 20, message="KeyError: 'lr'"), 21, until=30)
    assert made_to_fail(controller) == []
    assert controller.incident.rule == ""
    assert len(controller.triggers) == 1
