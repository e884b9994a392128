"""Agents that report when the ranks join, and the steps: what ends Rendezvous, what ends Resuming, and the figures."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.model.agent_facts import AgentRendezvous, AgentState, AgentSteps, EndedEpoch, RestartedBy
from recovery.core.model.ledger import Closing, Incident, Ledger, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.core.model.training_steps import TrainingStep, TrainingSteps
from recovery.core.policy.resolved import InPlace, Policy
from recovery.core.policy.spec import Mode
from tests.unit.core.agents import again, asking, ended, injected, reported, running, with_agent
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

FIRST = AgentRendezvous(1, at(-3500), at(-3499))


def allows(**settings: object) -> Policy:
    made: Policy = policy(**settings)  # type: ignore[arg-type]
    return msgspec.structs.replace(made, in_place=InPlace(enabled=True))


def steps(lowest: int, seconds: float, *, first: int | None = None, absolute: bool = True) -> AgentSteps:
    return AgentSteps(lowest, lowest, at(seconds), first=first, absolute=absolute, step_seconds=0.5)


def lost(world: World | None = None, **facts: object) -> World:
    """A process ended at 0 in the middle of step 1200, and the agents ask what to do."""
    found = asking(training() if world is None else world, 0)
    return with_agent(found, meets=True, rendezvous=(FIRST,), **{"steps": steps(1200, -0.2), **facts})


def stopping(world: World, seconds: float) -> World:
    return again(world, AgentState.STOPPING, seconds, **_shown(world))


def starting(world: World, seconds: float) -> World:
    return again(world, AgentState.STARTING, seconds, epoch=2, epoch_since=seconds, **_shown(world, steps=None))


def _shown(world: World, **changes: object) -> dict[str, object]:
    assert world.agent is not None, "there is a report"
    kept = {name: getattr(world.agent, name) for name in ("meets", "rendezvous", "steps")}
    return {**kept, **changes}


def back(world: World, seconds: float, found: AgentRendezvous | None, **facts: object) -> World:
    """All processes of epoch 2 run since `seconds`, and that is what is known of its rendezvous."""
    assert world.agent is not None, "there is a report"
    again_ = running(world, seconds, [ended(1, 0, by=RestartedBy.ANSWER)], epoch=2)
    known = (FIRST,) if found is None else (FIRST, found)
    return with_agent(again_, meets=True, rendezvous=known, **facts)


def closing(incident: Incident) -> Closing:
    assert incident.closing is not None, "a recorded incident is closed"
    return incident.closing


def spans(incident: Incident) -> dict[str, tuple[float, float | None]]:
    """Begin and end of each phase, in seconds."""
    return {
        str(each.phase): (
            (each.started_at - at(0)).total_seconds(),
            None if each.ended_at is None else (each.ended_at - at(0)).total_seconds(),
        )
        for each in incident.phases
    }


def test_the_phases_of_a_restart_in_place_are_those_that_the_agents_date() -> None:
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    controller.reconcile(stopping(world, 0.5), 0.6)
    assert controller.phase() is Phase.STOPPING
    controller.reconcile(starting(world, 1.0), 1.1)
    assert controller.phase() is Phase.STARTING
    controller.reconcile(back(world, 1.2, AgentRendezvous(2, at(1.4))), 1.5)
    assert controller.phase() is Phase.RENDEZVOUS
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.reconcile(joined, 2.6)
    assert controller.phase() is Phase.RESUMING
    controller.settle(with_agent(joined, steps=steps(1201, 8.0, first=1000)), 8.2)
    [incident] = controller.recorded
    assert spans(incident) == {
        "Detected": (0, 0.2),
        "Decided": (0.2, 0.5),
        "Stopping": (0.5, 1.0),
        "Starting": (1.0, 1.4),
        "Rendezvous": (1.4, 2.0),
        "Resuming": (2.0, 8.0),
    }


def test_a_rendezvous_that_began_and_ended_between_two_reports_is_a_phase_too() -> None:
    controller, world = Controller(allows()), lost(steps=None)
    controller.reconcile(world, 0.2)
    controller.settle(back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0))), 2.6)
    [incident] = controller.recorded
    assert spans(incident)["Rendezvous"] == (1.4, 2.0)
    assert (closing(incident).source, closing(incident).verified, closing(incident).ended_at) == ("agent", True, at(2))


def test_a_group_whose_processes_run_has_not_recovered_until_all_have_joined() -> None:
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    waits = with_agent(back(world, 1.2, AgentRendezvous(2, at(1.4))), waiting=(3,), waiting_count=1, arrived=3)
    controller.settle(waits, 2)
    controller.settle(waits, 32)
    assert (controller.phase(), controller.recorded) == (Phase.RENDEZVOUS, [])
    assert controller.incident.reason is Reason.WAITING_FOR_READY
    assert "train-node-0-3" in controller.incident.message


def test_a_rendezvous_in_place_that_takes_too_long_recreates_the_group() -> None:
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    waits = back(world, 1.2, AgentRendezvous(2, at(1.4), arrived_at=at(5)))
    controller.settle(waits, 8)
    controller.settle(with_agent(waits, received_at=at(61)), 61.5)
    assert controller.triggers == [], "the agents have started all processes in time"
    controller.settle(with_agent(waits, received_at=at(904)), 906)
    assert controller.triggers == [], "they may have joined since that report"
    controller.settle(with_agent(waits, received_at=at(905)), 906)
    assert [each.uid for each in controller.triggers] == [world.job.uid]
    assert controller.incident.attempts[-1].reason is Reason.RENDEZVOUS_TIMEOUT


def test_a_program_may_prepare_itself_for_as_long_as_it_likes_before_it_joins() -> None:
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    prepares = back(world, 1.2, None)
    for seconds in (2, 100, 1000, 4000):
        controller.settle(with_agent(prepares, received_at=at(seconds)), seconds + 0.5)
        assert (controller.phase(), controller.triggers) == (Phase.STARTING, [])
    arrives = with_agent(prepares, rendezvous=(FIRST, AgentRendezvous(2, at(4001))), received_at=at(4001.5))
    controller.settle(arrives, 4002)
    assert controller.phase() is Phase.RENDEZVOUS


def test_no_one_waits_for_ranks_that_have_never_joined() -> None:
    """In some programs not every rank calls `init_process_group`."""
    controller, world = Controller(allows()), with_agent(lost(steps=None), rendezvous=(AgentRendezvous(1, at(-3500)),))
    controller.reconcile(world, 0.2)
    assert not controller.incident.joins_proven
    again_ = running(world, 1.2, [ended(1, 0, by=RestartedBy.ANSWER)], epoch=2)
    found = (AgentRendezvous(1, at(-3500)), AgentRendezvous(2, at(1.4)))
    controller.settle(with_agent(again_, meets=True, rendezvous=found), 1.7)
    [incident] = controller.recorded
    assert (closing(incident).outcome, closing(incident).verified) == (Outcome.RECOVERED, False)


def test_an_incident_ends_when_every_rank_has_passed_the_step_of_the_failure() -> None:
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(with_agent(joined, steps=steps(1001, 4.0, first=1000)), 4.2)
    assert controller.phase() is Phase.RESUMING
    controller.settle(with_agent(joined, steps=steps(1200, 60.0, first=1000)), 60.2)
    assert controller.phase() is Phase.RESUMING, "step 1200 is made twice, and none after it"
    controller.settle(with_agent(joined, steps=steps(1201, 60.5, first=1000)), 61)
    [incident] = controller.recorded
    end = closing(incident)
    assert (end.outcome, end.outcome_reason) == (Outcome.RECOVERED, Reason.TRAINING_PROGRESSES)
    assert (end.source, end.verified, end.ended_at) == ("agent", True, at(60.5))
    assert incident.training_steps == TrainingSteps(before=1200, absolute=True, step_seconds=0.5, resumed=1000)
    assert (incident.training_steps.lost, incident.training_steps.rework_seconds) == (200, 100.0)


def test_steps_that_cannot_be_compared_end_it_with_the_first_one() -> None:
    controller, world = Controller(allows()), lost(steps=steps(1200, -0.2, absolute=False))
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(with_agent(joined, steps=steps(0, 3.0, first=0, absolute=False)), 3)
    assert controller.phase() is Phase.RESUMING, "not every rank has made a step"
    controller.settle(with_agent(joined, steps=steps(1, 4.0, first=0, absolute=False)), 4.2)
    [incident] = controller.recorded
    assert (closing(incident).outcome, closing(incident).ended_at) == (Outcome.RECOVERED, at(4))
    assert incident.training_steps is not None
    assert incident.training_steps.lost is None, "no one knows how far the ranks fell back"


@pytest.mark.parametrize("known", [None, steps(1100, 890, first=1000)], ids=["no step", "behind"])
def test_resuming_ends_at_its_time_out_at_the_latest(known: AgentSteps | None) -> None:
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)), steps=known)
    controller.settle(joined, 3)
    controller.settle(with_agent(joined, received_at=at(902)), 902.5)
    [incident] = controller.recorded
    reason = Reason.PROGRESS_NOT_SEEN if known is None else Reason.TRAINING_PROGRESSES
    assert (closing(incident).outcome, closing(incident).outcome_reason) == (Outcome.RECOVERED, reason)


def test_a_failure_before_all_have_joined_belongs_to_the_same_incident() -> None:
    """The processes of epoch 2 had started, but not met: the restart in place has not worked."""
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    controller.settle(back(world, 1.2, AgentRendezvous(2, at(1.4))), 1.5)
    first = ended(1, 0, by=RestartedBy.ANSWER)
    fails = asking(world, 3, first, epoch=2)
    controller.settle(with_agent(fails, meets=True, rendezvous=(FIRST, AgentRendezvous(2, at(1.4)))), 3.2)
    assert controller.recorded == []
    assert [each.uid for each in controller.triggers] == [world.job.uid]


def test_a_failure_before_the_step_is_passed_ends_the_incident_and_opens_the_next() -> None:
    """The ranks had met again, so the restart in place has worked."""
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    met = (FIRST, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(back(world, 1.2, met[1]), 2.5)
    assert controller.phase() is Phase.RESUMING
    first: EndedEpoch = ended(1, 0, by=RestartedBy.ANSWER)
    fails = with_agent(asking(world, 9, first, epoch=2, signal=6), meets=True, rendezvous=met, steps=steps(1100, 8))
    for seconds in (9.2, 9.3, 9.4):
        controller.settle(fails, seconds)
    [incident] = controller.recorded
    assert closing(incident).outcome is Outcome.RECOVERED
    assert controller.incident.number == 2
    assert controller.triggers == []


def test_a_recreated_group_has_recovered_when_its_agents_say_that_all_have_joined() -> None:
    controller = Controller(policy())
    world = with_agent(reported(injected(training()), AgentState.RUNNING, -1), meets=True, rendezvous=(FIRST,))
    controller.reconcile(world.pod_deleted(3, 0), 0.2)
    new = injected(world.recreated(5).all_ready(7))
    silent = msgspec.structs.replace(new, agent=None)
    controller.settle(silent, 8)
    assert controller.phase() is Phase.RENDEZVOUS, "the pods are Ready, and the ranks had shown when they join"
    arrived = reported(new, AgentState.RUNNING, 9, meets=True, rendezvous=(AgentRendezvous(1, at(8.5)),))
    controller.settle(arrived, 9.1)
    assert controller.phase() is Phase.RENDEZVOUS
    controller.settle(with_agent(arrived, rendezvous=(AgentRendezvous(1, at(8.5), at(11.5)),)), 12)
    [incident] = controller.recorded
    assert (closing(incident).source, closing(incident).verified) == ("agent", True)
    assert closing(incident).ended_at == at(11.5)


def test_agents_that_exit_after_a_failure_have_shown_that_the_ranks_join() -> None:
    """Without permission for a restart in place they end as torchrun does, and the containers with them."""
    controller = Controller(policy())
    world = reported(injected(training()), AgentState.EXITING, 0.1, ended(1, 0), meets=True, rendezvous=(FIRST,))
    controller.reconcile(with_agent(world, steps=steps(1200, -0.2)), 0.2)
    assert controller.incident.joins_proven
    assert controller.incident.training_steps is not None


def test_agents_that_stay_silent_do_not_hold_up_the_end_for_ever() -> None:
    controller = Controller(policy())
    world = with_agent(reported(injected(training()), AgentState.RUNNING, -1), meets=True, rendezvous=(FIRST,))
    controller.reconcile(world.pod_deleted(3, 0), 0.2)
    silent = msgspec.structs.replace(injected(world.recreated(5).all_ready(7)), agent=None)
    controller.settle(silent, 8)
    controller.settle(silent, timedelta(minutes=11).total_seconds())
    [incident] = controller.recorded
    assert (closing(incident).source, closing(incident).verified) == ("ready", False)


def test_the_ledger_keeps_the_training_step_with_other_writes_and_every_five_minutes() -> None:
    controller, world = Controller(allows()), lost(steps=steps(1200, -0.2, absolute=False))
    controller.reconcile(world, 0.2)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(with_agent(joined, received_at=at(4.1), steps=steps(1, 4.0, first=0, absolute=False)), 4.2)
    assert controller.ledger.training_step == TrainingStep(1, 1, at(4.1))
    for seconds, kept in ((30, 4.1), (300, 4.1), (310, 310), (330, 310)):
        later = with_agent(joined, received_at=at(seconds), steps=steps(seconds, seconds, absolute=False))
        controller.settle(later, seconds)
        assert controller.ledger.training_step is not None
        assert controller.ledger.training_step.at == at(kept)


def test_a_group_that_never_had_an_incident_is_not_written_for_its_training_step() -> None:
    controller = Controller(allows())
    plan = controller.reconcile(reported(training(), AgentState.RUNNING, 0, steps=steps(10, 0)), 0.2)
    assert (controller.ledger, plan.actions) == (Ledger(), ())


def test_ranks_that_are_stopped_say_how_far_they_were() -> None:
    """The report of the failure has steps that are up to five seconds old."""
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    controller.reconcile(with_agent(stopping(world, 0.5), steps=steps(1206, 0.1)), 0.6)
    joined = back(world, 1.2, AgentRendezvous(2, at(1.4), at(2.0)))
    controller.settle(with_agent(joined, steps=steps(1206, 60.0, first=1000)), 60.2)
    assert controller.phase() is Phase.RESUMING
    assert controller.incident.training_steps == TrainingSteps(1206, absolute=True, step_seconds=0.5, resumed=1000)


def test_the_rank_that_failed_says_its_step_itself() -> None:
    controller = Controller(allows())
    world = with_agent(asking(training(), 0, step=1207), meets=True, rendezvous=(FIRST,), steps=steps(1200, -4))
    controller.reconcile(world, 0.2)
    assert controller.incident.training_steps == TrainingSteps(1207, absolute=True, step_seconds=0.5)


# --- a group that may train is left alone ---------------------------------------------------------------------------


def recreated(*, start_seconds: int = 3600, size: int = 4) -> tuple[Controller, World]:
    """A group whose agents had shown that its ranks joined has lost rank 3, and its Job was deleted."""
    controller = Controller(policy(start_seconds=start_seconds))
    before = reported(injected(training(size)), AgentState.RUNNING, -1, meets=True, rendezvous=(FIRST,))
    controller.reconcile(before.pod_deleted(3, 0), 0.2)
    assert len(controller.triggers) == 1
    return controller, before


def test_the_time_in_which_a_pod_starts_late_is_no_rendezvous() -> None:
    controller, world = recreated()
    new = injected(world.recreated(5)).all_scheduled(5)
    for index in range(3):
        new = new.started(index, 7).pod_ready(index, 7)

    def waits(world: World, state: AgentState, seconds: float) -> World:
        met = (AgentRendezvous(1, at(8.5)),)
        return reported(world, state, seconds, meets=True, rendezvous=met, waiting=(3,), waiting_count=1, arrived=3)

    for seconds in (9, 300, 600, 999):
        controller.settle(waits(new, AgentState.GATHERING, seconds), seconds + 0.1)
    assert controller.phase() is Phase.STARTING
    last = new.started(3, 1000).pod_ready(3, 1000)
    controller.settle(waits(last, AgentState.RUNNING, 1001), 1001.1)
    assert (controller.phase(), len(controller.triggers)) == (Phase.RENDEZVOUS, 1)
    assert spans(controller.incident)["Rendezvous"][0] >= 1000


@pytest.mark.parametrize("missing", [(2,), ()], ids=["a slot without a link", "a slot that shows nothing"])
def test_a_group_that_makes_steps_is_not_torn_down(missing: tuple[int, ...]) -> None:
    controller, world = recreated()
    new = injected(world.recreated(5).all_ready(7))
    state = AgentState.GATHERING if missing else AgentState.RUNNING
    for seconds in (10, 60, 600, 890, 910, 1000):
        found = reported(
            new,
            state,
            seconds,
            meets=True,
            rendezvous=(AgentRendezvous(1, at(8.5), arrived_at=at(9)),),
            missing=missing,
            missing_count=len(missing),
            arrived=3,
            joined=3,
            waiting=(2,),
            waiting_count=1,
            steps=AgentSteps(0, seconds, at(seconds - 1), first=0),
        )
        controller.settle(found, seconds + 0.1)
    assert len(controller.triggers) == 1


def test_a_rank_that_arrives_late_while_the_others_wait_is_waited_for() -> None:
    controller, world = recreated()
    new = injected(world.recreated(5).all_ready(7))
    met = AgentRendezvous(1, at(8.5))
    for seconds in (9, 300, 900, 910, 1000, 1700):
        waits = reported(
            new, AgentState.RUNNING, seconds, meets=True, rendezvous=(met,), waiting=(0,), waiting_count=1, arrived=3
        )
        controller.settle(waits, seconds + 0.1)
    assert (controller.phase(), len(controller.triggers)) == (Phase.RENDEZVOUS, 1)


def test_a_report_that_is_old_holds_nothing_up() -> None:
    controller, world = recreated()
    new = injected(world.recreated(5).all_ready(7))
    silent = reported(
        new, AgentState.RUNNING, 9, meets=True, rendezvous=(AgentRendezvous(1, at(8.5), arrived_at=at(9)),)
    )
    for seconds in (9.1, 60, 300, 601, 700, 901, 910, 1000):
        controller.settle(silent, seconds)
    assert len(controller.triggers) == 1
    assert [closing(each).outcome for each in controller.recorded] == [Outcome.RECOVERED]


def test_nor_does_one_in_place() -> None:
    controller, world = Controller(allows()), lost()
    controller.reconcile(world, 0.2)
    waits = back(world, 1.2, AgentRendezvous(2, at(1.4)))
    for seconds in (2, 10, 61, 700, 901, 1900):
        controller.settle(waits, seconds)
    assert controller.triggers == []
    assert [closing(each).outcome for each in controller.recorded] == [Outcome.RECOVERED]


def test_a_short_time_out_does_not_count_while_the_agents_are_silent() -> None:
    controller, world = recreated()
    controller = Controller(
        msgspec.structs.replace(policy(), rendezvous_timeout=timedelta(minutes=5)), controller.ledger
    )
    silent = msgspec.structs.replace(injected(world.recreated(5).all_ready(7)), agent=None)
    for seconds in (8, 60, 200, 310, 320):
        controller.settle(silent, seconds)
    assert controller.triggers == []


@pytest.mark.parametrize("state", [AgentState.RUNNING, AgentState.LEAVING])
def test_a_pod_that_is_created_later_has_not_joined(state: AgentState) -> None:
    controller = Controller(policy(Mode.OBSERVE))
    world = reported(injected(training()), state, 0.1, meets=True, rendezvous=(FIRST,))
    controller.settle(world.pod_deleted(3, 0), 0.2)
    replaced = world.pod_deleted(3, 0).pod_gone(3, 1).came_back(3, 8, 9).with_pod(3, ready=False)
    for seconds in (8, 9.5):
        controller.settle(replaced, seconds)
    assert [each for each in controller.recorded if closing(each).verified] == []


def test_a_pod_on_a_silent_node_has_not_joined() -> None:
    controller, world = recreated()
    new = injected(world.recreated(5).all_started(7).all_ready(9)).node_silent("gpu-2", 10)
    joined = (AgentRendezvous(1, at(8.5), at(9)),)
    silent = reported(new, AgentState.RUNNING, 51, meets=True, rendezvous=joined, missing=(2,), missing_count=1)
    for seconds in (51, 60):
        controller.settle(silent, seconds)
    assert controller.recorded == []
