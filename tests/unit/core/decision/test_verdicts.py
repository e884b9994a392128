"""What a disruption calls for: rules, defaults, escalation, repeated errors. Facts in, plan and message out."""

from typing import Any

import msgspec
import pytest

from recovery.core.decision.fleet_changes import UNKNOWN_AGAIN_AFTER
from recovery.core.model.facts import Condition, GroupKey, Taint, WaitingGroup
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT, FleetLedger, FleetLimits, Quarantined, Suspicion
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.rules import ExitCodes, NodeConditionRule, NodeTaintRule, Operator, Rule, RuleAction, When
from recovery.core.plan.actions import ChangeFleet, DeleteJob, FailJobSet
from recovery.core.policy.spec import Mode, OnExhausted, Restart
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

MAY = FleetLimits(may_cordon=True, max_percent=5)
TRUSTED = msgspec.structs.replace(MAY, trusted_namespaces=frozenset({"ml"}))
"""A message of the job is enough to blame a node."""


def on_exit(code: int, action: RuleAction, *, name: str = "mine", charge: bool = True) -> Rule:
    return Rule(name, action, When(on_exit_codes=ExitCodes(Operator.IN, (code,))), charge)


def failed(code: int = 42, *, message: str = "", seconds: float = 0) -> World:
    return training().pod_failed(2, code, seconds, message=message)


# --- rules ---------------------------------------------------------------------------------------------------------


def test_a_rule_that_says_recreate_group_names_itself() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.RECREATE_GROUP, name="forty-two"),)))
    controller.reconcile(failed(), 1)
    assert controller.incident.rule == "forty-two"
    assert "rule forty-two (" in controller.incident.message
    assert "says RecreateGroup: deleting Job train-node-0 so that all 4 ranks restart together" in (
        controller.incident.message
    )
    assert len(controller.triggers) == 1


def test_a_rule_that_does_not_match_leaves_it_to_the_default() -> None:
    controller = Controller(policy(rules=(on_exit(7, RuleAction.REPLACE_NODE),)))
    controller.reconcile(failed(), 1)
    assert controller.incident.rule == ""
    assert controller.incident.reason is Reason.DEFAULT_RESTART


def test_ignore_leaves_it_to_kubernetes_once_it_has_settled_and_costs_nothing() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.IGNORE),)))
    waiting = controller.reconcile(failed(), 1)
    assert waiting.requeue_at is not None
    assert controller.incident.attempts == ()
    controller.reconcile(failed(), 4)
    assert controller.triggers == []
    assert controller.incident.reason is Reason.RULE_IGNORE
    assert controller.ledger.budget.charges == ()
    closed = controller.settle(failed().came_back(2, 5, 8), 20)
    assert closed is not None
    assert controller.recorded[-1].closing is not None
    assert controller.recorded[-1].closing.outcome is Outcome.OBSERVED
    assert controller.ledger.totals.charged == 0


def test_without_ignore_or_fail_job_nothing_waits() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.RECREATE_GROUP),)))
    controller.reconcile(failed(), 0.5)
    assert len(controller.triggers) == 1


def test_fail_job_where_it_is_allowed() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.FAIL_JOB),), may_fail_jobs=True))
    controller.reconcile(failed(), 1)
    assert controller.workload_actions == [], "an earlier cause may still come in"
    controller.reconcile(failed(), 4)
    assert [type(action) for action in controller.workload_actions] == [FailJobSet]
    assert controller.phase() is Phase.HELD
    assert controller.incident.reason is Reason.RULE_FAIL_JOB
    assert "the controller fails the JobSet" in controller.incident.message
    controller.settle(failed().jobset_failed(5), 6)
    assert controller.recorded[-1].closing is not None
    assert controller.recorded[-1].closing.outcome_reason == "FailJobRule"
    assert controller.ledger.totals.charged == 0


