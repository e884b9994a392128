"""A group that others restart again and again: nothing can hold them back, so a condition says what would stop them."""

from datetime import timedelta

import pytest

from recovery.core.diagnosis.group_conditions import CRASH_LOOP
from recovery.core.incident import requests
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.ledger import Outcome
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.native_policy_facts import FailurePolicyFacts, FailurePolicyRule
from recovery.core.model.reason import Reason
from recovery.core.model.rules import RuleAction
from recovery.core.policy.spec import Mode
from tests.unit.core.decision.test_verdicts import on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

UNLIMITED = FailurePolicyFacts(
    max_restarts=2,
    rules=(FailurePolicyRule("again", "RestartJobSetAndIgnoreMaxRestarts", ("PodFailurePolicy",)),),
)
MINUTES = 60.0


class Looping:
    """A job whose JobSet restarts it after each crash, once every `every` seconds."""

    def __init__(self, controller: Controller, failure_policy: FailurePolicyFacts = UNLIMITED) -> None:
        self.controller = controller
        self.world = training(failure_policy=failure_policy)
        self.now = 0.0

    def crashes(self, times: int, *, every: float = 5 * MINUTES, code: int = 1) -> "Looping":
        for _ in range(times):
            now = self.now
            lost = self.world.pod_failed(3, code, now).job_failing("PodFailurePolicy", now, finally_=True)
            self.controller.reconcile(lost, now + 0.5)
            going = lost.restarted_by_jobset().job_deleted(now + 1)
            self.controller.reconcile(going, now + 1.5)
            self.world = going.recreated(now + 10).all_ready(now + 30)
            self.controller.settle(self.world, now + 31)
            self.now += every
        return self

    def seen(self, world: World | None = None, seconds: float | None = None) -> None:
        """The group as it is, or changed, some time after its last restart."""
        self.controller.reconcile(world or self.world, self.now if seconds is None else seconds)


def condition(controller: Controller) -> LedgerCondition | None:
    return next((each for each in controller.ledger.conditions if each.type == CRASH_LOOP), None)


def loops(controller: Controller) -> bool:
    found = condition(controller)
    return found is not None and found.status == "True"


def test_restarts_by_the_jobset_beyond_the_budget_are_a_crash_loop() -> None:
    """Lint case 84: a NotIn rule fails the Job for each crash, and the JobSet restarts it without a limit."""
    controller = Controller(policy(limit=2))
    looping = Looping(controller).crashes(2)
    assert condition(controller) is None
    looping.crashes(5)
    assert [each.closing.outcome for each in controller.recorded if each.closing] == [Outcome.RECOVERED] * 7
    assert controller.ledger.budget.charges == ()
    found = condition(controller)
    assert found is not None
    assert (found.status, found.reason) == ("True", Reason.CRASH_LOOP)


def test_it_is_seen_while_the_incident_is_open() -> None:
    """The group may never meet, and then no incident ends."""
    controller = Controller(policy(limit=2))
    world = training(failure_policy=UNLIMITED)
    for number in range(3):
        now = 20.0 * number
        lost = world.pod_failed(3, 1, now).job_failing("PodFailurePolicy", now, finally_=True)
        controller.reconcile(lost, now + 0.5)
        going = lost.restarted_by_jobset().job_deleted(now + 1)
        controller.reconcile(going, now + 1.5)
        world = going.recreated(now + 5).all_started(now + 10)
        controller.reconcile(world, now + 10.5)
    assert controller.ledger.incident is not None
    assert controller.ledger.totals.incidents == 1
    assert loops(controller)


def test_what_the_ledger_keeps_of_them_is_bounded() -> None:
    controller = Controller(policy(limit=2))
    Looping(controller).crashes(12)
    assert len(controller.ledger.budget.adopted) == 3


