"""A finishing group that has lost a member is left alone for `timeouts.finish`, and then Held."""

import pytest

from recovery.core.model.annotations import RESTART_ANNOTATION, RETRY_ANNOTATION
from recovery.core.model.facts import ContainerFacts, ExitFacts
from recovery.core.model.ledger import Ledger, Outcome, Phase
from recovery.core.model.protection import ProtectionReason
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import OnExhausted
from tests.unit.core.decision.test_deleted_jobs import vanished, without_old_pods
from tests.unit.core.decision.test_protection import found as protection_of
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.pods import GPUS_PER_POD
from tests.unit.core.world import World, at

LOST_AT = 100.0
DUE_AT = LOST_AT + 600
"""`timeouts.finish` is 10 minutes by default."""
ASKED = '{"at": "2026-11-21T12:12:00Z", "by": "ops", "reason": "rank 1 ended too early"}'


def one_done() -> World:
    """Rank 1 ended with exit code 0 long ago. The other ranks still train, or hang."""
    return training(4).succeeded(1)


def lost() -> World:
    return one_done().pod_failed(3, 1, LOST_AT)


def held() -> Controller:
    controller = Controller()
    controller.reconcile(lost(), LOST_AT + 1)
    controller.reconcile(lost(), DUE_AT)
    return controller


def test_a_success_alone_is_never_overdue() -> None:
    controller = Controller()
    plan = controller.reconcile(one_done(), 1_000_000)
    assert (plan.reason, plan.requeue_at, controller.ledger) == (Reason.NO_FAILURE, None, Ledger())


def test_until_then_nothing_is_written_and_the_group_is_seen_again_in_time() -> None:
    controller = Controller()
    for seconds in (LOST_AT + 1, DUE_AT - 1):
        plan = controller.reconcile(lost(), seconds)
        assert (plan.reason, plan.requeue_at) == (Reason.JOB_FINISHING, at(DUE_AT))
        assert controller.ledger == Ledger()


def test_an_overdue_finish_holds_the_group_and_restarts_nothing() -> None:
    controller = held()
    assert (controller.ledger.phase, controller.incident.step.verdict) == (Phase.HELD, Reason.FINISH_OVERDUE)
    assert (controller.triggers, controller.incident.charged) == ([], False)
    controller.settle(lost(), DUE_AT + 60)
    assert controller.ledger.phase is Phase.HELD, "that it is finishing does not end this incident"
    assert controller.recorded == []


def test_its_condition_says_who_is_done_and_for_how_long_it_was_waited() -> None:
    (condition,) = (each for each in held().ledger.conditions if each.type == "FinishOverdue")
    assert (condition.status, condition.reason) == ("True", "FinishOverdue")
    assert "pod train-node-0-1-10 has Succeeded" in condition.message
    assert "10m" in condition.message


def test_the_wait_is_booked_as_that_of_a_group_that_hangs() -> None:
    spans = {span.phase: span for span in held().incident.phases}
    assert spans[Phase.DECIDED].started_at == at(LOST_AT)
    assert spans[Phase.DECIDED].idle_gpu_seconds == 600 * 4 * GPUS_PER_POD
    assert Phase.DETECTED not in spans or spans[Phase.DETECTED].idle_gpu_seconds == 0


@pytest.mark.parametrize("on_exhausted", OnExhausted)
def test_what_the_policy_does_when_the_budget_is_exhausted_is_not_done(on_exhausted: OnExhausted) -> None:
    controller = Controller(policy(on_exhausted=on_exhausted, may_fail_jobs=True))
    controller.reconcile(lost(), DUE_AT)
    assert controller.ledger.phase is Phase.HELD
    assert controller.workload_actions == []


def test_a_group_that_finishes_after_all_ends_the_incident() -> None:
    controller = held()
    controller.settle(lost().jobset_completed(), DUE_AT + 60)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert incident.closing.outcome is Outcome.SUPERSEDED


def test_a_person_may_have_it_restarted() -> None:
    for annotation in (RETRY_ANNOTATION, RESTART_ANNOTATION):
        controller = held()
        controller.settle(lost().asked(annotation, ASKED), DUE_AT + 30)
        assert len(controller.triggers) == 1, annotation
        assert controller.ledger.phase is not Phase.HELD


def test_a_loss_that_an_incident_has_left_to_the_finishing_group_counts_from_then_on() -> None:
    controller = Controller(policy(limit=0))
    controller.reconcile(training(4).pod_failed(3, 1, LOST_AT), LOST_AT + 1)
    controller.settle(lost(), LOST_AT + 100)
    (closed,) = controller.recorded
    assert closed.closing is not None
    assert closed.closing.outcome_reason is Reason.JOB_FINISHING
    plan = controller.settle(lost(), LOST_AT + 101)
    assert plan.requeue_at == at(DUE_AT)
    controller.settle(lost(), DUE_AT)
    assert controller.incident.step.verdict is Reason.FINISH_OVERDUE
    assert controller.incident.started_at == closed.closing.ended_at, "no second is booked twice"
    assert controller.incident.lost_at == at(LOST_AT), "who had met whom does not depend on that"


