"""A Job whose pods were deleted before the ranks ever met waits out its back-off. Facts in, plan out."""

import pytest

from recovery.core.diagnosis.job_backoff import waiting
from recovery.core.diagnosis.not_started import Hindrance, not_started
from recovery.core.model.ledger import Outcome, Phase
from recovery.core.model.rules import Rule, RuleAction, When
from recovery.core.policy.spec import Mode, Restart
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import group
from tests.unit.core.world import World, at

RANKS = 16


def deleted(ranks: int = RANKS, *, of: int = RANKS, since: float = 0, world: World | None = None) -> World:
    """Pending pods of a new group were deleted, and their Job creates none for now."""
    world = group(of, born=-10) if world is None else world
    for index in range(ranks):
        world = world.pod_deleted(index, since).pod_gone(index, since)
    return world.with_job(failed=ranks)


@pytest.mark.parametrize(
    ("lost", "seconds"), [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 600), (16, 600)]
)
def test_the_back_off_doubles_with_each_pod_up_to_ten_minutes(lost: int, seconds: float) -> None:
    world = deleted(lost)
    found = waiting(world.snapshot(), world.job)
    assert found is not None
    assert (found.since, found.until, found.lost) == (at(0), at(seconds), lost)


def test_with_a_limit_per_index_each_index_has_a_back_off_of_its_own() -> None:
    world = deleted(16).with_job(backoff_limit_per_index=10)
    found = waiting(world.snapshot(), world.job)
    assert found is not None
    assert found.until == at(10)


@pytest.mark.parametrize("what", ["suspended", "failing", "replaced", "forgotten"])
def test_a_job_that_is_not_to_create_pods_waits_for_nothing(what: str) -> None:
    world = deleted(4, of=4)
    match what:
        case "suspended":
            world = world.suspended()
        case "failing":
            world = world.job_failing("BackoffLimitExceeded", 1)
        case "replaced":
            for index in range(4):
                world = world.replaced(index, 80)
        case "forgotten":
            world = world.controller_restarted()
    assert waiting(world.snapshot(), world.job) is None


def test_of_pods_that_are_gone_unseen_the_status_of_the_job_dates_the_last_one() -> None:
    """A command, or a controller that was started since, sees no pod."""
    world = deleted().controller_restarted().with_job(status_written_at=at(1))
    found = waiting(world.snapshot(), world.job)
    assert found is not None
    assert (found.until, found.lost) == (at(601), 16)


def test_a_job_that_has_waited_long_enough_is_left_to_create_its_pods() -> None:
    one = Controller()
    one.reconcile(deleted(), 601)
    assert one.triggers == []


def test_the_status_says_until_when_the_job_waits() -> None:
    found = not_started(deleted().snapshot())
    assert found is not None
    assert (found.hindrance, found.cause) == (Hindrance.JOB_BACK_OFF, "Job train-node-0: BackOff")
    assert found.words == (
        "Job train-node-0 waits out its back-off until 2026-11-21T12:10:00Z, because 16 of its pods failed or were "
        "deleted"
    )


def test_in_enforce_the_job_is_created_again_after_a_minute() -> None:
    one = Controller()
    plan = one.reconcile(deleted(), 1)
    assert (one.ledger.incident, plan.requeue_at) == (None, at(60))
    assert "waits out its back-off until" in plan.message
    one.reconcile(deleted(), 60)
    assert (len(one.triggers), one.incident.attempts[-1].reason, one.phase()) == (1, one.incident.reason, Phase.DECIDED)
    world = deleted().job_deleted(61).recreated(63)
    one.reconcile(world.all_scheduled(63), 64)
    one.settle(world.all_ready(66), 67)
    assert one.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert one.ledger.totals.charged == 1


def test_each_further_time_it_waits_twice_as_long() -> None:
    one = Controller()
    one.reconcile(deleted(), 60)
    world = deleted().job_deleted(61).recreated(63)
    one.reconcile(world, 64)
    for times, due in enumerate((220, 560), 1):
        lost = due - 60 * 2**times
        world = deleted(world=world, since=lost)
        assert one.reconcile(world, lost + 1).requeue_at is not None
        one.reconcile(world, due - 1)
        assert len(one.triggers) == times
        one.reconcile(world, due)
        assert len(one.triggers) == times + 1
        world = world.job_deleted(due + 1).recreated(due + 3)
        one.reconcile(world, due + 4)


@pytest.mark.parametrize(
    "why", ["observe", "none", "ignored", "pods refused", "paused", "budget", "short", "own failure"]
)
def test_it_is_left_alone(why: str) -> None:
    world, one = deleted(), Controller()
    match why:
        case "observe":
            one = Controller(policy(Mode.OBSERVE))
        case "none":
            one = Controller(policy(restart=Restart.NONE))
        case "ignored":
            one = Controller(policy(rules=(Rule("any", RuleAction.IGNORE, When()),)))
        case "pods refused":
            world = world.with_job(failed_create="exceeded quota")
        case "paused":
            world = world.paused()
        case "budget":
            one = Controller(policy(limit=0))
        case "short":
            world = deleted(3)
        case "own failure":
            world = group(RANKS, born=-10).started(0, -5).pod_failed(0, 1, -1)
            world = deleted(world=world)
    one.reconcile(world, 61)
    one.reconcile(world, 300)
    assert (one.ledger.incident, one.triggers) == (None, [])
