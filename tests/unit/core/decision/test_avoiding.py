"""A group avoids a node: other jobs may still use the node, and the group never avoids a node that it needs."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from recovery.core.model.annotations import HOSTNAME_LABEL, KUEUE_QUEUE_LABEL
from recovery.core.model.birth_settings import BirthOutcome
from recovery.core.model.facts import Condition, Room, Taint
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT
from recovery.core.model.ledger import AttemptAction, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.rules import ExitCodes, NodeConditionRule, Operator, Rule, RuleAction, When
from recovery.core.plan.actions import TryBirth
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, policy
from tests.unit.core.elastic import born, reconciled, sixteen
from tests.unit.core.world import World, at

AVOID_43 = Rule("ecc", RuleAction.AVOID_NODE, When(on_exit_codes=ExitCodes(Operator.IN, (43,))))
REPLACE_43 = msgspec.structs.replace(AVOID_43, action=RuleAction.REPLACE_NODE)
FAILED = 2
"""The rank that exits with 43; it is on node gpu-2."""


def world_with_room(pods: int = 4, ranks: int = 16) -> World:
    world = msgspec.structs.replace(sixteen(ranks), room=Room(pods, ("gpu-20", "gpu-21") if pods else ()))
    for rank in range(ranks):
        world = world.with_node(f"gpu-{rank}", labels={HOSTNAME_LABEL: f"host-{rank}"})
    return world


def avoiding(world: World | None = None, *, rule: Rule = AVOID_43) -> tuple[Controller, World]:
    controller = Controller(policy(rules=(rule,)))
    world = (world or world_with_room()).pod_failed(FAILED, 43, 0)
    _, world = reconciled(controller, world, 0.5)
    return controller, world


def actions(controller: Controller) -> list[AttemptAction]:
    return [attempt.action for attempt in controller.incident.attempts]


def hosts(controller: Controller) -> tuple[str, ...]:
    settings = controller.ledger.birth_settings
    return settings.avoid_hosts if settings is not None else ()


def test_the_next_incarnation_is_born_off_the_node() -> None:
    controller, _ = avoiding()
    assert actions(controller) == [AttemptAction.AVOID_NODE]
    assert hosts(controller) == ("host-2",)
    assert controller.ledger.birth_settings is not None
    assert controller.ledger.birth_settings.nodes is None, "its size is the template's"
    assert [each.node for each in controller.ledger.avoided] == ["gpu-2"]
    assert controller.fleet_changes == [], "nobody else is kept off it"
    assert "quarantin" not in controller.incident.message


def test_a_quarantine_that_is_not_allowed_becomes_avoidance() -> None:
    controller, _ = avoiding(rule=REPLACE_43)
    assert (actions(controller), hosts(controller)) == ([AttemptAction.AVOID_NODE], ("host-2",))
    assert [each.action for each in controller.incident.considered] == ["ReplaceNode"]


@pytest.mark.parametrize("why", ["no room", "room on it alone", "unknown room", "no label", "pinned"])
def test_a_node_that_the_group_may_need_is_not_avoided(why: str) -> None:
    world = world_with_room(pods=0 if why == "no room" else 4)
    match why:
        case "room on it alone":
            world = msgspec.structs.replace(world, room=Room(1, ("gpu-2",)))
        case "unknown room":
            world = msgspec.structs.replace(world, room=None)
        case "no label":
            world = world.with_node("gpu-2", labels={})
        case "pinned":
            world = world.with_job(pinned=True)
    controller, _ = avoiding(world)
    assert (actions(controller), hosts(controller)) == ([AttemptAction.RECREATE_GROUP], ())
    assert [(each.action, each.reason) for each in controller.incident.considered] == [
        ("AvoidNode", Reason.NODE_NOT_AVOIDED)
    ]


@pytest.mark.parametrize(
    "closed",
    [{"unschedulable": True}, {"taints": (Taint(QUARANTINE_TAINT, "incident-of-another-job", "NoSchedule"),)}],
    ids=["cordon", "quarantine"],
)
def test_a_node_that_takes_no_pods_needs_no_avoidance(closed: dict[str, Any]) -> None:
    controller, _ = avoiding(world_with_room().with_node("gpu-2", **closed))
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    assert hosts(controller) == ()


def test_a_job_in_a_queue_of_kueue_whose_nodes_the_scheduler_chooses_avoids_them_too() -> None:
    controller, _ = avoiding(world_with_room().with_workload(labels={KUEUE_QUEUE_LABEL: "team-a"}))
    assert (actions(controller), hosts(controller)) == ([AttemptAction.AVOID_NODE], ("host-2",))


@pytest.mark.parametrize("outcome", [BirthOutcome.REFUSED, BirthOutcome.NOT_ALLOWED, BirthOutcome.NOT_APPLIED])
def test_a_group_is_recreated_without_avoiding_a_node_where_birth_settings_do_not_work(outcome: BirthOutcome) -> None:
    controller = Controller(policy(rules=(AVOID_43,)))
    reconciled(controller, world_with_room().pod_failed(FAILED, 43, 0), 0.5, outcome)
    assert actions(controller) == [AttemptAction.RECREATE_GROUP]
    assert (controller.ledger.birth_settings, controller.ledger.avoided) == (None, ())


def test_a_restart_that_is_withheld_tries_only_once_whether_the_node_can_be_avoided() -> None:
    """Each reconcile of the backoff passes the verdict again, and would repeat the dry runs too."""
    waits = policy(rules=(AVOID_43,), backoff=Backoff(initial=timedelta(seconds=60)))
    controller = Controller(waits)
    world = world_with_room().with_workload(active_deadline_seconds=3600).with_job(backoff_limit=50)
    controller.reconcile(world.pod_deleted(3, 0), 0.2)
    world = world.pod_deleted(3, 0).job_deleted(0.3).all_deleted(0.4).recreated(2).all_ready(4)
    controller.settle(world, 4.5)
    world = world.with_job(backoff_limit=50).pod_failed(FAILED, 43, 300)
    _, world = reconciled(controller, world, 300.2, BirthOutcome.NOT_ALLOWED)
    assert controller.phase() is Phase.BACKOFF
    for second in range(301, 310):
        plan = controller.reconcile(world, second)
        assert not [action for action in plan.actions if isinstance(action, TryBirth)]
        assert controller.ledger.birth_settings is None


def test_settings_are_tried_although_a_deleted_ledger_used_their_revision() -> None:
    controller, world = avoiding()
    world = born(controller, world, 3).all_ready(10)
    assert world.job.birth_revision == "1"
    afresh = Controller(policy(rules=(AVOID_43,)))
    plan = afresh.reconcile(world.pod_failed(3, 43, 100), 101)
    assert afresh.ledger.birth_revisions == 1
    plan = afresh.reconcile(world.pod_failed(3, 43, 100), 101.25)
    assert [type(action) for action in plan.actions] == [TryBirth]
    assert afresh.triggers == []


def test_another_suspect_is_avoided_as_well_and_both_for_as_long_as_suspicions_count() -> None:
    controller, world = avoiding()
    world = born(controller, world, 3).all_ready(10)
    controller.settle(world, 11)
    world = world.pod_failed(3, 43, 5000)
    _, world = reconciled(controller, world, 5000.5)
    assert hosts(controller) == ("host-2", "host-3")
    world = born(controller, world, 5003).all_ready(5010)
    controller.settle(world, 5011)
    controller.reconcile(world, 86_400 + 100)
    assert hosts(controller) == ("host-3",)
    controller.reconcile(world, 86_400 + 5100)
    assert (controller.ledger.birth_settings, controller.ledger.avoided) == (None, ())


def test_a_group_that_finds_no_node_meanwhile_avoids_none_any_more() -> None:
    controller, world = avoiding()
    world = born(controller, world, 3, unplaced=(15,))
    reconciled(controller, world, 4)
    reconciled(controller, world, 18)
    assert hosts(controller) == ("host-2",)
    reconciled(controller, world, 20)
    assert actions(controller) == [AttemptAction.AVOID_NODE, AttemptAction.RECREATE_GROUP]
    assert (controller.incident.attempts[-1].reason, hosts(controller)) == (Reason.AVOIDANCE_ENDED, ())
    assert controller.phase() is Phase.DECIDED


def test_a_job_that_was_created_without_the_settings_avoids_none_and_is_not_restarted_for_it() -> None:
    controller, world = avoiding()
    world = world.born(3, None).unschedulable(15, "0/16 nodes are available")
    for rank in range(15):
        world = world.scheduled(rank)
    reconciled(controller, world, 4)
    reconciled(controller, world, 30)
    assert actions(controller) == [AttemptAction.AVOID_NODE]


def test_a_jobset_that_was_made_again_has_its_next_job_created_off_the_node_as_well() -> None:
    controller, world = avoiding()
    world = born(controller, world, 3).all_ready(10)
    controller.settle(world, 11)
    world = world.with_jobset(uid="jobset-2").with_job(jobset_uid="jobset-2", birth_revision="")
    controller.settle(world, 100)
    settings = controller.ledger.birth_settings
    assert settings is not None
    assert (settings.job_set_uid, settings.avoid_hosts) == ("jobset-2", ("host-2",))


def test_a_rule_about_the_node_alone_takes_the_group_off_it_while_its_member_runs() -> None:
    rule = Rule("link", RuleAction.AVOID_NODE, When(on_node_conditions=(NodeConditionRule("LinkFault"),)))
    faulty = (Condition("LinkFault", "True", since=at(0)),)
    controller = Controller(policy(rules=(rule,)))
    world = world_with_room().with_node("gpu-2", labels={HOSTNAME_LABEL: "host-2"}, conditions=faulty)
    reconciled(controller, world, 1)
    assert (actions(controller), hosts(controller)) == ([AttemptAction.AVOID_NODE], ("host-2",))
    full = Controller(policy(rules=(rule,)))
    reconciled(full, msgspec.structs.replace(world, room=Room(0)), 1)
    assert AttemptAction.AVOID_NODE not in actions(full)
    assert full.triggers == [], "its member runs, and the group could come back on the very same node"


def test_observe_says_that_the_node_would_be_avoided() -> None:
    controller = Controller(policy(Mode.OBSERVE, rules=(AVOID_43,)))
    controller.reconcile(world_with_room().pod_failed(FAILED, 43, 0), 0.5)
    assert (controller.incident.would, hosts(controller)) == ("AvoidNode", ())
    assert "quarantin" not in controller.incident.would_message


def test_an_incident_that_only_observes_restarts_no_group_to_end_an_avoidance() -> None:
    """The JobSet restarts the group, and one pod finds no node. Meanwhile the policy enforces again."""
    controller, world = avoiding()
    world = born(controller, world, 3).all_ready(10)
    controller.settle(world, 11)
    controller.policy = policy(Mode.OBSERVE, rules=(AVOID_43,), since=100)
    world = world.pod_failed(5, 1, 200)
    controller.reconcile(world, 201)
    world = world.restarted_by_jobset()
    controller.reconcile(world, 202)
    world = born(controller, world, 210, unplaced=(15,))
    controller.policy = policy(Mode.ENFORCE, rules=(AVOID_43,), since=220)
    for seconds in (221, 230, 300):
        controller.reconcile(world, seconds)
    assert len(controller.triggers) == 1
