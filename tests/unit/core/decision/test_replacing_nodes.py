"""Which node a restart replaces or suspects, and why, and what happens to the group if the node may not be replaced."""

import msgspec
import pytest

from recovery.core.model.annotations import RELEASE_ANNOTATION
from recovery.core.model.facts import Condition, Taint
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT, FleetLedger, FleetLimits, Quarantined
from recovery.core.model.ledger import AttemptAction
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.reason import Reason
from recovery.core.model.rules import NodeConditionRule, Rule, RuleAction, When
from tests.unit.core.decision.test_verdicts import MAY, TRUSTED, on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import TOLERATED, World, at

REPLACE_42 = on_exit(42, RuleAction.REPLACE_NODE)
REPLACE_FAULTY = Rule("gpu", RuleAction.REPLACE_NODE, When(on_node_conditions=(NodeConditionRule("GpuFault"),)))
FULL = FleetLedger(quarantined=tuple(Quarantined(f"gpu-{number}", "u", "bad", at(-60)) for number in range(50, 55)))
"""The number of nodes that `MAY` allows in a cluster of 100 nodes."""


def faulty(world: World, node: str = "gpu-2", seconds: float = 0) -> World:
    return world.with_node(node, conditions=(Condition("GpuFault", "True", since=at(seconds)),))


def quarantined(controller: Controller) -> list[str]:
    """The nodes that the fleet was asked to quarantine, in order."""
    return [entry.node for change in controller.fleet_changes for entry in change.quarantine]


def suspected(controller: Controller) -> list[str]:
    return [each.node for change in controller.fleet_changes for each in change.suspicions]


# --- which node ----------------------------------------------------------------------------------------------------


def test_a_node_that_is_being_released_is_quarantined_again() -> None:
    """The message must match what is asked of the fleet."""
    entry = Quarantined("gpu-2", "node-gpu-2", "bad", at(-600), incident="x-1", applied=True, releasing="time is over")
    controller = Controller(policy(rules=(REPLACE_42,), limits=MAY, fleet=FleetLedger(quarantined=(entry,))))
    controller.reconcile(training().pod_failed(2, 42, 0), 1)
    assert "quarantining node gpu-2" in controller.incident.message
    assert quarantined(controller) == ["gpu-2"]


def test_a_node_that_was_released_by_hand_and_is_faulty_again_before_the_review_is_quarantined_again() -> None:
    entry = Quarantined("gpu-2", "node-gpu-2", "bad", at(-600), incident="x-1", applied=True)
    controller = Controller(policy(rules=(REPLACE_42,), limits=MAY, fleet=FleetLedger(quarantined=(entry,))))
    released = training().with_node("gpu-2", annotations={RELEASE_ANNOTATION: f"{at(-10):%Y-%m-%dT%H:%M:%SZ}"})
    controller.reconcile(released.pod_failed(2, 42, 0), 1)
    assert "quarantining node gpu-2" in controller.incident.message
    assert quarantined(controller) == ["gpu-2"]


@pytest.mark.parametrize("wanted", [False, True])
def test_a_quarantine_cordons_only_where_the_config_says_so(wanted: bool) -> None:
    limits = msgspec.structs.replace(MAY, cordons=wanted)
    controller = Controller(policy(rules=(REPLACE_42,), limits=limits))
    controller.reconcile(training().pod_failed(2, 42, 0), 1)
    assert [entry.cordoned for change in controller.fleet_changes for entry in change.quarantine] == [wanted]


def test_a_node_that_is_being_released_is_spared_as_any_other_where_none_is_left() -> None:
    entry = Quarantined("gpu-2", "node-gpu-2", "bad", at(-600), incident="x-1", applied=True, releasing="time is over")
    controller = Controller(policy(rules=(REPLACE_42,), limits=MAY, fleet=FleetLedger(quarantined=(entry,))))
    controller.reconcile(msgspec.structs.replace(training().pod_failed(2, 42, 0), cluster_nodes=4), 1)
    assert "node gpu-2 is not quarantined" in controller.incident.message
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    assert quarantined(controller) == []


def test_a_node_that_is_quarantined_already_is_not_asked_for_again() -> None:
    entry = Quarantined("gpu-2", "node-gpu-2", "bad", at(-600), incident="x-1", applied=True)
    controller = Controller(policy(rules=(REPLACE_42,), limits=MAY, fleet=FleetLedger(quarantined=(entry,))))
    controller.reconcile(
        training().with_node("gpu-2", taints=(Taint(QUARANTINE_TAINT, "x-1"),)).pod_failed(2, 42, 0), 1
    )
    assert len(controller.triggers) == 1
    assert quarantined(controller) == []


def test_each_node_of_an_incident_is_quarantined_for_its_own_loss() -> None:
    limits = FleetLimits(may_cordon=True, max_percent=50)
    controller = Controller(policy(rules=(REPLACE_42,), limits=limits))
    world = training().pod_failed(2, 42, 0)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.reconcile(world.pod_failed(1, 42, 20), 21)
    assert quarantined(controller) == ["gpu-2", "gpu-1"]
    [entry] = controller.fleet_changes[-1].quarantine
    assert "rank 1, node gpu-1" in entry.reason
    assert "gpu-2" not in entry.reason