def test_restarts_of_ours_count_as_well() -> None:
    """One by the controller, which is charged, and two by the JobSet."""
    controller = Controller(policy(limit=2))
    looping = Looping(controller, FailurePolicyFacts(max_restarts=50)).crashes(2)
    world = looping.world.pod_deleted(3, looping.now)
    controller.reconcile(world, looping.now + 0.5)
    assert len(controller.triggers) == len(controller.ledger.budget.charges) == 1
    assert loops(controller)


def test_restarts_of_ours_alone_are_none_because_the_budget_refuses_them() -> None:
    controller = Controller(policy(limit=1))
    world = training()
    for number in range(2):
        lost = world.pod_deleted(3, 300.0 * number)
        controller.reconcile(lost, 300.0 * number + 0.5)
        world = lost.job_deleted(300.0 * number + 1).recreated(300.0 * number + 5).all_ready(300.0 * number + 20)
        if number == 0:
            controller.settle(world, 21)
    assert controller.ledger.budget.remaining == 0
    assert condition(controller) is None


@pytest.mark.parametrize(("limit", "times"), [(0, 1), (1, 1)])
def test_a_single_restart_is_no_loop(limit: int, times: int) -> None:
    controller = Controller(policy(limit=limit))
    Looping(controller).crashes(times)
    assert condition(controller) is None


def test_it_is_one_in_mode_observe_too() -> None:
    controller = Controller(policy(Mode.OBSERVE, limit=2))
    Looping(controller).crashes(3)
    assert loops(controller)


def test_one_at_a_time_within_the_window_is_none() -> None:
    controller = Controller(policy(limit=2, window_seconds=600))
    Looping(controller).crashes(6, every=400)
    assert condition(controller) is None


def test_it_ends_when_the_restarts_have_left_the_window() -> None:
    controller = Controller(policy(limit=2, window_seconds=1200))
    looping = Looping(controller).crashes(3)
    plan = controller.plan(looping.world, 900)
    assert plan.requeue_at == at(1201.5)
    looping.seen(seconds=1201)
    assert loops(controller)
    looping.seen(seconds=1201.5)
    assert not loops(controller)


def test_a_reset_of_the_budget_ends_it() -> None:
    controller = Controller(policy(limit=2))
    looping = Looping(controller).crashes(4)
    asked = requests.encode(Request(at(looping.now)))
    looping.seen(looping.world.asked(requests.ANNOTATIONS[Verb.RESET_BUDGET], asked))
    looping.seen(seconds=looping.now + 1)
    assert not loops(controller)


def test_a_user_who_suspends_the_job_has_stopped_it() -> None:
    controller = Controller(policy(limit=2))
    looping = Looping(controller).crashes(4)
    looping.seen(looping.world.suspended())
    assert not loops(controller)


def test_a_jobset_that_has_failed_is_in_no_loop() -> None:
    controller = Controller(policy(limit=2))
    looping = Looping(controller).crashes(4)
    looping.seen(looping.world.jobset_failed(looping.now))
    assert not loops(controller)


def test_losses_that_a_rule_declares_free_are_no_loop() -> None:
    controller = Controller(policy(limit=2, rules=(on_exit(42, RuleAction.RECREATE_GROUP, charge=False),)))
    Looping(controller).crashes(4, code=42)
    assert condition(controller) is None


def test_deletions_of_the_job_by_another_client_are_no_crash_loop() -> None:
    controller = Controller(policy(limit=2))
    world = training()
    for number in range(4):
        now = 300.0 * number
        going = world.job_deleted(now)
        controller.reconcile(going, now + 0.5)
        world = going.recreated(now + 5).all_ready(now + 20)
        controller.settle(world, now + 21)
    assert len(controller.recorded) == 4
    assert condition(controller) is None


def test_another_limit_of_the_policy_counts_between_incidents() -> None:
    controller = Controller(policy(limit=2))
    looping = Looping(controller).crashes(3)
    controller.policy = policy(limit=10)
    looping.seen(seconds=looping.now + timedelta(minutes=1).total_seconds())
    assert not loops(controller)
