"""`backoff.minInterval`: no restart comes sooner than that after the end of the one before. Facts in, plan out."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from recovery.core.incident import requests
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.plan.actions import SuspendWorkload
from recovery.core.policy.resolved import Backoff
from tests.unit.core.decision.withheld import OWNERS, job, shipped
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

INTERVAL = timedelta(minutes=5)
WAITS = policy(backoff=Backoff(initial=timedelta(), min_interval=INTERVAL))


def recovered(one: Controller, world: World, *, since: float = 0) -> World:
    """Rank 3 was lost, and all ranks have met again four seconds later."""
    world = world.pod_deleted(3, since)
    one.reconcile(world, since + 0.2)
    assert one.ledger.incident is not None
    world = world.job_deleted(since + 0.3).all_deleted(since + 0.4).recreated(since + 2).all_ready(since + 4)
    one.settle(world, since + 4.5)
    assert one.ledger.incident is None
    return world


def suspended_until(one: Controller) -> list[object]:
    return [action.resume_at for action in one.done if isinstance(action, SuspendWorkload)]


def test_the_first_restart_does_not_wait() -> None:
    one = Controller(WAITS)
    one.reconcile(training().pod_deleted(3, 0), 0.2)
    assert (len(one.triggers), suspended_until(one)) == (1, [])


def test_the_next_one_waits_from_when_all_ranks_had_met_and_not_from_the_loss() -> None:
    one = Controller(WAITS)
    world = recovered(one, training())
    one.reconcile(world.pod_deleted(2, 100), 100.2)
    assert suspended_until(one) == [at(304.5)]
    assert one.ledger.next_attempt_at == at(304.5)


def test_a_restart_after_the_min_interval_has_no_delay() -> None:
    one = Controller(WAITS)
    world = recovered(one, training())
    one.reconcile(world.pod_deleted(2, 310), 310.2)
    assert (len(one.triggers), suspended_until(one)) == (2, [])


@pytest.mark.parametrize(("initial", "until"), [(10, 304.5), (250, 350.2)])
def test_the_longer_of_the_two_delays_counts(initial: float, until: float) -> None:
    backoff = Backoff(initial=timedelta(seconds=initial), longest=timedelta(hours=1), min_interval=INTERVAL)
    one = Controller(policy(backoff=backoff))
    world = recovered(one, training())
    one.reconcile(world.pod_deleted(2, 100), 100.2)
    assert suspended_until(one) == [at(until)]


def test_a_restart_by_the_platform_counts_although_it_did_not_wait() -> None:
    one = Controller(WAITS)
    policy_ = FailurePolicyFacts(max_restarts=5)
    world = training(failure_policy=policy_).job_failing("BackoffLimitExceeded", 0, finally_=True).restarted_by_jobset()
    one.reconcile(world, 1)
    assert one.incident.attempts[-1].action is AttemptAction.ADOPTED
    world = world.job_deleted(1.1).recreated(3).all_ready(5)
    one.settle(world, 6)
    assert one.ledger.incident is None
    lost = world.with_jobset(failure_policy=None).pod_deleted(2, 100)
    one.reconcile(lost, 100.2)
    assert suspended_until(one) == [at(306)]


def test_a_restart_that_is_given_up_has_ended_when_it_is() -> None:
    one = Controller(WAITS)
    world = training().pod_deleted(3, 0)
    one.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).all_scheduled(2)
    one.reconcile(world, 3)
    one.reconcile(world, 910)
    assert (len(one.triggers), suspended_until(one)) == (2, [at(1210)])


def test_an_incident_without_a_restart_ends_none() -> None:
    one = Controller(policy(backoff=WAITS.backoff, rules=()))
    world = recovered(one, training())
    first = one.ledger.restart_ended_at
    failing = world.pod_deleted(2, 310).success_criteria_met(310)
    one.settle(failing, 310.2)
    assert one.ledger.restart_ended_at == first


# --- where the job may not be suspended -----------------------------------------------------------------------------


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS)
def test_where_the_job_may_not_be_suspended_the_restart_itself_waits(owner: Callable[[World], World]) -> None:
    one = Controller(WAITS)
    world = recovered(one, owner(training(backoff_limit=50))).pod_deleted(2, 100)
    one.reconcile(world, 100.2)
    assert (one.phase(), one.ledger.next_attempt_at, len(one.triggers)) == (Phase.BACKOFF, at(304.5), 1)
    one.reconcile(world, 304)
    assert len(one.triggers) == 1
    one.reconcile(world, 304.6)
    assert (len(one.triggers), suspended_until(one)) == (2, [])


def test_a_restart_that_would_fail_the_job_if_it_waited_comes_at_once() -> None:
    """Eight ranks of a shipped runtime time out while they wait, and six retries do not survive that."""
    one = Controller(WAITS)
    world = recovered(one, shipped(8)).pod_deleted(2, 100)
    one.reconcile(world, 100.2)
    assert len(one.triggers) == 2


def test_after_a_timeout_it_waits_as_well_and_a_group_that_meets_meanwhile_is_not_restarted() -> None:
    one = Controller(WAITS)
    world = job().pod_deleted(3, 0)
    one.reconcile(world, 0.2)
    world = world.job_deleted(0.3).all_deleted(0.4).recreated(2).with_job(backoff_limit=50).all_scheduled(2)
    one.reconcile(world, 3)
    one.reconcile(world, 910)
    assert (one.phase(), one.ledger.next_attempt_at, len(one.triggers)) == (Phase.BACKOFF, at(1210), 1)
    one.settle(world.all_ready(1000), 1001)
    assert one.recorded[-1].closing.outcome is Outcome.RECOVERED  # type: ignore[union-attr]
    assert len(one.triggers) == 1


# --- a person ---------------------------------------------------------------------------------------------------------


def asked(world: World, verb: Verb, seconds: float) -> World:
    return world.asked(requests.ANNOTATIONS[verb], requests.encode(Request(at(seconds), reason="now", by="anna")))


def test_a_restart_by_hand_does_not_wait_and_counts() -> None:
    one = Controller(WAITS)
    world = asked(recovered(one, training()), Verb.RESTART, 100)
    one.reconcile(world, 100.2)
    assert (len(one.triggers), suspended_until(one)) == (2, [])
    world = world.job_deleted(100.3).all_deleted(100.4).recreated(102).all_ready(104)
    one.settle(world, 104.5)
    one.reconcile(world.pod_deleted(2, 310), 310.2)
    assert suspended_until(one) == [at(404.5)]


def test_a_retry_ends_the_wait() -> None:
    one = Controller(WAITS)
    world = recovered(one, job()).pod_deleted(2, 100)
    one.reconcile(world, 100.2)
    assert len(one.triggers) == 1
    one.reconcile(asked(world, Verb.RETRY, 110), 110.2)
    assert len(one.triggers) == 2


def test_a_clock_that_jumped_back_does_not_make_it_wait_for_longer() -> None:
    one = Controller(WAITS)
    world = recovered(one, training())
    one.reconcile(world.pod_deleted(2, 100), -3000)
    assert suspended_until(one) == [at(-2700)]


def test_none_is_the_default() -> None:
    one = Controller(policy())
    world = recovered(one, training())
    one.reconcile(world.pod_deleted(2, 10), 10.2)
    assert (len(one.triggers), suspended_until(one)) == (2, [])
