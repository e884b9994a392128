"""Where the time of a recovery went: contiguous phases from the failure on, and each idle GPU-second booked once."""

import msgspec
import pytest

from recovery.core.incident import phases
from recovery.core.incident.lifecycle import target_of
from recovery.core.model.ledger import Incident, Ledger, Phase
from tests.unit.core.decision.test_replacing_nodes import REPLACE_FAULTY, faulty
from tests.unit.core.decision.test_verdicts import MAY
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.pods import GPUS_PER_POD
from tests.unit.core.world import World, at

GPUS = 4 * GPUS_PER_POD


def story(controller: Controller) -> World:
    """A member is lost at 0, noticed at 0.4 and gone at 8. Pods are scheduled at 9, started at 15 and Ready at 20."""
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.4)
    controller.reconcile(world.job_deleted(1).all_deleted(1), 1.5)
    back = world.recreated(8)
    controller.reconcile(back, 8.5)
    controller.reconcile(back.all_scheduled(), 9)
    controller.reconcile(back.all_started(15), 15.5)
    return back.all_started(15).all_ready(20)


def spans(incident: Incident) -> list[tuple[str, float, float]]:
    """Each phase with its start and end in seconds since START."""
    return [
        (span.phase.value, (span.started_at - at(0)).total_seconds(), (span.ended_at - at(0)).total_seconds())
        for span in incident.phases
        if span.ended_at is not None
    ]


def test_the_phases_of_a_recovery() -> None:
    controller = Controller()
    controller.settle(story(controller), 20.7)
    assert spans(controller.recorded[0]) == [
        ("Detected", 0, 0.4),
        ("Decided", 0.4, 1.5),
        ("TearingDown", 1.5, 8.5),
        ("Scheduling", 8.5, 9),
        ("Starting", 9, 15.5),
        ("Rendezvous", 15.5, 20.7),
    ]


def test_every_idle_gpu_second_is_booked_to_its_phase() -> None:
    controller = Controller()
    controller.settle(story(controller), 20.7)
    (incident,) = controller.recorded
    by_phase = {span.phase.value: span.idle_gpu_seconds for span in incident.phases}
    assert by_phase == pytest.approx(
        {
            "Detected": 0.4 * GPUS,
            "Decided": 1.1 * GPUS,
            "TearingDown": 7 * GPUS,
            "Scheduling": 0.5 * GPUS,
            "Starting": 6.5 * GPUS,
            "Rendezvous": 5.2 * GPUS,
        }
    )
    assert sum(by_phase.values()) == pytest.approx(20.7 * GPUS)
    assert controller.ledger.totals.idle_gpu_seconds == by_phase
    assert controller.ledger.history[0].idle_gpu_seconds == pytest.approx(20.7 * GPUS)


def test_it_ends_within_the_second_of_the_last_ready_however_late_it_is_seen() -> None:
    controller = Controller()
    controller.settle(story(controller), 300)
    assert spans(controller.recorded[0])[-1] == ("Rendezvous", 15.5, 21)


def test_each_phase_begins_within_the_second_of_what_proves_it_however_late_it_is_seen() -> None:
    """Seeds 781 and 825 of the simulation: a watch that catches up reports one change after another, long after all
    ranks have met."""
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.4)
    gone = world.job_deleted(3).all_deleted(3)
    controller.reconcile(gone, 300)
    made = gone.recreated(8)
    controller.reconcile(made, 300.1)
    placed = made.all_scheduled(10)
    controller.reconcile(placed, 300.2)
    controller.reconcile(placed.all_started(15), 300.3)
    controller.settle(placed.all_ready(20), 300.4)
    assert spans(controller.recorded[0]) == [
        ("Detected", 0, 0.4),
        ("Decided", 0.4, 4),
        ("TearingDown", 4, 9),
        ("Scheduling", 9, 11),
        ("Starting", 11, 16),
        ("Rendezvous", 16, 21),
    ]


def test_what_bears_no_date_was_so_when_the_reading_began() -> None:
    """Seed 563 of the simulation: a slow API server shows the group as gone when it is already back."""
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    gone = world.job_gone()
    read = msgspec.structs.replace(gone.snapshot(live=True), read_at=at(2))
    controller.write(controller.plan_on(read, read, 300))
    controller.settle(gone.job_created(3).pods_created(3).all_ready(20), 301)
    assert spans(controller.recorded[0])[-2:] == [("Decided", 0.5, 2), ("Scheduling", 2, 21)]


def test_a_group_that_waits_for_capacity_once_more_does_so_from_when_it_is_seen() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    starting = world.recreated(8).all_scheduled(9)
    controller.reconcile(starting, 9.5)
    controller.reconcile(starting.pod_gone(1, 30).replaced(1, 30).unschedulable(1, "no nodes"), 31)
    assert spans(controller.incident)[-1] == ("Starting", 9.5, 31)
    assert controller.phase() is Phase.SCHEDULING


def test_it_begins_at_the_failure_however_late_it_is_seen() -> None:
    controller = Controller()
    controller.reconcile(training().pod_failed(3, 137, -120), 0)
    assert controller.incident.started_at == at(-120)
    assert controller.incident.phases[0].idle_gpu_seconds == 120 * GPUS


