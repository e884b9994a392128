"""A restart that waits for its backoff comes only if the ranks still hang by then."""

from datetime import timedelta

import msgspec

from recovery.core.decision.backoff import all_met_after
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from recovery.core.model.step import StepType
from recovery.core.policy.resolved import Backoff
from tests.unit.core.decision.withheld import BACKOFF, WAITS, job, recovered_once, waiting
from tests.unit.core.driver import Controller, policy
from tests.unit.core.world import at


def test_a_lost_pod_that_is_replaced_leaves_the_others_hanging_although_all_are_ready() -> None:
    controller, world = waiting()
    world = world.came_back(2, 305, 308)
    controller.reconcile(world, 310)
    assert controller.phase() is Phase.BACKOFF
    controller.reconcile(world, 360.3)
    assert len(controller.triggers) == 2


def test_a_group_all_of_whose_ranks_have_begun_again_has_recovered_by_itself() -> None:
    controller, world = waiting(job(restart_policy="OnFailure"))
    world = world.came_back(2, 305, 308)
    for rank in (0, 1, 3):
        world = world.container_restarted(rank, 134, 320)
    controller.settle(world, 322)
    controller.reconcile(world, 361)
    closing = controller.recorded[-1].closing
    assert closing is not None
    assert (closing.outcome, closing.outcome_reason) == (Outcome.SUPERSEDED, "RunsWholeAgain")
    assert (len(controller.triggers), controller.ledger.totals.charged) == (1, 1)


def test_a_pod_that_a_kubelet_has_rejected_meanwhile_was_lost_before_the_next_one_was_made() -> None:
    """Nothing dates its end, and the others gave up and met long after it."""
    controller, world = waiting(job(restart_policy="OnFailure"))
    world = world.pod_gone(2, 305).replaced(2, 305).scheduled(2).with_pod(2, phase="Failed", reason="OutOfcpu")
    controller.reconcile(world, 306)
    world = world.replaced(2, 310).started(2, 312).pod_ready(2, 312)
    for rank in (0, 1, 3):
        world = world.container_restarted(rank, 134, 320)
    controller.settle(world, 340)
    controller.reconcile(world, 361)
    assert (len(controller.triggers), len(controller.recorded)) == (1, 2)


def test_ranks_that_began_in_the_second_of_the_loss_may_be_older_than_it_and_hang() -> None:
    """API times are whole seconds. A member that is lost within the second of its start must not be forgotten."""
    controller = Controller(WAITS)
    world = job().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_started(10)
    controller.reconcile(world.pod_deleted(1, 10), 10.9)
    world = world.came_back(1, 12, 14).all_ready(15)
    controller.reconcile(world, 20)
    assert controller.phase() is Phase.BACKOFF
    controller.reconcile(world, 71)
    assert len(controller.triggers) == 2


def test_a_replacement_is_younger_than_the_loss_although_no_rule_tells_which_container_trains() -> None:
    """Otherwise a replaced member whose loss is no longer visible would look like one that was never lost."""
    controller, world = waiting()
    world = world.came_back(2, 305, 308)
    for rank in range(4):
        others = world.pod(rank).containers
        world = world.with_pod(rank, training_known=False, containers=(), other_containers=others)
    assert controller.incident.step.withheld
    assert not all_met_after(world.snapshot(), controller.ledger, ())


def test_a_group_that_has_joined_again_has_recovered_by_itself() -> None:
    controller, world = waiting()
    world = world.came_back(2, 305, 308).pod_ready(2, 310)
    for rank in range(4):
        world = world.with_pod(rank, joined_probe=True)
    controller.settle(world, 312)
    assert len(controller.recorded) == 2
    assert len(controller.triggers) == 1


def test_a_rank_that_is_lost_after_all_have_met_again_is_not_forgotten() -> None:
    """All ranks were replaced and met. Rank 1 is lost and replaced as well before a slow leader reconciles."""
    controller, world = waiting()
    world = world.all_came_back(305, 308).pod_deleted(1, 312).came_back(1, 315, 318)
    controller.settle(world, 330)
    assert len(controller.recorded) == 1, "ranks 0, 2 and 3 hang"
    controller.reconcile(world, 360.3)
    assert len(controller.triggers) == 2