def test_each_node_of_an_incident_is_suspected_for_its_own_loss() -> None:
    controller = Controller(policy(limits=MAY))
    world = training().pod_failed(2, 134, 0)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.reconcile(world.pod_failed(1, 134, 20), 21)
    assert len(controller.triggers) == 2
    assert suspected(controller) == ["gpu-2", "gpu-1"]


def test_a_node_is_suspected_for_a_loss_after_a_restart_of_the_platforms_own() -> None:
    controller = Controller(policy(limits=MAY))
    world = training(failure_policy=FailurePolicyFacts(max_restarts=5)).pod_failed(2, 1, 0)
    adopted = world.job_failing("BackoffLimitExceeded", 0).restarted_by_jobset().job_deleted(1)
    controller.reconcile(adopted, 1)
    world = adopted.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.reconcile(world.pod_failed(1, 134, 20), 21)
    assert len(controller.triggers) == 1
    assert "gpu-1" in suspected(controller)


def test_a_taint_that_the_groups_pods_tolerate_does_not_keep_them_off_the_node() -> None:
    """GPU nodes of most clouds have one. Only a taint that keeps this group's pods off makes a quarantine needless."""
    world = training().pod_failed(2, 42, 0)
    for key, asked in ((TOLERATED, ["gpu-2"]), ("vendor.example/gpu-bad", [])):
        controller = Controller(policy(rules=(REPLACE_42,), limits=MAY))
        controller.reconcile(world.with_node("gpu-2", taints=(Taint(key, "present", "NoSchedule"),)), 1)
        assert len(controller.triggers) == 1
        assert quarantined(controller) == asked


def test_a_node_that_answers_again_after_it_was_lost_is_quarantined_for_a_rule() -> None:
    """Exit code 255 with reason Unknown is how a kubelet reports a reboot. Nothing keeps pods off the node any more."""
    controller = Controller(policy(rules=(on_exit(255, RuleAction.REPLACE_NODE),), limits=MAY))
    controller.reconcile(training().pod_failed(2, 255, 0, reason="Unknown"), 1)
    assert controller.incident.disruption_class == "NodeLost"
    assert controller.incident.attempts[-1].nodes == ("gpu-2",)
    assert quarantined(controller) == ["gpu-2"]


# --- faults under members that run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [MAY, FleetLimits()], ids=["the caps are reached", "it is not allowed"])
@pytest.mark.parametrize(
    "lost",
    [
        training(restart_policy="OnFailure").container_exited(2, 134, 1),
        training().pod_failed(1, 1, 1),
    ],
    ids=["on the faulty node", "elsewhere"],
)
def test_a_loss_beside_a_fault_restarts_the_group_though_the_node_may_not_be_quarantined(
    lost: World, limits: FleetLimits
) -> None:
    """If all its members ran, the group would be left as it is. But one member is lost, and the others hang."""
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=limits, fleet=FULL))
    controller.reconcile(faulty(lost), 2)
    assert "node gpu-2 is not quarantined" in controller.incident.message
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    assert len(controller.triggers) == 1
    assert quarantined(controller) == []


@pytest.mark.parametrize("limits", [TRUSTED, FleetLimits()], ids=["the caps are reached", "it is not allowed"])
def test_proof_against_a_node_restarts_the_group_though_the_node_may_not_be_quarantined(limits: FleetLimits) -> None:
    """No rule asks for the replacement: it is the default."""
    message = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    controller = Controller(policy(limits=limits, fleet=FULL))
    controller.reconcile(training().pod_failed(2, 134, 0, message=message), 1)
    assert "is proof enough against node gpu-2, but node gpu-2 is not quarantined" in controller.incident.message
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    assert len(controller.triggers) == 1


def test_a_backoff_limit_of_zero_decides_nothing_about_a_fault_under_a_running_member() -> None:
    """No pod has failed, so the Job does not fail."""
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=MAY))
    controller.reconcile(faulty(training(backoff_limit=0)), 1)
    assert quarantined(controller) == ["gpu-2"]
    assert len(controller.triggers) == 1


def test_a_fault_under_a_member_of_a_group_that_still_starts_waits_until_all_run() -> None:
    """No rank is lost, and the Job has no pod to replace."""
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=MAY))
    world = training().pod_failed(2, 1, 0)
    controller.reconcile(world, 1)
    starting = world.recreated(10).started(1, 12)
    controller.reconcile(starting, 13)
    said = controller.incident.message
    controller.reconcile(faulty(starting, "gpu-1", 14), 15)
    assert controller.incident.message == said
    assert len(controller.triggers) == 1
    controller.reconcile(faulty(starting.all_started(18), "gpu-1", 14), 19)
    assert len(controller.triggers) == 2
    assert controller.incident.attempts[-1].nodes == ("gpu-1",)


def test_a_cordon_and_a_taint_that_no_rule_names_are_no_failure() -> None:
    """A health agent holds the node. The rank on it trains on until the agent drains the node."""
    taint = Taint("AggregatedNodeHealth", "False", "NoSchedule", at(0))
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=MAY))
    plan = controller.reconcile(training().with_node("gpu-2", unschedulable=True, taints=(taint,)), 1)
    assert plan.reason is Reason.NO_FAILURE
    assert controller.done == []