def test_a_fault_of_a_node_under_members_that_run_begins_when_it_is_seen() -> None:
    """The job was paused for 120 s and trained, so no GPU was idle."""
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=MAY))
    controller.reconcile(faulty(training(), seconds=-120), 0)
    assert len(controller.triggers) == 1
    assert controller.incident.started_at == at(0)
    assert [span.idle_gpu_seconds for span in controller.incident.phases] == [0, 0]


def test_a_loss_beside_the_fault_of_a_node_begins_when_the_member_was_lost() -> None:
    controller = Controller(policy(rules=(REPLACE_FAULTY,), limits=MAY))
    controller.reconcile(faulty(training(), seconds=-120).pod_failed(3, 1, -60), 0)
    assert controller.incident.started_at == at(-60)


def test_it_does_not_begin_before_the_last_incident_ended() -> None:
    controller = Controller()
    world = story(controller)
    controller.settle(world, 20.7)
    controller.reconcile(world.pod_failed(2, 1, 20), 22)
    assert controller.incident.started_at == at(20.7)


def test_a_failure_that_a_kubelets_clock_puts_into_the_future_begins_now() -> None:
    controller = Controller()
    controller.reconcile(training().pod_failed(3, 137, 30), 1)
    assert controller.incident.started_at == at(1)


def test_a_phase_that_was_skipped_takes_no_time() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    controller.settle(world.recreated(8).all_ready(20), 20.5)
    assert [name for name, _, _ in spans(controller.recorded[0])] == ["Detected", "Decided"]


def test_within_an_attempt_a_group_never_goes_back_a_phase() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    back = world.recreated(8).all_scheduled().started(0, 10)
    controller.reconcile(back, 10)
    controller.reconcile(back.pod_deleted(1, 12).pod_gone(1, 13).replaced(1, 13), 14)
    assert controller.phase() is Phase.STARTING


def test_another_attempt_begins_at_decided_again() -> None:
    controller = Controller(policy(start_seconds=60))
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    controller.reconcile(world.recreated(8).all_scheduled(), 10)
    controller.reconcile(world.recreated(8).all_scheduled(), 70)
    assert [span.phase.value for span in controller.incident.phases] == ["Detected", "Decided", "Starting", "Decided"]


def test_a_clock_that_jumps_back_makes_no_gap_and_no_negative_time() -> None:
    controller = Controller()
    world = training().pod_deleted(3, 0)
    controller.reconcile(world, 0.5)
    controller.reconcile(world.job_deleted(1), -30)
    controller.reconcile(world.recreated(8), -20)
    controller.settle(world.recreated(8).all_ready(20), -10)
    assert controller.recorded[0].closing is not None
    assert controller.recorded[0].closing.ended_at == at(0.5)


def test_an_incident_without_an_end_stays_bounded_and_loses_no_gpu_second() -> None:
    controller = Controller()
    controller.reconcile(training().pod_deleted(3, 0), 0)
    ledger = controller.ledger
    for number in range(200):
        phase = Phase.SCHEDULING if number % 2 else Phase.STARTING
        ledger = phases.enter(ledger, phase, at(number + 1))
    incident = ledger.incident
    assert incident is not None
    assert len(incident.phases) == phases.MAX_SPANS
    assert incident.phases[0].started_at == at(0)
    assert sum(span.idle_gpu_seconds for span in incident.phases) == 200 * GPUS
    assert sum(ledger.totals.idle_gpu_seconds.values()) == 200 * GPUS


def test_entering_the_same_phase_again_changes_nothing() -> None:
    controller = Controller()
    controller.reconcile(training().pod_deleted(3, 0), 1)
    assert phases.enter(controller.ledger, Phase.DECIDED, at(9)) == controller.ledger


def test_a_closed_span_is_not_closed_again() -> None:
    controller = Controller()
    controller.reconcile(training().pod_deleted(3, 0), 1)
    closed = phases.close_span(controller.ledger, at(5))
    assert phases.close_span(closed, at(9)) == closed
    assert closed != Ledger()


OLD = training()
POSITIONS = {
    "the old Job lives": (OLD, Phase.DECIDED),
    "the old Job is going": (OLD.job_deleted(0), Phase.TEARING_DOWN),
    "nothing is there": (OLD.job_gone(), Phase.SCHEDULING),
    "a new Job without pods": (OLD.job_gone().job_created(5), Phase.SCHEDULING),
    "one pod has no node": (OLD.recreated(5).scheduled(0).scheduled(1).scheduled(2), Phase.SCHEDULING),
    "all have a node": (OLD.recreated(5).all_scheduled(), Phase.STARTING),
    "one does not run": (OLD.recreated(5).all_scheduled().started(0, 6), Phase.STARTING),
    "all run": (OLD.recreated(5).all_started(6), Phase.RENDEZVOUS),
    "one is not Ready": (OLD.recreated(5).all_started(6).pod_ready(0, 7), Phase.RENDEZVOUS),
    "all are Ready": (OLD.recreated(5).all_ready(7), Phase.HEALTHY),
    "all Ready, one of them going": (OLD.recreated(5).all_ready(7).pod_deleted(0, 8), Phase.SCHEDULING),
    "a shrunken group": (OLD.recreated(5).with_job(parallelism=3, completions=3).all_ready(7), Phase.SCHEDULING),
}


@pytest.mark.parametrize(("world", "phase"), POSITIONS.values(), ids=POSITIONS)
def test_where_the_facts_put_a_group(world: World, phase: Phase) -> None:
    assert phases.position(world.snapshot(), target_of(OLD.snapshot()), 4) is phase