def test_fail_job_where_it_is_not_allowed_holds_the_group_until_a_person_says_retry() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.FAIL_JOB),), on_exhausted=OnExhausted.FAIL_JOB))
    controller.reconcile(failed(), 1)
    controller.reconcile(failed(), 4)
    controller.reconcile(failed(), 400)
    assert controller.workload_actions == []
    assert controller.phase() is Phase.HELD
    assert controller.incident.reason is Reason.RULE_FAIL_JOB_NOT_ALLOWED
    controller.reconcile(failed().asked("recovery.trainjob.dev/retry", at(500).isoformat()), 501)
    assert len(controller.triggers) == 1


def test_fail_job_never_meets_the_exit_code_of_a_cascade() -> None:
    """Rank 1 crashes first. When its collective breaks, rank 2 exits with the code that the rule names."""
    rules = (on_exit(42, RuleAction.FAIL_JOB),)
    cascade = (
        training()
        .pod_failed(1, 139, 0)
        .pod_failed(2, 42, 3, message="[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)")
    )
    controller = Controller(policy(rules=rules, may_fail_jobs=True))
    controller.reconcile(cascade, 4)
    controller.reconcile(cascade, 8)
    assert [action for action in controller.workload_actions if isinstance(action, FailJobSet)] == []
    assert len(controller.triggers) == 1


def test_in_observe_the_sentence_says_what_enforce_would_do() -> None:
    for action, would in (
        (RuleAction.FAIL_JOB, "Enforce would have failed the JobSet (rule mine"),
        (RuleAction.IGNORE, "Enforce would have left it to Kubernetes (rule mine"),
        (RuleAction.RECREATE_GROUP, "Enforce would have deleted Job train-node-0"),
    ):
        controller = Controller(policy(Mode.OBSERVE, rules=(on_exit(42, action),), may_fail_jobs=True))
        controller.reconcile(failed(), 1)
        controller.reconcile(failed(), 5)
        assert would in controller.incident.message
        assert controller.workload_actions == []


def test_rules_act_where_the_default_is_none() -> None:
    controller = Controller(policy(restart=Restart.NONE, rules=(on_exit(42, RuleAction.RECREATE_GROUP),)))
    controller.reconcile(failed(), 1)
    assert len(controller.triggers) == 1
    other = Controller(policy(restart=Restart.NONE, rules=(on_exit(42, RuleAction.RECREATE_GROUP),)))
    other.reconcile(failed(7), 1)
    assert other.triggers == []
    assert other.incident.reason is Reason.RESTART_NONE


def test_a_rule_free_of_charge_acts_although_the_budget_is_exhausted() -> None:
    free = on_exit(42, RuleAction.RECREATE_GROUP, charge=False)
    controller = Controller(policy(rules=(free,), limit=0))
    controller.reconcile(failed(), 1)
    assert len(controller.triggers) == 1
    assert controller.ledger.budget.charges == ()
    assert "(not charged to the budget)" in controller.incident.message


def test_preemption_is_free_of_charge() -> None:
    controller = Controller()
    controller.reconcile(training().evicted(2, 0, reason="PreemptionByScheduler"), 1)
    assert len(controller.triggers) == 1
    assert not controller.incident.charged
    drained = Controller()
    drained.reconcile(training().evicted(2, 0), 1)
    assert drained.incident.charged


# --- the node ------------------------------------------------------------------------------------------------------


def test_replace_node_quarantines_first_and_then_takes_the_group_down() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.REPLACE_NODE),), limits=MAY))
    controller.reconcile(failed(), 1)
    actions = [type(action) for action in controller.done if isinstance(action, ChangeFleet | DeleteJob)]
    assert actions == [ChangeFleet, DeleteJob]
    [change] = controller.fleet_changes
    [entry] = change.quarantine
    assert (entry.node, entry.node_uid, entry.incident) == ("gpu-2", "node-gpu-2", controller.incident.id)
    attempt = controller.incident.attempts[-1]
    assert (attempt.action, attempt.nodes) == (AttemptAction.REPLACE_NODE, ("gpu-2",))
    assert "quarantining node gpu-2 and deleting Job train-node-0" in controller.incident.message
    assert controller.ledger.action == "ReplaceNode"


