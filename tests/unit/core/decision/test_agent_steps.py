"""Steps that agents report, where they are missing, late, wrong, or not those of every rank."""

import msgspec

from recovery.core.model.agent_facts import AgentRendezvous, AgentSteps
from recovery.core.model.ledger import Phase
from tests.unit.core.agents import injected, with_agent
from tests.unit.core.decision.test_agent_rendezvous import FIRST, allows, back, closing, lost, steps
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.core.world import at


def test_a_program_in_which_not_every_rank_makes_steps_is_not_waited_for() -> None:
    controller, world = Controller(allows()), lost(steps=AgentSteps(0, 1200, at(-3000), first=0, absolute=True))
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(with_agent(joined, steps=AgentSteps(0, 100, at(3), first=0, absolute=True)), 3)
    [incident] = controller.recorded
    assert incident.training_steps is None


def test_an_optimizer_that_begins_again_is_not_waited_for() -> None:
    """Only the weights were restored, or there was no checkpoint: its steps cannot be compared with those before."""
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(with_agent(joined, steps=steps(1, 4.0, first=0)), 4.2)
    [incident] = controller.recorded
    assert incident.training_steps is not None
    assert incident.training_steps.lost is None


def test_a_report_that_comes_late_dates_the_step_that_was_passed() -> None:
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(with_agent(joined, steps=steps(1001, 2.5, first=1000)), 3)
    controller.settle(with_agent(joined, received_at=at(602), steps=steps(2201, 602, first=1000)), 603)
    assert closing(controller.recorded[0]).ended_at == at(102)


def test_a_report_of_every_second_does_not_write_the_ledger_as_often() -> None:
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(joined, 3)
    writes = 0
    for number in range(200):
        seconds, before = 4 + number / 2, controller.ledger
        found = with_agent(joined, received_at=at(seconds), steps=steps(100, seconds, first=1 + number % 2))
        controller.reconcile(found, seconds)
        writes += controller.ledger != before
    assert writes <= 2


def test_a_link_that_is_lost_after_the_processes_run_again_restarts_nothing() -> None:
    """Who has joined is not known then. The agents have started all processes in time."""
    controller, world = Controller(allows()), lost(injected(training()))
    controller.reconcile(world, 0.2)
    prepares = back(world, 1.2, None)
    controller.settle(prepares, 2)
    for seconds in (100, 200):
        flaps = with_agent(prepares, received_at=at(seconds), missing=(2,), missing_count=1)
        controller.settle(flaps, seconds + 0.5)
    assert controller.triggers == []
    met = (FIRST, AgentRendezvous(2, at(205), at(206)))
    joined = with_agent(prepares, received_at=at(210), rendezvous=met)
    controller.settle(joined, 210.5)
    assert controller.phase() is Phase.RESUMING


def test_a_new_leader_without_a_report_goes_on_waiting_for_the_step() -> None:
    controller, world = Controller(allows()), lost(injected(training()))
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(joined, 3)
    successor = Controller(controller.policy, controller.ledger)
    successor.settle(msgspec.structs.replace(joined, agent=None), 700)
    assert (successor.phase(), successor.recorded) == (Phase.RESUMING, [])
    successor.settle(with_agent(joined, received_at=at(710), steps=steps(1201, 705, first=1000)), 710.5)
    [incident] = successor.recorded
    assert (closing(incident).source, closing(incident).verified) == ("agent", True)


def test_steps_that_no_training_makes_end_no_reconcile() -> None:
    """They are the largest that the endpoint takes in."""
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    absurd = AgentSteps(2**53, 2**53, at(9), first=1, absolute=True, step_seconds=30 * 86400.0)
    controller.settle(with_agent(joined, steps=absurd), 9.2)
    assert closing(controller.recorded[0]).ended_at == at(2)
