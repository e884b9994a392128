"""RecreateGroupAfterStart, and phase Rendezvous where the pods have a joined probe."""

import pytest

from recovery.core.model.facts import Condition, ContainerFacts
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Restart
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

AFTER_START = policy(restart=Restart.RECREATE_GROUP_AFTER_START)


def probed(world: World) -> World:
    for index in range(4):
        world = world.with_pod(index, joined_probe=True)
    return world


def test_after_start_waits_while_a_pod_is_pending_and_restarts_when_none_is() -> None:
    controller = Controller(AFTER_START)
    pending = training(4).pod_gone(3, 0).replaced(3, 1)
    plan = controller.reconcile(pending, 1.5)
    assert controller.triggers == []
    assert plan.reason is Reason.GROUP_PENDING
    started = pending.started(3, 60).pod_ready(3, 60)
    controller.reconcile(started, 60.5)
    assert len(controller.triggers) == 1, "all run, but those that were left hang"


def test_after_start_restarts_at_once_where_no_one_is_pending() -> None:
    controller = Controller(AFTER_START)
    controller.reconcile(training(4, restart_policy="OnFailure").container_restarted(3, 1, 0), 1.5)
    assert len(controller.triggers) == 1


@pytest.mark.parametrize("exited", [True, False])
def test_after_start_does_not_wait_for_a_sidecar_that_never_starts(exited: bool) -> None:
    """The sidecar keeps its pod Pending, whether the training runs or has exited."""
    broken = ContainerFacts("proxy", waiting_reason="ImagePullBackOff")
    world = training(4)
    for index in range(4):
        world = world.with_other(index, broken).with_pod(index, phase="Pending")
    lost = world.container_exited(3, 1, 0) if exited else world.pod_deleted(3, 0)
    controller = Controller(AFTER_START)
    controller.reconcile(lost, 1.5)
    assert len(controller.triggers) == 1


def test_a_paused_after_start_incident_ends_observed_when_the_group_runs_whole() -> None:
    controller = Controller(AFTER_START)
    pending = training(4).pod_gone(3, 0).replaced(3, 1)
    controller.reconcile(pending, 1.5)
    world = pending.started(3, 60).pod_ready(3, 60).asked("recovery.trainjob.dev/paused", "true")
    controller.settle(world, 70)
    assert controller.triggers == []
    assert controller.recorded[-1].closing.outcome is Outcome.OBSERVED  # type: ignore[union-attr]


def test_after_start_ends_when_the_group_runs_whole_in_another_run_of_its_job() -> None:
    """Seed 789 of the simulation: a suspension that no leader saw ended the run with the lost member. There is nothing
    left to restart, so the incident must not stay open while the new run trains."""
    controller = Controller(AFTER_START)
    pending = training(4).pod_failed(3, 1, 0).replaced(3, 1)
    controller.reconcile(pending, 1.5)
    again = pending.resumed(20).all_ready(22)
    controller.settle(again, 30)
    assert controller.triggers == []
    closing = controller.recorded[-1].closing
    assert closing is not None
    assert (closing.outcome, closing.ended_at) == (Outcome.OBSERVED, at(23))


def on_the_way(controller: Controller) -> World:
    lost = probed(training(4)).pod_deleted(3, 0)
    controller.reconcile(lost, 0.2)
    world = probed(lost.job_deleted(0.3).all_deleted(0.4).recreated(2)).all_started(4)
    controller.reconcile(world, 4.2)
    assert controller.phase() is Phase.RENDEZVOUS
    return world


def test_a_joined_probe_verifies_the_recovery() -> None:
    controller = Controller()
    world = on_the_way(controller)
    controller.settle(world.all_ready(9), 9.2)
    closing = controller.recorded[-1].closing
    assert closing is not None
    assert (closing.outcome, closing.source, closing.verified) == (Outcome.RECOVERED, "joined-probe", True)
    assert controller.recorded[-1].message.endswith("all 4 ranks have joined (source: joined-probe, verified: true)")


def test_ranks_that_do_not_join_in_time_are_another_attempt() -> None:
    controller = Controller()
    world = on_the_way(controller)
    plan = controller.reconcile(world, 60)
    assert plan.requeue_at == at(904.2)
    controller.reconcile(world, 905)
    assert len(controller.triggers) == 2
    assert "not all ranks joined within 900 s after all of them ran" in controller.incident.message


def test_the_time_in_which_its_user_had_it_suspended_unseen_does_not_count() -> None:
    """Seed 7007 of the simulation: no leader saw the suspension. One saw its end, but only while Trainer was down."""
    controller = Controller()
    world = on_the_way(controller).suspended()
    for index in range(4):
        world = world.pod_deleted(index, 10).pod_gone(index, 40)
    still = Condition("Suspended", "True", "JobSuspended", "Job suspended", at(10))
    waking = world.with_workload(suspended=False).with_jobset(suspended=False)
    controller.reconcile(waking.with_job(suspended=False, conditions=(still,)), 1000)
    awake = world.resumed(1000)
    controller.reconcile(awake, 1001)
    assert len(controller.triggers) == 1
    back = probed(awake).all_started(1005)
    assert controller.reconcile(back, 1006).requeue_at == at(1900)
    controller.reconcile(back, 1900)
    assert len(controller.triggers) == 2


def test_a_script_that_never_tells_that_it_has_joined_is_not_restarted_for_that() -> None:
    controller = Controller()
    lost = probed(training(4))
    for index in range(4):
        lost = lost.with_pod(index, ready=False, ready_since=None)
    lost = lost.pod_deleted(3, 0)
    controller.reconcile(lost, 0.2)
    world = probed(lost.job_deleted(0.3).all_deleted(0.4).recreated(2)).all_started(4)
    controller.reconcile(world, 4.2)
    controller.reconcile(world, 5000)
    assert controller.phase() is Phase.RENDEZVOUS
    assert len(controller.triggers) == 1


def test_without_a_probe_rendezvous_has_no_timeout() -> None:
    controller = Controller()
    lost = training(4).pod_deleted(3, 0)
    controller.reconcile(lost, 0.2)
    world = lost.job_deleted(0.3).all_deleted(0.4).recreated(2).all_started(4)
    controller.reconcile(world, 4.2)
    controller.reconcile(world, 5000)
    assert len(controller.triggers) == 1


def test_a_held_group_is_not_whole_while_the_one_that_was_replaced_has_not_joined() -> None:
    controller = Controller(policy(limit=0))
    lost = probed(training(4)).pod_gone(3, 0)
    controller.reconcile(lost, 0.2)
    replaced = lost.replaced(3, 1).with_pod(3, joined_probe=True).started(3, 5)
    controller.reconcile(replaced, 60)
    assert controller.phase() is Phase.HELD
