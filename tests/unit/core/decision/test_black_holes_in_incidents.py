"""Nodes on which pods of a group that is restarting in its incident cannot start. Facts in, plan out."""

import msgspec
import pytest

from recovery.core.model.annotations import RELEASE_ANNOTATION
from recovery.core.model.facts import ContainerFacts
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits, Quarantined
from recovery.core.model.ledger import AttemptAction, Phase
from recovery.core.model.native_policy_facts import ExitCodesRequirement, PodFailureRule
from recovery.core.model.reason import Reason
from recovery.core.model.step import Step, StepType
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_black_holes import (
    SUSPECTED,
    accepted,
    carried,
    controller,
    others_run,
    quarantined,
    refused,
    stuck,
    suspected,
)
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def starting(one: Controller, *, restart_policy: str = "OnFailure") -> World:
    """Rank 1 was lost, and the group is recreated at 10 s."""
    lost = training(restart_policy=restart_policy).pod_deleted(1, 0)
    one.reconcile(lost, 1)
    world = lost.recreated(10)
    one.reconcile(world, 11)
    return world


def test_a_member_that_cannot_start_brings_suspicion_on_its_node_and_no_restart() -> None:
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    one.reconcile(world, 43)  # the message names what the group waits for
    assert one.reconcile(world, 131).requeue_at == at(132)
    plan = one.reconcile(world, 132)
    assert suspected(one) == [("gpu-2", one.incident.id)]
    assert "waits: CreateContainerError: no space left, while members run on 3 other nodes: node gpu-2" in plan.message
    carried(one, plan)
    one.reconcile(world, 800)
    assert len(one.triggers) == 1
    assert len(suspected(one)) == 1
    assert one.reconcile(world, 1000).ledger.epoch == 2, "the timeout of the start stays what it is"


def test_a_member_that_fails_there_once_is_enough_when_the_others_have_not_in_half_a_minute() -> None:
    one = controller()
    world = others_run(refused(starting(one, restart_policy="Never"), 2, 12).replaced(2, 14), 2)
    one.reconcile(world, 30)
    assert suspected(one) == []
    one.reconcile(world, 42)
    assert suspected(one) == [("gpu-2", one.incident.id)]


@pytest.mark.parametrize("reason", ["ErrImagePull", "CreateContainerError"])
def test_what_all_members_share_suspects_no_one(reason: str) -> None:
    one = controller()
    world = starting(one)
    for index in range(4):
        world = stuck(world, index, 12, reason)
    one.reconcile(world, 300)
    assert one.fleet_changes == []


def test_a_suspected_node_from_which_no_one_takes_the_pod_is_replaced_by_a_restart() -> None:
    one = controller(SUSPECTED)
    world = others_run(stuck(starting(one), 2, 12), 2)
    first = one.reconcile(world, 132)
    assert first.requeue_at == at(132)
    carried(one, first)
    one.reconcile(world, 132.5)
    assert len(one.triggers) == 2
    assert one.incident.attempts[-1].action is AttemptAction.REPLACE_NODE
    assert quarantined(one) == ["gpu-2"]
    assert (
        "node gpu-2 is suspected (2 of 2 suspicions; the one before is from incident other-7)" in one.incident.message
    )
    assert "quarantining node gpu-2 and deleting Job train-node-0 again" in one.incident.message


def test_a_suspected_node_whose_pod_was_replaced_is_quarantined_without_a_restart() -> None:
    one = controller(SUSPECTED)
    world = others_run(refused(starting(one, restart_policy="Never"), 2, 12).replaced(2, 14), 2)
    plan = one.reconcile(world, 60)
    assert quarantined(one) == ["gpu-2"]
    carried(one, plan)
    one.reconcile(world, 61)
    assert len(one.triggers) == 1
    assert plan.message.endswith("quarantining it; the group is not restarted, and the Job replaces the pod")


def test_the_second_time_within_the_incident_replaces_the_node() -> None:
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    carried(one, one.reconcile(world, 132))
    one.reconcile(world, 1040)
    assert one.incident.attempts[-1].action is AttemptAction.RECREATE_GROUP
    again = world.recreated(1050)
    one.reconcile(again, 1051)
    again = others_run(stuck(again, 2, 1052), 2)
    one.reconcile(again, 1150)
    assert len(one.triggers) == 2
    one.reconcile(again, 1172)
    assert len(one.triggers) == 3
    assert one.incident.attempts[-1].nodes == ("gpu-2",)
    assert one.incident.reason is Reason.NODE_SUSPECTED_TWICE


def test_a_loss_on_which_a_podfailurepolicy_decides_restarts_nothing_for_its_node() -> None:
    """A sidecar keeps the pod of rank 2 Running, so the Job has not seen the failure that its rule is about."""
    ends_job = PodFailureRule("FailJob", ExitCodesRequirement("In", (1,)))
    one = controller()
    world = others_run(stuck(starting(one, restart_policy="Never"), 2, 12), 2)
    carried(one, one.reconcile(world, 132))
    one.reconcile(world, 1040)
    again = others_run(world.recreated(1050).with_job(pod_failure_rules=(ends_job,)).started(2, 1051), 2)
    one.reconcile(again, 1052)
    shipper = ContainerFacts("log-shipper", ready=True, running_since=at(1051))
    failed = again.container_exited(2, 1, 1053).with_other(2, shipper)
    for seconds in (1054, 1090, 1200):
        one.reconcile(failed, seconds)
    assert len(one.triggers) == 2
    assert one.incident.attempts[-1].reason is Reason.POD_FAILURE_POLICY