def test_a_loss_from_long_before_the_first_rank_was_done_counts_from_then_on() -> None:
    """Seed 413: the ranks are independent, so they train on for half an hour after one of them is lost."""
    controller, done_at = observing(), LOST_AT + 2000
    before = training(4).pod_failed(3, 1, LOST_AT)
    controller.settle(before, LOST_AT + 1)
    exited = ContainerFacts("node", exit=ExitFacts(0, started_at=at(-3590), finished_at=at(done_at)))
    world = before.with_pod(1, phase="Succeeded", ready=False, containers=(exited,))
    controller.settle(world, done_at + 1)
    plan = controller.settle(world, done_at + 2)
    assert (controller.ledger.incident, plan.requeue_at) == (None, at(done_at + 600))
    controller.settle(world, done_at + 600)
    assert controller.incident.reason is Reason.FINISH_OVERDUE


def test_a_loss_after_which_the_group_has_run_whole_is_none_that_a_finishing_group_waits_for() -> None:
    """The failed pods still exist, and the Job has replaced all of them."""
    controller = observing()
    failed = training(2).pod_failed(0, 1, LOST_AT).pod_failed(1, 1, LOST_AT)
    controller.settle(failed, LOST_AT + 1)
    back = failed.came_back(0, 110, 120).came_back(1, 110, 120)
    controller.settle(back, 140)
    assert controller.ledger.incident is None
    plan = controller.reconcile(back.succeeded(0), 100_000)
    assert (plan.reason, controller.ledger.incident) == (Reason.NO_FAILURE, None)


def test_the_deletion_of_a_job_is_none_that_its_successor_waits_for() -> None:
    """The successor finds all steps done. Its ranks exit at once, and other containers keep the pods."""
    controller = Controller()
    gone = vanished(training(), LOST_AT)
    controller.reconcile(gone, LOST_AT + 1)
    again = without_old_pods(gone).job_created(LOST_AT + 2).pods_created(LOST_AT + 2).all_started(LOST_AT + 3)
    done = ContainerFacts("node", exit=ExitFacts(0, started_at=at(LOST_AT + 3), finished_at=at(LOST_AT + 4)))
    shipper = ContainerFacts("log-shipper", ready=True, running_since=at(LOST_AT + 3))
    for rank in range(4):
        again = again.with_pod(rank, containers=(done,)).with_other(rank, shipper)
    controller.settle(again, LOST_AT + 13)
    (closed,) = controller.recorded
    assert closed.closing is not None
    assert closed.closing.outcome_reason is Reason.JOB_FINISHING
    plan = controller.settle(again, LOST_AT + 14)
    assert (plan.reason, plan.requeue_at, controller.ledger.incident) == (Reason.NO_FAILURE, None, None)


def test_observe_says_that_enforce_would_hold() -> None:
    controller = observing()
    controller.reconcile(lost(), LOST_AT + 1)
    controller.settle(lost(), DUE_AT)
    assert (controller.incident.would, controller.incident.reason) == ("Hold", Reason.FINISH_OVERDUE)


def test_a_job_whose_finish_is_overdue_does_not_count_as_finishing() -> None:
    assert protection_of(lost(), policy()).reason is ProtectionReason.FINISHING
    assert protection_of(lost(), policy(), held().ledger).reason is ProtectionReason.HELD


# --- other containers ----------------------------------------------------------------------------------------------


def failed_by_another_container(world: World, index: int) -> World:
    """The pod has failed, but its training container had ended with exit code 0."""
    trained = ContainerFacts("node", exit=ExitFacts(0, started_at=at(-100), finished_at=at(50)))
    other = ContainerFacts("log-shipper", exit=ExitFacts(1, finished_at=at(LOST_AT)))
    return world.with_pod(index, containers=(trained,), phase="Failed", ready=False).with_other(index, other)


def test_a_group_that_has_trained_is_not_restarted_for_its_other_containers() -> None:
    world = failed_by_another_container(failed_by_another_container(training(2), 0), 1)
    replaced = world.replaced(1, LOST_AT + 5).started(1, LOST_AT + 10)
    controller = Controller()
    for seconds, seen in (
        (LOST_AT + 1, world),
        (LOST_AT + 11, replaced),
        (LOST_AT + 30, replaced.pod_failed(1, 1, LOST_AT + 20)),
    ):
        controller.settle(seen, seconds)
        assert controller.triggers == []


def test_pods_that_exited_0_because_they_were_asked_to_go_have_not_trained_to_their_end() -> None:
    """A trainer may handle SIGTERM, write a checkpoint and exit 0."""
    world = training(2)
    for index in range(2):
        exited = failed_by_another_container(world.evicted(index, 40), index)
        world = exited.with_pod(index, deleting_since=exited.pod(index).deleting_since)
    controller = Controller()
    controller.settle(world, LOST_AT + 1)
    assert len(controller.triggers) == 1
