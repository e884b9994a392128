"""A rule that names faults on several nodes takes the group off all of them, as far as the caps allow."""

import msgspec
import pytest

from recovery.core.model.fleet_ledger import FleetLimits
from recovery.core.model.ledger import AttemptAction
from recovery.core.model.reason import Reason
from recovery.core.model.rules import RuleAction
from tests.unit.core.decision.test_avoiding import hosts, world_with_room
from tests.unit.core.decision.test_replacing_nodes import REPLACE_42, REPLACE_FAULTY, faulty, quarantined
from tests.unit.core.decision.test_verdicts import MAY, TRUSTED
from tests.unit.core.driver import Controller, policy
from tests.unit.core.elastic import reconciled
from tests.unit.core.groups import training
from tests.unit.core.world import World

AVOID_FAULTY = msgspec.structs.replace(REPLACE_FAULTY, action=RuleAction.AVOID_NODE)
TWO_AT_MOST = FleetLimits(may_cordon=True, max_nodes=2, max_percent=50)


def all_faulty(world: World, *nodes: str) -> World:
    for node in nodes:
        world = faulty(world, node)
    return world


def test_all_nodes_with_the_fault_are_quarantined_by_one_restart() -> None:
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=MAY))
    controller.reconcile(all_faulty(training(), "gpu-1", "gpu-2"), 1)
    assert controller.incident.attempts[-1].action is AttemptAction.REPLACE_NODE
    assert controller.incident.attempts[-1].nodes == ("gpu-1", "gpu-2")
    assert quarantined(controller) == ["gpu-1", "gpu-2"]
    assert len(controller.triggers) == 1
    assert "quarantining node gpu-1, node gpu-2 and deleting Job" in controller.incident.message


def test_each_quarantine_ends_with_the_sign_of_its_own_node() -> None:
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=MAY))
    controller.reconcile(all_faulty(training(), "gpu-1", "gpu-2"), 1)
    [change] = controller.fleet_changes
    assert [(each.node, each.release_when) for each in change.quarantine] == [
        ("gpu-1", "GpuFault"),
        ("gpu-2", "GpuFault"),
    ]


def test_nodes_of_losses_count_as_those_of_faults_do() -> None:
    controller = Controller(policy(rules=(REPLACE_42,), limits=TRUSTED))
    controller.reconcile(training().pod_failed(1, 42, 0).pod_failed(3, 42, 0), 1)
    assert quarantined(controller) == ["gpu-1", "gpu-3"]


def test_what_jobs_alone_say_of_several_nodes_is_bounded_as_what_they_say_of_one() -> None:
    """No node shows a sign, so the tenth of the cap applies: one node."""
    controller = Controller(policy(rules=(REPLACE_42,), limits=MAY))
    controller.reconcile(training().pod_failed(1, 42, 0).pod_failed(3, 42, 0), 1)
    assert quarantined(controller) == ["gpu-1"]
    [refused] = controller.incident.considered
    assert (refused.node, refused.reason) == ("gpu-3", Reason.QUARANTINE_NAMESPACE_CAP)


def test_a_node_that_another_rule_names_first_is_left_to_that_rule() -> None:
    rules = (REPLACE_42, msgspec.structs.replace(REPLACE_FAULTY, action=RuleAction.REPLACE_NODE))
    controller = Controller(policy(rules=rules, limits=MAY))
    controller.reconcile(faulty(training(), "gpu-1").pod_failed(3, 42, 5), 6)
    assert controller.incident.rule == REPLACE_FAULTY.name
    assert quarantined(controller) == ["gpu-1"]


def test_the_ledger_says_why_for_each_node_that_the_cap_refuses() -> None:
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=TWO_AT_MOST))
    controller.reconcile(all_faulty(training(), "gpu-0", "gpu-1", "gpu-2", "gpu-3"), 1)
    assert quarantined(controller) == ["gpu-0", "gpu-1"]
    assert [(each.action, each.node, each.reason) for each in controller.incident.considered] == [
        ("ReplaceNode", "gpu-2", Reason.QUARANTINE_CAP),
        ("ReplaceNode", "gpu-3", Reason.QUARANTINE_CAP),
    ]


def test_the_last_feasible_nodes_are_counted_with_those_that_this_restart_takes() -> None:
    """4 pods and 5 nodes: one of the two may go."""
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=TWO_AT_MOST))
    world = msgspec.structs.replace(all_faulty(training(), "gpu-1", "gpu-2"), cluster_nodes=5)
    controller.reconcile(world, 1)
    assert quarantined(controller) == ["gpu-1"]
    [refused] = controller.incident.considered
    assert (refused.node, refused.reason) == ("gpu-2", Reason.QUARANTINE_LAST_NODES)


def test_a_node_that_keeps_pods_off_already_does_not_spare_the_other_one() -> None:
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=MAY))
    world = all_faulty(training(), "gpu-1", "gpu-2").with_node("gpu-1", unschedulable=True)
    controller.reconcile(world, 1)
    assert quarantined(controller) == ["gpu-2"]


def test_a_node_that_is_refused_does_not_keep_the_group_on_one_that_is_cordoned() -> None:
    controller = Controller(policy(rules=(REPLACE_FAULTY,)))
    world = all_faulty(training(), "gpu-1", "gpu-2").with_node("gpu-2", unschedulable=True)
    controller.reconcile(world, 1)
    assert controller.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    [refused] = controller.incident.considered
    assert (refused.node, refused.reason) == ("gpu-1", Reason.QUARANTINE_NOT_ALLOWED)


def test_without_permission_a_group_that_runs_stays_and_each_node_says_why() -> None:
    controller = Controller(policy(rules=(REPLACE_FAULTY,)))
    controller.reconcile(all_faulty(training(), "gpu-1", "gpu-2"), 1)
    assert controller.triggers == []
    assert [each.node for each in controller.incident.considered] == ["gpu-1", "gpu-2"]


@pytest.mark.parametrize("rule", [AVOID_FAULTY, REPLACE_42], ids=["avoid", "quarantine-refused"])
def test_the_group_is_born_off_all_of_them(rule: object) -> None:
    world = world_with_room()
    if rule is AVOID_FAULTY:
        world = all_faulty(world, "gpu-2", "gpu-5")
    else:
        world = world.pod_failed(2, 42, 0).pod_failed(5, 42, 0)
    controller = Controller(policy(rules=(rule,)))  # type: ignore[arg-type]
    reconciled(controller, world, 0.5)
    assert controller.incident.attempts[-1].action is AttemptAction.AVOID_NODE
    assert hosts(controller) == ("host-2", "host-5")


def test_a_group_avoids_only_as_many_nodes_as_it_has_room_for_elsewhere() -> None:
    world = all_faulty(world_with_room(), "gpu-2", "gpu-5", "gpu-7")  # there is room on two other nodes
    controller = Controller(policy(rules=(AVOID_FAULTY,)))
    reconciled(controller, world, 0.5)
    assert hosts(controller) == ("host-2", "host-5")
    assert [(each.action, each.node) for each in controller.incident.considered] == [("AvoidNode", "gpu-7")]