@pytest.mark.parametrize(
    ("limits", "fleet", "why"),
    [
        (FleetLimits(), FleetLedger(), "RecoveryConfig does not allow it (spec.allow.cordon)"),
        (
            FleetLimits(may_cordon=True, max_nodes=1),
            FleetLedger(quarantined=(Quarantined("gpu-9", "u", "bad", at(-60)),)),
            "spec.quarantine.maxNodes",
        ),
    ],
)
def test_a_node_that_may_not_be_quarantined_does_not_keep_the_group_from_its_restart(
    limits: FleetLimits, fleet: FleetLedger, why: str
) -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.REPLACE_NODE),), limits=limits, fleet=fleet))
    controller.reconcile(failed(), 1)
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    assert "node gpu-2 is not quarantined" in controller.incident.message
    assert why in controller.incident.message
    assert any(why in each.message for each in controller.incident.considered)
    assert [change.quarantine for change in controller.fleet_changes] in ([], [()])


def test_the_last_feasible_nodes_are_spared() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.REPLACE_NODE),), limits=MAY))
    few = msgspec.structs.replace(failed(), cluster_nodes=4)
    controller.reconcile(few, 1)
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    assert "node gpu-2 is not quarantined" in controller.incident.message


def test_a_node_that_a_waiting_group_needs_is_not_quarantined_and_the_group_is_recreated() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.REPLACE_NODE),), limits=MAY))
    other = WaitingGroup(GroupKey("ml", "other"), 2, ("gpu-2", "gpu-3"))
    controller.reconcile(msgspec.structs.replace(failed(), waiting=(other,)), 1)
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    assert (
        "node gpu-2 is not quarantined: waiting group ml/other needs this node: 2 nodes fit its pods, and it takes 2"
    ) in controller.incident.message
    assert [change.quarantine for change in controller.fleet_changes] in ([], [()])


@pytest.mark.parametrize("unknown", [{"feasible_known": False}, {"waiting": None}])
def test_a_restart_does_not_wait_until_it_is_known_which_nodes_are_left(unknown: dict[str, Any]) -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.REPLACE_NODE),), limits=MAY))
    controller.reconcile(msgspec.structs.replace(failed(), **unknown), 1)
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    assert [each.reason for each in controller.incident.considered] == [Reason.FEASIBLE_NODES_UNKNOWN]
    assert [change.quarantine for change in controller.fleet_changes] in ([], [()])


def test_a_node_that_is_suspected_again_is_replaced_by_default() -> None:
    before = FleetLedger(suspicions=(Suspicion("gpu-2", "other-7", at(-3600), "an exit", "ml"),))
    controller = Controller(policy(limits=MAY, fleet=before))
    controller.reconcile(failed(134), 1)
    assert controller.incident.attempts[-1].action is AttemptAction.REPLACE_NODE
    assert (
        "node gpu-2 is suspected (2 of 2 suspicions; the one before is from incident other-7)"
        in controller.incident.message
    )


def test_a_first_suspicion_is_noted_and_no_more() -> None:
    controller = Controller(policy(limits=MAY))
    controller.reconcile(failed(134), 1)
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    [change] = controller.fleet_changes
    assert [(each.node, each.incident) for each in change.suspicions] == [("gpu-2", controller.incident.id)]
    assert change.quarantine == ()