def test_ranks_that_hang_have_not_met_because_a_user_scaled_the_lost_one_away() -> None:
    controller, world = waiting()
    world = world.pod_gone(2, 305)
    controller.reconcile(world, 306)
    assert controller.ledger.standing is Standing.BROKEN
    left = tuple(pod for pod in world.pods if pod.index is not None and pod.index < 2)
    controller.settle(msgspec.structs.replace(world.with_job(parallelism=2, completions=2), pods=left), 320)
    assert len(controller.recorded) == 1, "ranks 0 and 1 hang"


def test_a_rank_that_waits_for_the_others_is_no_reason_to_restart() -> None:
    """Rank 2 came back first. The others gave up minutes later, and their pods were replaced one after the other."""
    controller, world = waiting()
    world = world.came_back(2, 305, 308)
    for rank, ready in ((0, 330), (1, 340), (3, 350)):
        world = world.pod_failed(rank, 134, ready - 10).came_back(rank, ready - 5, ready)
    controller.settle(world, 356)
    assert len(controller.recorded) == 2
    assert len(controller.triggers) == 1


def test_a_node_that_answers_again_has_lost_no_one() -> None:
    controller = Controller(WAITS)
    world = recovered_once(controller, job())
    lost = world.with_pod(2, dead_since=at(300), dead_because="its node is gone").node_deleted("gpu-2")
    controller.reconcile(lost, 300.2)
    assert controller.phase() is Phase.BACKOFF
    controller.settle(world, 310)
    assert len(controller.recorded) == 2
    assert len(controller.triggers) == 1


def test_a_backoff_that_ends_while_a_group_settles_restarts_nothing() -> None:
    controller = Controller(policy(backoff=Backoff(initial=timedelta(seconds=3))))
    world = recovered_once(controller, job())
    lost = world.with_pod(2, dead_since=at(300), dead_because="its node is gone").node_deleted("gpu-2")
    controller.reconcile(lost, 300.2)
    assert controller.ledger.next_attempt_at == at(303.2)
    plan = controller.reconcile(world, 303.3)
    assert (controller.incident.reason, plan.requeue_at) == (Reason.MEMBERS_RUN_AGAIN, at(305.2))
    assert controller.ledger.next_attempt_at is None, "no restart is announced"
    controller.settle(world, 305.2)
    assert (len(controller.recorded), len(controller.triggers)) == (2, 1)


def test_a_loss_within_an_open_incident_waits_as_well() -> None:
    """This is the second attempt of one incident: the new group ran, and lost a member before all ranks were Ready."""
    controller = Controller(WAITS)
    world = job().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_started(4)
    controller.reconcile(world, 4.5)
    world = world.pod_deleted(1, 10)
    controller.reconcile(world, 10.2)
    assert (controller.phase(), len(controller.triggers)) == (Phase.BACKOFF, 1)
    world = world.came_back(1, 12, 14).controller_restarted()
    controller.reconcile(world.all_ready(15), 20)
    assert controller.phase() is Phase.BACKOFF, "the others hang, Ready or not"
    controller.reconcile(world.all_ready(15), 70.3)
    assert (len(controller.triggers), len(controller.incident.attempts)) == (2, 2)


def test_a_loss_within_an_open_incident_that_fixes_itself_ends_as_recovered() -> None:
    controller = Controller(WAITS)
    world = job(restart_policy="OnFailure").pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_started(4)
    controller.reconcile(world, 4.5)
    controller.reconcile(world.container_exited(1, 1, 10), 10.2)
    assert controller.phase() is Phase.BACKOFF
    for rank in range(4):
        world = world.container_restarted(rank, 1, 12)
    controller.settle(world, 14)
    controller.reconcile(world, 71)
    assert controller.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert len(controller.triggers) == 1


def test_someone_who_deletes_the_job_meanwhile_has_restarted_the_group() -> None:
    controller = Controller(WAITS)
    world = job().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_started(4)
    controller.reconcile(world, 4.5)
    controller.reconcile(world.pod_deleted(1, 10), 10.2)
    world = world.recreated(20)
    controller.reconcile(world, 21)
    assert (controller.phase(), controller.incident.step.type) == (Phase.SCHEDULING, StepType.RETURNING)
    controller.settle(world.all_ready(25), 71)
    assert len(controller.triggers) == 1


def test_what_took_too_long_to_start_has_waited_already() -> None:
    controller = Controller(policy(backoff=BACKOFF, start_seconds=60))
    world = job().pod_deleted(3, 0)
    controller.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_scheduled()
    controller.reconcile(world, 5)
    controller.reconcile(world, 70)
    assert len(controller.triggers) == 2
    assert controller.incident.message.endswith("and the group has already had its time to start")
