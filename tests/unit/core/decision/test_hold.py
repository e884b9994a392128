"""A group is Held when its budget is exhausted, and how the Hold ends."""

import pytest

from recovery.core.incident.lifecycle import MAX_ATTEMPTS
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from recovery.core.policy.resolved import Policy
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at


def recover(controller: Controller, world: World, seconds: float) -> World:
    """A whole recovery from the loss of rank 3, 20 seconds long. Returns the group that runs again."""
    lost = world.pod_deleted(3, seconds)
    controller.reconcile(lost, seconds + 0.5)
    back = lost.recreated(seconds + 10).all_ready(seconds + 19)
    controller.settle(back, seconds + 20)
    assert controller.phase() is Phase.HEALTHY
    return back


def one_in(window_seconds: float) -> Policy:
    return policy(limit=1, window_seconds=window_seconds)


def test_the_budget_counts_down_and_is_charged_once_an_incident() -> None:
    controller = Controller(policy(limit=2))
    world = recover(controller, training(), 0)
    assert controller.ledger.budget.charges == (at(0.5),)
    assert controller.ledger.budget.remaining == 1
    recover(controller, world, 100)
    assert controller.ledger.budget.remaining == 0
    assert controller.ledger.totals.charged == 2


def test_an_exhausted_budget_holds_and_says_so() -> None:
    controller = Controller(one_in(3600))
    world = recover(controller, training(), 0).pod_failed(2, 137, 100)
    plan = controller.reconcile(world, 101)
    assert plan.message == (
        "pod train-node-0-2-20 (rank 2, node gpu-2) failed with exit code 137; held, because the budget of "
        "policy default is exhausted (limit 1 within 1h)"
    )
    assert plan.requeue_at == at(3600.5)
    assert controller.phase() is Phase.HELD
    assert len(controller.triggers) == 1
    assert not controller.incident.charged
    assert controller.events[-1] == "Held"


@pytest.mark.parametrize(
    ("seconds", "words"), [(86_400, "24h"), (5_400, "90m"), (7_200, "2h"), (90, "90s"), (3_601, "3601s"), (60, "1m")]
)
def test_the_window_is_said_as_a_policy_writes_it(seconds: float, words: str) -> None:
    controller = Controller(policy(limit=0, window_seconds=seconds))
    assert controller.reconcile(training().pod_deleted(3, 0), 1).message.endswith(f"(limit 0 within {words})")


def test_a_limit_of_none_holds_for_good() -> None:
    controller = Controller(policy(limit=0))
    plan = controller.reconcile(training().pod_deleted(3, 0), 1)
    assert controller.phase() is Phase.HELD
    assert plan.requeue_at is None


def test_the_next_window_leaves_the_hold() -> None:
    controller = Controller(one_in(3600))
    world = recover(controller, training(), 0).pod_failed(2, 137, 100)
    controller.reconcile(world, 101)
    controller.reconcile(world, 3600.4)
    assert controller.phase() is Phase.HELD
    plan = controller.reconcile(world, 3600.5)
    assert len(controller.triggers) == 2
    assert controller.phase() is Phase.DECIDED
    assert "(0 of 1 recoveries left)" in plan.message
    assert controller.ledger.budget.charges == (at(3600.5),)


def test_a_charge_made_by_a_clock_that_has_jumped_back_still_counts() -> None:
    controller = Controller(one_in(3600))
    world = recover(controller, training(), 0).pod_failed(2, 137, -500).although("ended-before-begun")
    controller.reconcile(world, -499)
    assert controller.phase() is Phase.HELD


def test_the_group_running_whole_leaves_the_hold() -> None:
    controller = Controller(policy(limit=0))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.settle(world.all_came_back(30, 40), 41)
    (incident,) = controller.recorded
    assert incident.closing is not None
    assert (incident.closing.outcome, incident.closing.outcome_reason) == (Outcome.HELD, "RunsWholeAgain")
    assert controller.events == ["MemberLost", "Held", "IncidentHeld"]