def test_what_a_crash_left_undone_is_asked_of_the_fleet_again_and_only_then() -> None:
    rules = (on_exit(42, RuleAction.REPLACE_NODE),)
    controller = Controller(policy(rules=rules, limits=MAY))
    controller.write(controller.plan(failed(), 1))  # the verdict is in the ledger, and the process ends
    controller.reconcile(failed(), 10)
    [change] = controller.fleet_changes
    assert [entry.node for entry in change.quarantine] == ["gpu-2"]
    there = FleetLedger(quarantined=change.quarantine, suspicions=change.suspicions)
    after = Controller(policy(rules=rules, limits=MAY, fleet=there), controller.ledger)
    after.reconcile(failed(), 11)
    assert after.fleet_changes == []
    assert len(after.triggers) == 1


def test_a_quarantine_that_a_crash_left_undone_is_dropped_when_a_waiting_group_needs_the_node() -> None:
    controller = Controller(policy(rules=(on_exit(42, RuleAction.REPLACE_NODE),), limits=MAY))
    controller.write(controller.plan(failed(), 1))  # the verdict is in the ledger, and the process ends
    other = WaitingGroup(GroupKey("ml", "other"), 2, ("gpu-2", "gpu-3"))
    controller.reconcile(msgspec.structs.replace(failed(), waiting=(other,)), 10)
    assert [entry.node for change in controller.fleet_changes for entry in change.quarantine] == []
    assert len(controller.triggers) == 1


# --- what comes back -----------------------------------------------------------------------------------------------


def again(controller: Controller, message: str, *, code: int = 1, node: str = "gpu-9", after: float = 100) -> None:
    """The group was restarted and ran whole. Then the same rank fails on `node`, `after` seconds after its start."""
    world = failed(code, message=message)
    controller.reconcile(world, 1)
    fresh = world.recreated(10).all_ready(20)
    controller.settle(fresh, 22)
    fresh = fresh.with_pod(2, node=node)
    controller.reconcile(fresh.pod_failed(2, code, 20 + after, message=message), 21 + after)


def test_the_same_error_early_on_another_node_is_the_jobs_own() -> None:
    controller = Controller()
    world = training(born=-30).pod_failed(2, 1, 0, message="KeyError: 'lr'")
    controller.reconcile(world, 1)
    assert len(controller.triggers) == 1, "one confirmation"
    fresh = world.recreated(10).all_ready(20)
    controller.settle(fresh, 22)
    moved = fresh.with_pod(2, node="gpu-9").pod_failed(2, 1, 60, message="KeyError: 'lr'")
    controller.reconcile(moved, 61)
    assert len(controller.triggers) == 1
    assert controller.phase() is Phase.HELD
    assert controller.incident.reason is Reason.SAME_ERROR_AGAIN
    assert controller.ledger.totals.charged == 1


def test_an_error_that_comes_late_is_no_error_of_the_job() -> None:
    controller = Controller()
    again(controller, "KeyError: 'lr'", after=100)  # its first run had lasted an hour
    assert len(controller.triggers) == 2


def test_the_same_step_after_a_resume_is_called_a_suspected_bad_checkpoint() -> None:
    controller = Controller()
    again(controller, "RuntimeError: loss is NaN at step 1200", after=4000)
    assert len(controller.triggers) == 1
    assert "came back at the same step (1200) as before the restart: the checkpoint may be bad" in (
        controller.incident.message
    )


# --- storms --------------------------------------------------------------------------------------------------------


def test_in_a_storm_the_trigger_waits_until_no_more_nodes_are_lost() -> None:
    lost = training().node_silent("gpu-2", 0).node_deleted("gpu-2")
    storm = lost.nodes_lost(("gpu-2", 0), ("gpu-50", 1), ("gpu-51", 2))
    controller = Controller(policy(limits=MAY))
    plan = controller.reconcile(storm, 2.5)
    assert controller.triggers == []
    assert plan.requeue_at == at(5)
    assert "3 nodes were lost" in plan.message
    controller.reconcile(storm, 5)
    assert len(controller.triggers) == 1
    assert controller.incident.storm == "storm-20261121T120000Z"
    assert controller.fleet_changes == [], "no single node is suspected for a storm"


