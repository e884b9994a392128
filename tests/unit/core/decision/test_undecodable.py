"""While an object of the group cannot be read, nothing is done about it, and the message says so. Then all goes on."""

from collections.abc import Callable

import msgspec
import pytest

from recovery.core.incident import requests
from recovery.core.incident.requests import Request, Verb
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import CountIncidents, RecordIncident
from recovery.core.policy.spec import Mode
from tests.unit.core.driver import Controller, observing, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

PROBLEM = "Expected `str`, got `int` - at `$.status.phase`"
SENTENCE = f"Pod ml/train-node-0-0 cannot be read: {PROBLEM}"
WORDS = f"{SENTENCE}; nothing is done about this job until that is corrected or deleted"


def unreadable(world: World, kind: str = "Pod") -> World:
    return world.unreadable(kind=kind, problem=PROBLEM)


def condition(ledger: Ledger) -> LedgerCondition | None:
    return next((each for each in ledger.conditions if each.type == "Undecodable"), None)


def history() -> Controller:
    """A group with one recovery in its history."""
    controller = Controller()
    world = training().pod_failed(3, 137, 0)
    controller.reconcile(world, 1)
    controller.settle(world.recreated(10).all_ready(20), 21)
    assert controller.ledger.incident is None
    controller.done.clear()
    return controller


LOSSES: dict[str, Callable[[World], World]] = {
    "a pod fails": lambda world: world.pod_failed(3, 137, 0),
    "a pod is deleted": lambda world: world.pod_deleted(3, 0),
    "a pod vanishes": lambda world: world.pod_gone(3, 0),
    "a container exits": lambda world: world.with_job(pod_restart_policy="OnFailure").container_exited(3, 1, 0),
    "the JobSet fails": lambda world: world.jobset_failed(0),
}


class TestBeforeAnIncident:
    @pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet", "TrainJob"])
    @pytest.mark.parametrize("loss", list(LOSSES))
    def test_none_is_opened(self, loss: str, kind: str) -> None:
        controller = Controller()
        plan = controller.reconcile(unreadable(LOSSES[loss](training()), kind), 1)
        assert (plan.actions, plan.ledger) == ((), Ledger()), "and no ledger is made for it"
        assert plan.message == WORDS.replace("Pod", kind)

    def test_none_is_opened_under_observe(self) -> None:
        controller = observing()
        controller.reconcile(unreadable(training().pod_failed(3, 137, 0)), 1)
        assert controller.ledger == Ledger()

    def test_no_live_reading_is_asked_for_by_a_cache_that_knows(self) -> None:
        controller = Controller()
        controller.reconcile(unreadable(training().pod_failed(3, 137, 0)), 1)
        assert controller.live_reads == 0

    def test_a_live_reading_that_finds_one_restrains_too(self) -> None:
        controller = Controller()
        world = training().pod_failed(3, 137, 0)
        plan = controller.plan_on(world.snapshot(), unreadable(world).snapshot(live=True), 1)
        assert (plan.actions, plan.ledger, plan.message) == ((), Ledger(), WORDS)

    def test_what_was_lost_meanwhile_is_dealt_with_when_all_can_be_read(self) -> None:
        controller = Controller()
        world = training().pod_failed(3, 137, 0)
        controller.reconcile(unreadable(world), 1)
        controller.reconcile(world, 600)
        assert [each.uid for each in controller.triggers] == ["job-1"]

    def test_several_are_counted(self) -> None:
        world = unreadable(training()).unreadable("b").unreadable("c")
        assert Controller().reconcile(world, 1).message.startswith(f"{SENTENCE} (and 2 more); nothing is done")

    def test_a_workload_that_cannot_be_read_is_not_gone(self) -> None:
        world = unreadable(msgspec.structs.replace(training(), workload=None), "TrainJob")
        assert Controller().plan(world, 1).message == WORDS.replace("Pod", "TrainJob")