@pytest.mark.parametrize("in_place", [False, True], ids=["another-pod", "restarted-in-place"])
def test_a_group_whose_lost_rank_runs_again_stays_held_while_the_others_hang(in_place: bool) -> None:
    controller = Controller(policy(limit=0))
    world = training(16, restart_policy="OnFailure").container_exited(3, 1, 0)
    controller.reconcile(world, 1)
    world = world.container_back(3, 2) if in_place else world.pod_deleted(3, 1).came_back(3, 2, 3)
    plan = controller.settle(world, 600)
    assert controller.phase() is Phase.HELD
    assert controller.ledger.standing is Standing.BROKEN
    assert controller.ledger.idle_gpus == 16 * 8
    assert plan.requeue_at is None, "no time ends it"


@pytest.mark.parametrize("restarted", [False, True], ids=["by the same controller", "by one that has just started"])
def test_the_budget_window_restarts_such_a_group(restarted: bool) -> None:
    controller = Controller(one_in(3600))
    world = recover(controller, training(), 0).pod_deleted(2, 100)
    controller.reconcile(world, 101)
    world = world.came_back(2, 105, 110)
    controller.settle(world, 200)
    assert (controller.phase(), len(controller.triggers)) == (Phase.HELD, 1)
    controller.settle(world.controller_restarted() if restarted else world, 3601)
    assert len(controller.triggers) == 2


@pytest.mark.parametrize("verb", ["retry", "restart", "reset-budget"])
def test_retry_restart_and_reset_budget_restart_a_held_group_whose_ranks_run_again(verb: str) -> None:
    controller = Controller(policy(limit=1))
    world = recover(controller, training(), 0).pod_deleted(2, 100)
    controller.reconcile(world, 101)
    world = world.came_back(2, 105, 110)
    controller.settle(world, 200)
    asked = world.asked(f"recovery.trainjob.dev/{verb}", at(210).isoformat())
    controller.settle(asked, 210)
    controller.settle(asked, 211)
    assert {trigger.uid for trigger in controller.triggers} == {"job-1", "job-2"}


def all_restarted(world: World, seconds: float) -> World:
    """All processes exit and begin again in place."""
    for index in range(world.job.parallelism):
        world = world.container_restarted(index, 1, seconds)
    return world


def test_a_held_group_that_runs_whole_at_once_is_held_for_a_moment() -> None:
    """Ready pods are not trusted at once."""
    controller = Controller(policy(limit=0))
    world = training(restart_policy="OnFailure").container_exited(3, 1, 0)
    controller.reconcile(world, 1)
    world = all_restarted(world.container_back(3, 1), 2)
    assert controller.reconcile(world, 3.5).requeue_at == at(6)
    assert controller.phase() is Phase.HELD
    controller.settle(world, 6)
    assert controller.phase() is Phase.HEALTHY


def test_it_waits_for_whichever_comes_first() -> None:
    controller = Controller(one_in(3600))
    world = recover(controller, training(restart_policy="OnFailure"), 0).container_exited(2, 1, 100)
    assert controller.reconcile(world, 101).requeue_at == at(3600.5)
    world = all_restarted(world.container_back(2, 101), 102)
    assert controller.reconcile(world, 103.5).requeue_at == at(106)


def test_after_an_attempt_too_such_a_group_is_held_for_a_moment() -> None:
    controller = Controller(policy(limit=1))
    world = training(restart_policy="OnFailure").pod_deleted(3, 0)
    controller.reconcile(world, 1)
    back = world.recreated(10).all_ready(20).container_exited(1, 1, 21)
    controller.reconcile(back, 23)
    back = all_restarted(back.container_back(1, 23), 24)
    assert controller.reconcile(back, 25.5).requeue_at == at(28)
    assert controller.phase() is Phase.HELD
    controller.settle(back, 28)
    assert controller.phase() is Phase.HEALTHY