def test_what_is_quarantined_for_a_condition_is_released_when_that_very_condition_ends() -> None:
    """A rule may list several conditions. The one that was met counts."""
    when = When(on_node_conditions=(NodeConditionRule("GpuMemWatch"), NodeConditionRule("GpuPcieWatch")))
    rules = (Rule("gpu", RuleAction.REPLACE_NODE, when),)
    faulty = failed().with_node("gpu-2", conditions=(Condition("GpuPcieWatch", "True", since=at(-5)),))
    controller = Controller(policy(rules=rules, limits=MAY))
    controller.reconcile(faulty, 1)
    [change] = controller.fleet_changes
    assert change.quarantine[0].release_when == "GpuPcieWatch"


def test_a_fault_that_a_rule_names_is_acted_upon_though_the_member_still_runs() -> None:
    when = When(on_node_conditions=(NodeConditionRule("GpuPcieWatch", held_for="1m"),))
    controller = Controller(policy(rules=(Rule("gpu", RuleAction.REPLACE_NODE, when),), limits=MAY))
    faulty = training().with_node("gpu-2", conditions=(Condition("GpuPcieWatch", "True", since=at(0)),))
    waiting = controller.reconcile(faulty, 30)
    assert controller.ledger.incident is None
    assert waiting.requeue_at == at(60)
    controller.reconcile(faulty, 60)
    assert controller.incident.disruption_class == "HardwareFault"
    assert controller.incident.attempts[-1].nodes == ("gpu-2",)


def test_a_fault_under_a_running_member_is_left_alone_where_its_node_may_not_be_quarantined() -> None:
    """The new pod could land on the same node."""
    when = When(on_node_conditions=(NodeConditionRule("GpuPcieWatch"),))
    faulty = training().with_node("gpu-2", conditions=(Condition("GpuPcieWatch", "True", since=at(0)),))
    for limits in (FleetLimits(), FleetLimits(may_cordon=True, max_nodes=0)):
        controller = Controller(policy(rules=(Rule("gpu", RuleAction.REPLACE_NODE, when),), limits=limits))
        controller.reconcile(faulty, 1)
        assert "node gpu-2 is not quarantined" in controller.incident.message
        assert "the member on it still runs, so the group is not restarted" in controller.incident.message
        controller.settle(faulty, 10)
        controller.settle(faulty, 60)
        assert controller.workload_actions == []
        assert controller.ledger.incident is None


def test_a_group_that_still_runs_waits_until_it_is_known_which_nodes_are_left() -> None:
    when = When(on_node_conditions=(NodeConditionRule("GpuPcieWatch"),))
    faulty = training().with_node("gpu-2", conditions=(Condition("GpuPcieWatch", "True", since=at(0)),))
    controller = Controller(policy(rules=(Rule("gpu", RuleAction.REPLACE_NODE, when),), limits=MAY))
    plan = controller.reconcile(msgspec.structs.replace(faulty, waiting=None), 1)
    assert plan.requeue_at == at(1) + UNKNOWN_AGAIN_AFTER
    assert controller.incident.reason is Reason.FEASIBLE_NODES_UNKNOWN
    assert controller.workload_actions == []
    controller.reconcile(faulty, 2)
    assert controller.incident.attempts[-1].nodes == ("gpu-2",)
    assert [node.node for change in controller.fleet_changes for node in change.quarantine] == ["gpu-2"]


QUARANTINED = (Taint(QUARANTINE_TAINT, "incident-of-another-job", "NoSchedule"),)


@pytest.mark.parametrize("closed", [{"unschedulable": True}, {"taints": QUARANTINED}], ids=["cordon", "quarantine"])
def test_a_node_that_others_have_cordoned_or_quarantined_needs_no_quarantine(closed: dict[str, Any]) -> None:
    when = When(on_node_conditions=(NodeConditionRule("GpuPcieWatch"),))
    faulty = training().with_node("gpu-2", conditions=(Condition("GpuPcieWatch", "True", since=at(0)),))
    controller = Controller(policy(rules=(Rule("gpu", RuleAction.REPLACE_NODE, when),), limits=MAY))
    controller.reconcile(faulty.with_node("gpu-2", **closed), 1)
    assert len(controller.triggers) == 1
    assert [change.quarantine for change in controller.fleet_changes] == [()], "suspected, no more"