class TestInAnIncident:
    def test_nothing_is_written_to_the_workload_and_the_incident_stays_as_it_is(self) -> None:
        controller = Controller()
        world = training().pod_failed(3, 137, 0)
        controller.reconcile(world, 1)
        before, done = controller.incident, list(controller.workload_actions)
        for seconds, step in ((2, world), (3, world.job_deleted(2)), (900, world.job_deleted(2))):
            plan = controller.reconcile(unreadable(step), seconds)
            assert plan.message == WORDS
        assert controller.incident == before
        assert controller.workload_actions == done

    def test_it_goes_on_afterwards(self) -> None:
        controller = Controller()
        world = training().pod_failed(3, 137, 0)
        controller.reconcile(world, 1)
        world = world.job_deleted(2)
        controller.reconcile(unreadable(world), 3)
        world = world.all_deleted(4).recreated(10)
        controller.reconcile(unreadable(world), 11)
        controller.settle(world.all_ready(20), 21)
        assert [each.closing.outcome for each in controller.recorded if each.closing] == ["Recovered"]
        assert (len(controller.triggers), controller.ledger.totals.restarts) == (1, 1)

    def test_having_stood_aside_is_not_forgotten(self) -> None:
        """The open incident holds the reason that shows it."""
        controller = Controller()
        world = training(backoff_limit=0).pod_failed(3, 1, 0)
        controller.reconcile(world, 1)
        assert controller.incident.reason is Reason.BACKOFF_LIMIT_ZERO
        controller.reconcile(unreadable(world), 2)
        controller.reconcile(world, 3)
        assert controller.workload_actions == []
        assert controller.incident.reason is Reason.BACKOFF_LIMIT_ZERO

    def test_one_that_is_closed_is_recorded(self) -> None:
        controller = Controller()
        world = training().pod_failed(3, 137, 0)
        controller.reconcile(world, 1)
        recreated = world.recreated(10).all_ready(20)
        controller.reconcile(recreated, 21)
        assert controller.incident.closing is not None
        plan = controller.reconcile(unreadable(recreated), 22)
        assert [type(each) for each in plan.first] == [RecordIncident, CountIncidents]
        assert controller.ledger.incident is None


class TestCondition:
    def test_it_says_which_object_and_which_field_while_an_incident_is_open(self) -> None:
        controller = Controller()
        world = training().pod_failed(3, 137, 0)
        controller.reconcile(world, 1)
        assert condition(controller.ledger) is None
        controller.reconcile(unreadable(world), 2)
        assert condition(controller.ledger) == LedgerCondition("Undecodable", "True", "PodUndecodable", SENTENCE, at(2))
        controller.reconcile(unreadable(world).unreadable("b", kind="Job"), 3)
        found = condition(controller.ledger)
        assert found is not None
        assert (found.message, found.last_transition_time) == (f"{SENTENCE}; Job ml/b cannot be read: no", at(2))
        controller.reconcile(world, 4)
        found = condition(controller.ledger)
        assert found is not None
        assert (found.status, found.last_transition_time) == ("False", at(4))

    def test_an_unreadable_object_between_incidents_is_a_condition_of_an_existing_ledger(self) -> None:
        controller = history()
        world = training().recreated(10).all_ready(20)
        controller.reconcile(unreadable(world), 30)
        found = condition(controller.ledger)
        assert found is not None
        assert (found.status, found.message) == ("True", SENTENCE)
        written = controller.ledger
        assert controller.reconcile(unreadable(world), 31).ledger == written, "the same again changes nothing"
        controller.reconcile(world, 40)
        found = condition(controller.ledger)
        assert found is not None
        assert (found.status, found.last_transition_time) == ("False", at(40))
        written = controller.ledger
        assert controller.reconcile(world, 41).ledger == written
        assert controller.done == []

    def test_of_many_the_first_are_told(self) -> None:
        controller = history()
        world = training().recreated(10).all_ready(20)
        for number in range(50):
            world = world.unreadable(f"pod-{number}")
        controller.reconcile(world, 30)
        found = condition(controller.ledger)
        assert found is not None
        assert found.message.count("cannot be read") == 3


class TestRequests:
    @pytest.mark.parametrize("verb", [Verb.RESTART, Verb.RETRY])
    def test_a_person_is_told_why_nothing_is_done(self, verb: Verb) -> None:
        for controller in (Controller(), Controller(policy(Mode.OBSERVE))):
            world = training().asked(requests.ANNOTATIONS[verb], requests.encode(Request(at(0), force=True)))
            controller.reconcile(unreadable(world), 1)
            (told,) = controller.ledger.requests
            assert (told.accepted, told.message) == (False, WORDS)
            assert controller.workload_actions == []

    def test_a_budget_is_reset(self) -> None:
        controller = history()
        assert controller.ledger.budget.charges
        world = training().recreated(10).all_ready(20)
        asked = world.asked(requests.ANNOTATIONS[Verb.RESET_BUDGET], requests.encode(Request(at(30))))
        controller.reconcile(unreadable(asked), 31)
        assert controller.ledger.budget.charges == ()
        assert controller.phase() is Phase.HEALTHY