def test_a_preemption_before_the_new_group_ran_does_not_make_the_next_attempt_free_of_charge() -> None:
    """The Job replaced the preempted pod, and all ranks met. The group is held for the crash after that."""
    controller = Controller(policy(limit=1))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    starting = world.recreated(10).all_scheduled(11).evicted(2, 12, reason="PreemptionByScheduler")
    controller.reconcile(starting, 13)
    whole = starting.pod_gone(2, 14).replaced(2, 14).all_scheduled(15).all_ready(20)
    crashed = whole.pod_failed(1, 137, 21)
    for seconds in (23, 23.1, 23.2):
        controller.reconcile(crashed, seconds)
    assert controller.phase() is Phase.HELD
    assert len(controller.triggers) == 1


def test_more_losses_while_held_are_noted() -> None:
    controller = Controller(policy(limit=0))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.reconcile(world.pod_failed(1, 134, 20), 21)
    assert len(controller.incident.evidence) == 2
    assert controller.phase() is Phase.HELD
    assert controller.ledger.totals.incidents == 1


def test_native_policies_go_on_while_held() -> None:
    controller = Controller(policy(limit=0))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    controller.settle(world.jobset_failed(5), 6)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome is Outcome.FAILED


# --- held after attempts that failed -------------------------------------------------------------------------------


def exhausted(limit: int = 2, window_seconds: float = 3600) -> tuple[Controller, World]:
    """A group that loses rank 1 after each restart, until no attempt is left."""
    controller = Controller(policy(limit=limit, window_seconds=window_seconds))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 1)
    seconds = 10.0
    for _ in range(min(limit, MAX_ATTEMPTS)):
        world = world.recreated(seconds).all_started(seconds + 5).pod_deleted(1, seconds + 8)
        controller.reconcile(world, seconds + 9)
        seconds += 20
    return controller, world


def test_an_incident_makes_no_more_attempts_than_the_budget_allows() -> None:
    controller, _ = exhausted(limit=2)
    assert controller.phase() is Phase.HELD
    assert len(controller.triggers) == 2
    assert controller.ledger.totals.charged == 1
    assert controller.incident.message == (
        "pod train-node-0-1-30 (rank 1, node gpu-1) was deleted; held, because 2 attempts of this incident "
        "have failed and the budget of policy default (limit 2 within 1h) allows no more"
    )


def test_a_large_budget_gives_one_incident_no_more_attempts_than_it_remembers() -> None:
    controller, _ = exhausted(limit=MAX_ATTEMPTS + 5)
    assert controller.phase() is Phase.HELD
    assert len(controller.triggers) == MAX_ATTEMPTS
    assert controller.incident.message.endswith(
        "20 attempts of this incident have failed, and no incident gets more within 1h, even if the budget of "
        "policy default (limit 25 within 1h) is not exhausted"
    )


def test_the_window_lets_the_next_attempt_through() -> None:
    controller, world = exhausted(limit=2, window_seconds=3600)
    said = controller.incident.message
    waiting = controller.reconcile(world, 100)
    assert waiting.requeue_at == at(3601)
    assert controller.incident.message == said
    plan = controller.reconcile(world, 3601)
    assert len(controller.triggers) == 3
    assert controller.phase() is Phase.DECIDED
    assert plan.reason is Reason.BUDGET_WINDOW_PASSED
    assert controller.ledger.totals.charged == 1


def test_losses_after_the_hold_are_no_attempts() -> None:
    controller, world = exhausted(limit=1)
    before = controller.incident.attempts
    controller.reconcile(world.pod_failed(2, 134, 60), 61)
    assert controller.incident.attempts == before
    assert controller.incident.reason is Reason.ATTEMPTS_EXHAUSTED
    assert controller.incident.evidence[-1].startswith("pod train-node-0-2-20")


def test_the_group_running_whole_leaves_that_hold_as_well() -> None:
    controller, world = exhausted(limit=1)
    controller.settle(world.all_came_back(40, 50), 60)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.outcome is Outcome.HELD


def test_no_limit_is_large_enough_for_attempts_without_end() -> None:
    controller, _ = exhausted(limit=25)
    assert controller.phase() is Phase.HELD
    assert len(controller.triggers) == 20
    assert all(attempt.action is AttemptAction.RECREATE_GROUP for attempt in controller.incident.attempts)