def test_a_pod_placed_on_a_faulty_node_is_no_news() -> None:
    """The rule asks for no other node, so the pod lands there again. That must not restart the group repeatedly."""
    when = When(on_node_conditions=(NodeConditionRule("GpuPcieWatch"),))
    controller = Controller(policy(rules=(Rule("gpu", RuleAction.RECREATE_GROUP, when),)))
    faulty = training().with_node("gpu-2", conditions=(Condition("GpuPcieWatch", "True", since=at(0)),))
    controller.reconcile(faulty, 1)
    assert len(controller.triggers) == 1
    back = faulty.recreated(10).all_ready(20)
    controller.settle(back, 21)
    controller.settle(back, 60)
    assert controller.ledger.incident is None
    assert len(controller.triggers) == 1


def test_a_taint_without_a_date_is_news_once_for_its_node() -> None:
    when = When(on_node_taints=(NodeTaintRule("vendor.example/gpu-bad"),))
    controller = Controller(policy(rules=(Rule("gpu", RuleAction.REPLACE_NODE, when),)))
    faulty = training().with_node("gpu-2", taints=(Taint("vendor.example/gpu-bad"),))  # NoSchedule
    controller.reconcile(faulty, 1)
    assert len(controller.triggers) == 1
    back = faulty.recreated(10).all_ready(20)
    controller.settle(back, 21)
    controller.settle(back, 60)
    assert controller.ledger.incident is None
    assert len(controller.triggers) == 1


def test_the_exit_code_of_a_rank_that_waited_in_vain_ends_no_job_though_nothing_else_is_known() -> None:
    """The loss that the rank waited for has left no trace: the controller was down or stood aside."""
    timed_out = training().pod_failed(2, 134, 0, message="[Rank 2] Watchdog caught collective operation timeout")
    for when, ends in (
        (When(on_exit_codes=ExitCodes(Operator.IN, (134,))), False),
        (When(on_exit_codes=ExitCodes(Operator.IN, (134,)), on_class=("CommunicationFailure",)), True),
        (When(on_message_pattern="Watchdog caught"), True),
    ):
        controller = Controller(policy(rules=(Rule("end", RuleAction.FAIL_JOB, when),), may_fail_jobs=True))
        controller.reconcile(timed_out, 1)
        controller.reconcile(timed_out, 4)
        assert any(isinstance(action, FailJobSet) for action in controller.workload_actions) is ends
        assert bool(controller.triggers) is not ends


def test_a_rank_that_waited_in_vain_brings_no_suspicion_upon_its_node() -> None:
    """The rank's message says that another rank is missing."""
    before = FleetLedger(suspicions=(Suspicion("gpu-2", "other-7", at(-3600), "an exit", "ml"),))
    controller = Controller(policy(limits=MAY, fleet=before))
    controller.reconcile(
        training().pod_failed(2, 134, 0, message="[Rank 2] Watchdog caught collective operation timeout"), 1
    )
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    assert controller.fleet_changes == []


def test_one_suspicion_is_enough_where_the_platform_says_so() -> None:
    controller = Controller(policy(limits=FleetLimits(may_cordon=True, suspicions=1)))
    controller.reconcile(failed(134), 1)
    assert controller.incident.attempts[-1].nodes == ("gpu-2",)
    assert "node gpu-2 is suspected (1 of 1 suspicions)" in controller.incident.message


def test_the_banner_of_a_launcher_is_no_message() -> None:
    controller = Controller()
    rule = "=" * 60
    again(controller, f"{rule}\ntrain.py FAILED\n{rule}", after=100)
    assert len(controller.triggers) == 2