def test_where_the_node_may_not_be_quarantined_there_is_no_restart_loop() -> None:
    """The new group could land on the same node. The start timeout still runs."""
    one = controller(SUSPECTED, limits=FleetLimits(may_cordon=True, max_nodes=0))
    world = others_run(stuck(starting(one), 2, 12), 2)
    carried(one, one.reconcile(world, 132))
    one.reconcile(world, 133)
    assert Reason.QUARANTINE_CAP in {each.reason for each in one.incident.considered}
    assert "QuarantineRefused" in one.events
    assert [attempt.action for attempt in one.incident.attempts] == [AttemptAction.RECREATE_GROUP]
    reads = one.live_reads
    for seconds in (134, 200, 600):
        one.reconcile(world, seconds)
    assert one.live_reads == reads, "what was refused is not asked again by each look"
    assert len(one.triggers) == 1


def test_an_exhausted_budget_waits_for_the_timeout_as_ever() -> None:
    one = controller(SUSPECTED, limit=1)
    world = others_run(stuck(starting(one), 2, 12), 2)
    carried(one, one.reconcile(world, 132))
    one.reconcile(world, 133)
    assert len(one.triggers) == 1
    assert one.phase() is Phase.STARTING, "held only when the start has taken too long"
    assert quarantined(one) == []


@pytest.mark.parametrize("forced", [False, True], ids=["", "forced"])
@pytest.mark.parametrize("how", ["paused", "observe"])
def test_a_paused_or_observing_group_quarantines_no_node(how: str, forced: bool) -> None:
    """A person who forces a restart has not asked for a quarantine."""
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    step = Step(StepType.RETURNING, forced=forced)
    one.ledger = msgspec.structs.replace(one.ledger, incident=msgspec.structs.replace(one.incident, step=step))
    if how == "paused":
        world = world.paused()
    else:
        assert isinstance(one.policy, Policy)
        one.policy = msgspec.structs.replace(one.policy, mode=Mode.OBSERVE)
    one.reconcile(world, 300)
    assert one.fleet_changes == []


def test_a_group_that_a_storm_took_down_suspects_no_one() -> None:
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    one.ledger = msgspec.structs.replace(one.ledger, incident=msgspec.structs.replace(one.incident, storm="storm-1"))
    one.reconcile(world, 300)
    assert one.fleet_changes == []


def released(world: World, clock: str) -> World:
    return world.with_node("gpu-2", annotations={RELEASE_ANNOTATION: f"2026-11-21T{clock}Z"})


@pytest.mark.parametrize(("clock", "action"), [("12:00:10", "RecreateGroup"), ("11:59:59", "ReplaceNode")])
def test_the_second_time_counts_only_what_came_after_a_release_by_hand(clock: str, action: str) -> None:
    one = controller()
    one.reconcile(training().pod_failed(2, 134, 0), 1)
    world = training().pod_failed(2, 134, 0).recreated(10).all_started(15)
    one.reconcile(world, 16)
    one.reconcile(released(world.pod_failed(2, 134, 20), clock), 21)
    assert one.incident.attempts[-1].action == action


@pytest.mark.parametrize(("clock", "asked"), [("12:00:05", 1), ("11:59:59", 2)])
def test_a_crash_before_the_fleet_was_asked_does_not_bring_back_what_a_person_has_released(
    clock: str, asked: int
) -> None:
    world, one = training().pod_failed(2, 134, 0), controller()
    one.reconcile(world, 1)
    one.reconcile(released(world, clock), 10)
    assert len(suspected(one)) == asked


def test_a_node_that_is_quarantined_is_suspected_no_more() -> None:
    entry = Quarantined("gpu-2", "node-gpu-2", "bad", at(-60), incident="x-1", applied=True)
    one = controller(FleetLedger(quarantined=(entry,)))
    world = others_run(stuck(starting(one), 2, 12), 2).with_node("gpu-2", unschedulable=True)
    one.reconcile(world, 300)
    assert one.fleet_changes == []


def test_a_kubelet_whose_clock_lags_makes_no_second_time_of_the_first() -> None:
    one = controller()
    world = others_run(stuck(starting(one), 2, 12), 2)
    lags = accepted(world, 2, -300)
    one.reconcile(lags, 43)
    assert suspected(one) == [], "two minutes since its pod was made are not over"
    carried(one, one.reconcile(lags, 131))
    one.reconcile(lags, 135)
    assert suspected(one) == [("gpu-2", one.incident.id)]
    one.reconcile(lags, 140)
    assert len(one.triggers) == 1


def test_a_rank_that_has_found_another_node_needs_no_restart_though_its_first_one_fails_for_the_second_time() -> None:
    one = controller()
    world = others_run(refused(starting(one, restart_policy="Never"), 2, 12).replaced(2, 14).scheduled(2), 2)
    one.reconcile(world, 20)
    carried(one, one.reconcile(world, 60))
    assert suspected(one) == [("gpu-2", one.incident.id)]
    one.reconcile(world, 1040)
    assert len(one.triggers) == 2
    again = world.recreated(1050)
    one.reconcile(again, 1051)
    again = others_run(refused(again, 2, 1052).replaced(2, 1054), 2, 3).with_pod(2, node="gpu-9").started(2, 1060)
    one.reconcile(again, 1100)
    assert len(one.triggers) == 2


def test_a_group_that_is_held_says_why_though_a_node_comes_under_suspicion_in_the_same_reconcile() -> None:
    one = controller(limit=1)
    world = others_run(stuck(starting(one), 2, 800), 2)
    one.reconcile(world, 20)
    plan = one.reconcile(world, 1200)
    assert one.ledger.phase == "Held"
    assert plan.reason is Reason.ATTEMPTS_EXHAUSTED
    assert one.incident.reason is Reason.ATTEMPTS_EXHAUSTED
