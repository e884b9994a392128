"""A process ends and its container goes on: reports of agents in, restarts in place or of the group out."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.decision.agent_answer import answer_of
from recovery.core.model.agent_facts import AgentAnswer, AgentOrder, AgentState, EndedEpoch, RestartedBy
from recovery.core.model.ledger import AttemptAction, Closing, Incident, Outcome, Phase
from recovery.core.model.native_policy_facts import PodFailureRule
from recovery.core.model.reason import Reason
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.policy.resolved import InPlace, Policy
from recovery.core.policy.spec import Mode, OnExhausted, Restart
from tests.unit.core.agents import BARRIER, again, asking, ended, reported, running, with_agent
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

ALLOWED = InPlace(enabled=True)


def allows(in_place: InPlace = ALLOWED, **settings: object) -> Policy:
    """A policy that enables restarts in place."""
    made: Policy = policy(**settings)  # type: ignore[arg-type]
    return msgspec.structs.replace(made, in_place=in_place)


def answer(controller: Controller, world: World, seconds: float) -> AgentAnswer:
    assert not isinstance(controller.policy, Exception)
    return answer_of(world.snapshot(), controller.ledger, controller.policy, at(seconds))


def closing(incident: Incident) -> Closing:
    assert incident.closing is not None, "a recorded incident is closed"
    return incident.closing


def told(controller: Controller, world: World, seconds: float) -> AgentOrder | None:
    """What the agents are told to do about the epoch that they ask about."""
    action = answer(controller, world, seconds).action
    return action.do if action is not None else None


def driven(controller: Controller, world: World, seconds: float) -> None:
    """Reconciles until nothing is due any more at that time."""
    for _ in range(10):
        plan = controller.settle(world, seconds)
        if plan.requeue_at is None or plan.requeue_at > at(seconds):
            return
    raise AssertionError("the group is reconciled without end")


def deleted(controller: Controller) -> list[str]:
    """UIDs of the Jobs that the controller has deleted."""
    return [each.uid for each in controller.triggers]


def test_a_killed_process_is_restarted_in_place_once_and_charged_once() -> None:
    controller, world = Controller(allows()), training()
    lost = asking(world, 0)
    controller.reconcile(lost, 0.2)
    assert controller.triggers == []
    assert [each.action for each in controller.incident.attempts] == [AttemptAction.RESTART_IN_PLACE]
    assert told(controller, lost, 0.3) is AgentOrder.RESTART
    stopping = again(lost, AgentState.STOPPING, 0.5)
    controller.reconcile(stopping, 0.6)
    assert controller.phase() is Phase.STOPPING
    controller.reconcile(again(stopping, AgentState.STARTING, 1.0, epoch=2, epoch_since=1.0), 1.1)
    assert controller.phase() is Phase.STARTING
    back = running(lost, 1.5, [ended(1, 0, by=RestartedBy.ANSWER)], epoch=2)
    controller.settle(back, 1.7)
    [incident] = controller.recorded
    assert (closing(incident).outcome, incident.restarts, incident.charged) == (Outcome.RECOVERED, 1, True)
    assert closing(incident).source == "agent"
    assert (incident.started_at, closing(incident).ended_at) == (at(0), at(1.7))
    assert controller.ledger.totals.charged == 1


def test_the_ledger_has_the_restart_before_the_agents_are_told() -> None:
    controller, lost = Controller(allows()), asking(training(), 0)
    controller.reconcile(lost, 0.2)
    assert controller.incident.target.epoch == f"{BARRIER}/1"
    # A repeat of the same report is answered from the ledger, by any leader.
    successor = Controller(controller.policy, controller.ledger)
    successor.reconcile(lost, 5)
    assert successor.ledger.totals.restarts == 1
    assert told(successor, lost, 5) is AgentOrder.RESTART


@pytest.mark.parametrize(
    "wrong",
    [
        {"in_place": InPlace(enabled=False)},
        {"mode": Mode.OBSERVE},
        {"global_pause": "an upgrade"},
        {"restart": Restart.NONE},
        {"limit": 0},
    ],
    ids=lambda each: next(iter(each)),
)
def test_nothing_is_permitted_where_the_policy_does_not_enforce_restarts_in_place(wrong: dict[str, object]) -> None:
    controller = Controller(allows(**wrong))  # type: ignore[arg-type]
    world = reported(training(), AgentState.RUNNING, 0)
    assert answer(controller, world, 1) == AgentAnswer()


def test_a_paused_job_is_permitted_nothing() -> None:
    world = reported(training().paused(), AgentState.RUNNING, 0)
    assert answer(Controller(allows()), world, 1) == AgentAnswer()


@pytest.mark.parametrize("natively", [{"backoff_limit": 0}, {"rules": (PodFailureRule("FailJob"),)}])
def test_a_job_whose_own_policies_read_exit_codes_is_permitted_nothing(natively: dict[str, object]) -> None:
    world = reported(training(**natively), AgentState.RUNNING, 0)  # type: ignore[arg-type]
    assert answer(Controller(allows()), world, 1) == AgentAnswer()


def test_a_training_group_is_permitted_three_restarts_alone() -> None:
    world = reported(training(), AgentState.RUNNING, 0)
    assert answer(Controller(allows()), world, 1) == AgentAnswer(permitted=True, alone=3)


def test_restarts_alone_are_bounded_by_the_budget() -> None:
    world = reported(training(), AgentState.RUNNING, 0)
    assert answer(Controller(allows(limit=1)), world, 1).alone == 1


def test_restarts_alone_while_no_controller_answers_are_incidents_of_their_own_and_charged() -> None:
    controller = Controller(allows())
    ends = [ended(1, 0, by=RestartedBy.ALONE), ended(2, 30, by=RestartedBy.ALONE)]
    world = running(training(), 31, ends, epoch=3)
    driven(controller, world, 60)
    assert [each.started_at for each in controller.recorded] == [at(0), at(30)]
    assert [each.charged for each in controller.recorded] == [True, True]
    assert [closing(each).outcome for each in controller.recorded] == [Outcome.RECOVERED] * 2
    assert [each.attempts[0].reason for each in controller.recorded] == [Reason.RESTARTED_ALONE] * 2
    assert controller.ledger.totals.restarts == 2
    driven(controller, running(training(), 31, ends, epoch=3), 90)
    assert len(controller.recorded) == 2, "the same report again is no news"


def test_no_restart_alone_is_permitted_until_the_ledger_has_those_that_were_made() -> None:
    controller = Controller(allows())
    world = running(training(), 1, [ended(1, 0, by=RestartedBy.ALONE)], epoch=2)
    assert answer(controller, world, 1).alone == 0
    driven(controller, world, 2)
    assert answer(controller, world, 3).alone == 2, "two are left of three in a row"


def test_the_fourth_failure_in_a_row_recreates_the_group() -> None:
    controller, world = Controller(allows()), training()
    ends: list[EndedEpoch] = []
    for number in (1, 2, 3):
        now = 100.0 * number
        controller.reconcile(asking(world, now, *ends, epoch=number), now + 0.2)
        ends.append(ended(number, now, by=RestartedBy.ANSWER))
        controller.settle(running(world, now + 1, ends, epoch=number + 1), now + 2)
    assert controller.triggers == []
    lost = asking(world, 400, *ends, epoch=4)
    controller.reconcile(lost, 400.2)
    assert deleted(controller) == ["job-1"]
    assert {each.reason for each in controller.incident.considered} == {Reason.IN_PLACE_IN_A_ROW}
    assert told(controller, lost, 400.3) is None, "the agents wait for the end of their pods"


def test_the_same_error_again_recreates_the_group() -> None:
    controller, world = Controller(allows()), training()
    error: dict[str, object] = {"code": 1, "message": "RuntimeError: CUDA out of memory"}
    controller.reconcile(asking(world, 0, **error), 0.2)  # type: ignore[arg-type]
    ends = [ended(1, 0, by=RestartedBy.ANSWER, **error)]  # type: ignore[arg-type]
    controller.settle(running(world, 1, ends, epoch=2), 2)
    controller.reconcile(asking(world, 1000, *ends, epoch=2, **error), 1000.2)
    assert deleted(controller) == ["job-1"]
    assert {each.reason for each in controller.incident.considered} == {Reason.SAME_ERROR_IN_PLACE}


def test_a_failure_after_all_ranks_ran_again_is_an_incident_of_its_own() -> None:
    """The report that they ran was lost, or came together with this one."""
    controller, world = Controller(allows()), training()
    controller.reconcile(asking(world, 0), 0.2)
    ends = (ended(1, 0, by=RestartedBy.ANSWER), ended(2, 3, slot=1))
    lost = reported(world, AgentState.ASKING, 3.1, *ends, epoch=2, epoch_since=1.5)
    driven(controller, lost, 3.2)
    assert [closing(each).outcome for each in controller.recorded] == [Outcome.RECOVERED]
    assert controller.triggers == []
    assert told(controller, lost, 3.3) is AgentOrder.RESTART


def test_a_second_failure_in_one_incident_recreates_the_group_without_another_charge() -> None:
    controller, world = Controller(allows()), training()
    controller.reconcile(asking(world, 0), 0.2)
    later = reported(
        world,
        AgentState.ASKING,
        3,
        ended(1, 0, by=RestartedBy.ANSWER),
        ended(2, 2.9, slot=1, ran=False),
        epoch=2,
        epoch_since=2,
    )
    controller.reconcile(later, 3.2)
    assert deleted(controller) == ["job-1"]
    assert [each.action for each in controller.incident.attempts] == [
        AttemptAction.RESTART_IN_PLACE,
        AttemptAction.RECREATE_GROUP,
    ]
    assert controller.ledger.totals.charged == 1


def test_a_group_that_is_not_back_in_time_is_recreated() -> None:
    controller, world = Controller(allows()), training()
    lost = asking(world, 0)
    controller.reconcile(lost, 0.2)
    stopping = again(lost, AgentState.STOPPING, 50, since=1)
    controller.reconcile(stopping, 59)
    assert controller.triggers == []
    controller.reconcile(stopping, 60.3)
    assert controller.triggers == [], "the latest report is older than the deadline, and later ones may be lost"
    controller.reconcile(again(stopping, AgentState.STOPPING, 75, since=1), 75.1)
    assert deleted(controller) == ["job-1"]
    assert controller.incident.attempts[-1].reason is Reason.IN_PLACE_TIMEOUT


def test_a_process_that_the_kernel_does_not_end_makes_the_group_be_recreated_at_once() -> None:
    controller, world = Controller(allows()), training()
    lost = asking(world, 0)
    controller.reconcile(lost, 0.2)
    gave_up = again(lost, AgentState.EXITING, 12, stuck=(2,))
    controller.reconcile(gave_up, 12.1)
    assert deleted(controller) == ["job-1"]


def test_a_new_leader_without_a_report_waits_and_takes_no_pod_for_a_process() -> None:
    controller, world = Controller(allows()), training()
    lost = asking(world, 0)
    controller.reconcile(lost, 0.2)
    successor = Controller(controller.policy, controller.ledger)
    silent = msgspec.structs.replace(lost, agent=None)
    successor.reconcile(silent, 20)
    successor.reconcile(silent, 120)
    assert (successor.triggers, successor.recorded) == ([], [])
    back = running(lost, 1.5, [ended(1, 0, by=RestartedBy.ANSWER)], epoch=2)
    successor.settle(back, 130)
    [incident] = successor.recorded
    assert (closing(incident).outcome, closing(incident).ended_at) == (Outcome.RECOVERED, at(2.5))


@pytest.mark.parametrize("lost_too", [lambda world: world.pod_deleted(2, 0), lambda world: world.pod_failed(1, 1, 0)])
def test_a_lost_pod_recreates_the_group(lost_too: object) -> None:
    controller = Controller(allows())
    world = asking(lost_too(training()), 0)  # type: ignore[operator]
    controller.reconcile(world, 1)
    assert deleted(controller) == ["job-1"]


@pytest.mark.parametrize("changes", [{"missing": (2,), "missing_count": 1}, {"slots": 8}])
def test_agents_that_are_not_all_there_recreate_the_group(changes: dict[str, object]) -> None:
    world = asking(training(), 0)
    world = with_agent(world, **changes)
    controller = Controller(allows())
    controller.reconcile(world, 0.2)
    assert deleted(controller) == ["job-1"]


def test_a_rule_reads_the_exit_code_of_the_process() -> None:
    rule = Rule("typo", RuleAction.IGNORE, When(on_exit_codes=ExitCodes(Operator.IN, (42,))))
    controller = Controller(allows(rules=(rule,)))
    world = asking(training(), 0, code=42)
    controller.reconcile(world, 0.2)
    assert told(controller, world, 0.3) is None, "late evidence may still change the verdict"
    controller.reconcile(world, 3)
    assert controller.triggers == []
    assert controller.incident.attempts[-1].reason is Reason.RULE_IGNORE
    assert answer(controller, world, 3) == AgentAnswer(), "the agents end as torchrun does"


def test_a_rule_that_says_recreate_group_recreates_it() -> None:
    rule = Rule("always", RuleAction.RECREATE_GROUP, When(on_exit_codes=ExitCodes(Operator.IN, (42,))))
    controller = Controller(allows(rules=(rule,)))
    controller.reconcile(asking(training(), 0, code=42), 0.2)
    assert deleted(controller) == ["job-1"]


def test_a_rule_that_says_restart_in_place_does_so_where_the_default_does_nothing() -> None:
    rule = Rule("in-place", RuleAction.RESTART_IN_PLACE, When(on_exit_codes=ExitCodes(Operator.IN, (42,))))
    controller = Controller(allows(rules=(rule,), restart=Restart.NONE))
    world = asking(training(), 0, code=42)
    controller.reconcile(world, 0.2)
    assert told(controller, world, 0.3) is AgentOrder.RESTART


def test_agents_of_a_held_group_do_what_torchrun_does() -> None:
    controller, world = Controller(allows(limit=1, on_exhausted=OnExhausted.HOLD)), training()
    controller.reconcile(asking(world, 0), 0.2)
    ends = [ended(1, 0, by=RestartedBy.ANSWER)]
    controller.settle(running(world, 1, ends, epoch=2), 2)
    lost = asking(world, 100, *ends, epoch=2)
    controller.reconcile(lost, 100.2)
    assert controller.phase() is Phase.HELD
    assert answer(controller, lost, 100.3) == AgentAnswer()


def test_a_process_that_ends_before_all_ranks_ran_is_left_to_the_platform() -> None:
    world = training().with_pod(1, containers=(), ready=False, phase="Pending")
    world = msgspec.structs.replace(world, trained_at={}, trained_members={})
    controller = Controller(allows())
    lost = asking(world.although("trained"), 0)
    controller.reconcile(lost, 0.2)
    assert controller.ledger.incident is None
    assert told(controller, lost, 0.3) is AgentOrder.EXIT


def test_the_report_of_a_replaced_pod_says_nothing() -> None:
    lost = asking(training(), 0)
    replaced = with_agent(lost, pod_uid="another")
    controller = Controller(allows())
    controller.reconcile(replaced, 0.2)
    assert controller.ledger.incident is None


def test_a_ledger_that_knows_an_ended_epoch_keeps_later_ones_apart_after_the_agent_of_slot_0_was_restarted() -> None:
    """The next barrier counts its epochs from 1 again, and has an id of its own."""
    controller, world = Controller(allows()), training()
    controller.reconcile(asking(world, 0), 0.2)
    controller.settle(running(world, 1, [ended(1, 0, by=RestartedBy.ANSWER)], epoch=2), 2)
    later = with_agent(asking(world, 2000), barrier="00000000000000b2")
    controller.reconcile(later, 2000.2)
    assert controller.incident.number == 2
    assert told(controller, later, 2000.3) is AgentOrder.RESTART


def test_the_timeout_is_the_policys() -> None:
    in_place = msgspec.structs.replace(ALLOWED, timeout=timedelta(seconds=20))
    world = reported(training(), AgentState.RUNNING, 0)
    assert answer(Controller(allows(in_place)), world, 1).in_place_seconds == 20
