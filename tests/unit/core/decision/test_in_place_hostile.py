"""What goes wrong between reports, and what a report that lies may cost."""

import msgspec
import pytest

from recovery.core.incident.requests import Verb
from recovery.core.model.agent_facts import AgentOrder, AgentState, RestartedBy
from recovery.core.model.ledger import AttemptAction, Outcome
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from tests.unit.core.agents import asking, ended, reported, running, with_agent
from tests.unit.core.decision.test_in_place import allows, answer, closing, driven, told
from tests.unit.core.decision.test_manual import asks
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training

IGNORED = Rule("left-alone", RuleAction.IGNORE, When(on_exit_codes=ExitCodes(Operator.IN, (42,))))


def test_a_restart_alone_is_charged_once_although_another_incident_ends_before_the_next_report() -> None:
    """The next leader has no report yet. A container restarts, and a rule leaves that alone."""
    controller, world = Controller(allows(rules=(IGNORED,))), training(4, restart_policy="OnFailure")
    ends = [ended(1, 0, by=RestartedBy.ALONE)]
    driven(controller, running(world, 1.5, ends, epoch=2), 2)
    assert controller.ledger.totals.charged == 1
    successor = Controller(controller.policy, controller.ledger)
    hurt = world.container_restarted(1, 42, 100)
    for now in (101.5, 103.0, 104.0, 110.0):
        successor.settle(hurt, now)
    assert [closing(each).outcome for each in successor.recorded] == [Outcome.OBSERVED], "it has ended"
    driven(successor, reported(hurt, AgentState.RUNNING, 130, *ends, epoch=2, epoch_since=1.5), 130.2)
    assert successor.ledger.totals.charged == 1
    assert len(successor.recorded) == 1


def test_a_restart_in_place_is_one_incident_although_it_ends_without_a_report() -> None:
    controller, world = Controller(allows()), training()
    lost = asking(world, 0)
    controller.reconcile(lost, 0.2)
    silent = msgspec.structs.replace(lost, agent=None)
    for now in (20.0, 601.0, 602.0):
        controller.settle(silent, now)
    assert len(controller.recorded) == 1
    ends = [ended(1, 0, by=RestartedBy.ANSWER)]
    driven(controller, reported(world, AgentState.RUNNING, 640, *ends, epoch=2, epoch_since=1.5), 640.2)
    driven(controller, reported(world, AgentState.RUNNING, 670, *ends, epoch=2, epoch_since=1.5), 670.2)
    assert len(controller.recorded) == 1


@pytest.mark.parametrize("verb", [Verb.RESET_BUDGET, Verb.RETRY])
def test_a_persons_request_in_the_same_moment_sends_no_agent_home(verb: Verb) -> None:
    """The reconcile that answers the request has not judged the end of the process, and the next one restarts."""
    controller = Controller(allows())
    lost = asks(asking(training(), 0), verb, 0.1)
    controller.settle(lost, 0.2)
    assert told(controller, lost, 0.2) is not AgentOrder.EXIT
    controller.settle(lost, 0.3)
    assert controller.incident.attempts[-1].action is AttemptAction.RESTART_IN_PLACE


def test_a_failure_while_the_incident_before_is_put_away_sends_no_agent_home() -> None:
    controller, world = Controller(allows()), training()
    controller.reconcile(asking(world, 0), 0.2)
    earlier = ended(1, 0, by=RestartedBy.ANSWER)
    controller.reconcile(running(world, 1.5, [earlier], epoch=2), 1.7)
    assert controller.incident.closing is not None
    lost = reported(world, AgentState.ASKING, 1.8, earlier, ended(2, 1.75), epoch=2, epoch_since=1.5)
    controller.reconcile(lost, 1.9)
    assert controller.ledger.incident is None, "this reconcile has put the incident away, and judged nothing"
    assert answer(controller, lost, 1.9).permitted
    assert told(controller, lost, 1.9) is None
    controller.reconcile(lost, 2.0)
    assert told(controller, lost, 2.0) is AgentOrder.RESTART


def test_a_failure_after_a_restart_alone_that_was_not_heard_of_is_restarted_in_place_too() -> None:
    """Half a minute lies between both. Had a controller been there, they would be two incidents."""
    controller, world = Controller(allows()), training()
    ends = (ended(1, 0, by=RestartedBy.ALONE), ended(2, 30))
    lost = reported(world, AgentState.ASKING, 30.1, *ends, epoch=2, epoch_since=1.5)
    driven(controller, lost, 30.2)
    assert controller.triggers == []
    assert told(controller, lost, 30.3) is AgentOrder.RESTART


def test_reports_that_name_ever_new_barriers_are_no_more_restarts_than_can_have_been_permitted() -> None:
    """A tenant's agent may send two such reports a second. Each incident is written three times, has two Events, and
    counts in the totals of the fleet."""
    controller, world = Controller(allows()), training()
    for number in range(4):
        now = 10 + number * 0.6
        ends = [ended(epoch, now - 1 + epoch / 1000, by=RestartedBy.ALONE) for epoch in range(1, 17)]
        lie = reported(world, AgentState.RUNNING, now, *ends, epoch=17, epoch_since=now - 0.5)
        for _ in range(60):
            plan = controller.settle(with_agent(lie, barrier=f"{number:016x}"), now + 0.2)
            if plan.requeue_at is None:
                break
    permitted_alone = 3
    assert controller.ledger.totals.restarts == permitted_alone
    # One more incident is open, and takes in what else is reported until it has lasted for some seconds.
    assert controller.ledger.totals.incidents == permitted_alone + 1
