"""Nodes that fall silent while an incident is open. The passing of time alone frees the group, without any event."""

import pytest

from recovery.core.model.ledger import Phase
from recovery.core.model.reason import Reason
from recovery.core.model.rules import RuleAction
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import FencingMode, OnNativeIgnore
from tests.unit.core.decision.test_verdicts import on_exit
from tests.unit.core.decision.test_verdicts_in_time import reconcile_when_requeued
from tests.unit.core.diagnosis.test_native_policies import on_condition
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def assume_dead(seconds: float = 60, *, ignored: int | None = None, **settings: object) -> Policy:
    """`ignored`: an exit code that a rule leaves to Kubernetes."""
    rules = (on_exit(ignored, RuleAction.IGNORE),) if ignored is not None else ()
    settings |= {"fencing": FencingMode.ASSUME_DEAD, "may_assume_dead": True, "assume_dead_seconds": seconds}
    return policy(rules=rules, **settings)  # type: ignore[arg-type]


def restarted(controller: Controller) -> World:
    """Rank 2 has failed, and the pods of the new group exist since 10 s."""
    world = training().pod_failed(2, 1, 0)
    controller.reconcile(world, 1)
    assert len(controller.triggers) == 1
    return world.recreated(10)


def test_a_node_that_falls_silent_under_a_new_group_is_taken_for_dead_in_time() -> None:
    controller = Controller(assume_dead())
    running = restarted(controller).all_started(15)
    controller.reconcile(running, 16)
    reconcile_when_requeued(controller, running.node_silent("gpu-1", 20), 21, until=79)
    assert len(controller.triggers) == 1
    reconcile_when_requeued(controller, running.node_silent("gpu-1", 20), 79.5, until=600)
    assert len(controller.triggers) == 2
    assert controller.incident.attempts[-1].started_at == at(80)
    assert controller.forced == ["train-node-0-1-20"]


@pytest.mark.parametrize("asked_for", [21, 50])
def test_a_silent_node_is_reconciled_in_time_while_the_group_starts(asked_for: float) -> None:
    """The start of the other ranks has its own timeout, which is 15 minutes away."""
    controller = Controller(assume_dead())
    starting = restarted(controller).all_scheduled().started(1, 15)
    controller.reconcile(starting, 16)
    assert controller.reconcile(starting.node_silent("gpu-1", 20), asked_for).requeue_at == at(80)


def test_a_silent_node_is_reconciled_in_time_after_the_loss_of_another_was_ignored() -> None:
    controller = Controller(assume_dead(ignored=7))
    world = training().pod_failed(2, 7, 0)
    reconcile_when_requeued(controller, world, 1, until=10)
    assert controller.incident.reason is Reason.RULE_IGNORE
    silent = world.node_silent("gpu-1", 20)
    assert controller.reconcile(silent, 21).requeue_at == at(80)
    assert controller.triggers == []
    reconcile_when_requeued(controller, silent, 80, until=90)
    assert len(controller.triggers) == 1


def test_a_dead_pod_is_freed_although_it_was_left_to_the_jobs_own_policy() -> None:
    """The Job replaces the pod only once it is gone, and nothing else ends it."""
    controller = Controller(assume_dead(600, on_native_ignore=OnNativeIgnore.STAND_ASIDE))
    world = training(rules=(on_condition("Ignore"),)).node_silent("gpu-2", 0)
    evicted = world.evicted(2, 300, reason="DeletionByTaintManager")
    assert controller.reconcile(evicted, 301).requeue_at == at(600)
    assert controller.incident.reason is Reason.POD_FAILURE_POLICY
    assert controller.forced == []
    controller.reconcile(evicted, 600)
    assert controller.forced == ["train-node-0-2-10"]
    assert controller.triggers == []


def test_without_a_policy_nothing_is_forced_and_fencing_goes_on_when_there_is_one_again() -> None:
    controller = Controller(assume_dead(600))
    evicted = training().node_silent("gpu-2", 0).evicted(2, 300)
    controller.reconcile(evicted, 301)
    going = evicted.job_deleted(302).all_deleted(302)
    controller.reconcile(going, 303)
    assert controller.phase() is Phase.FENCING
    policy_, controller.policy = controller.policy, None
    controller.reconcile(going, 700)
    assert controller.forced == []
    assert controller.incident.reason is Reason.FENCING
    controller.policy = policy_
    controller.reconcile(going, 800)
    assert controller.forced == ["train-node-0-2-10"]


def test_an_old_pod_is_torn_down_only_from_when_its_node_answers_again() -> None:
    """The Job was deleted long before. Until the node answers the group waits for it, and the time is Fencing."""
    controller = Controller(assume_dead(600))
    silent = training().node_silent("gpu-2", 0).evicted(2, 300)
    controller.reconcile(silent, 301)
    going = silent.job_deleted(302).all_deleted(302)
    controller.reconcile(going, 303)
    assert controller.phase() is Phase.FENCING
    controller.reconcile(going.node_back("gpu-2"), 500)
    assert controller.phase() is Phase.TEARING_DOWN
    fencing, _ = controller.incident.phases[-2:]
    assert (fencing.phase, fencing.ended_at) == (Phase.FENCING, at(500))
