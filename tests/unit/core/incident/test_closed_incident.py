"""Who has handled an incident, and what it adds to the totals of the fleet."""

from datetime import timedelta

import msgspec

from recovery.core.incident import phases
from recovery.core.incident.closed_incident import by_a_person, totals_of
from recovery.core.model.ledger import (
    Closing,
    Incident,
    IncidentHandling,
    Outcome,
    Phase,
    PhaseSpan,
)
from recovery.core.model.reason import Reason
from tests.unit.core.decision.test_backoff import WAITS, in_backoff
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.core.world import at


def incident(**changes: object) -> Incident:
    controller = Controller()
    controller.reconcile(training(4).pod_deleted(3, 0), 0.2)
    return msgspec.structs.replace(controller.incident, **changes)


def test_that_it_was_held_outlives_the_merging_of_its_spans() -> None:
    controller = Controller()
    controller.reconcile(training(4).pod_deleted(3, 0), 0.2)
    ledger = phases.enter(controller.ledger, Phase.HELD, at(1))
    for number in range(phases.MAX_SPANS + 5):
        ledger = phases.enter(ledger, Phase.STARTING if number % 2 else Phase.SCHEDULING, at(2 + number))
    assert all(span.phase is not Phase.HELD for span in ledger.current_incident.phases)
    assert ledger.current_incident.handling is IncidentHandling.HELD


def test_a_person_in_a_held_incident_does_not_make_it_manual() -> None:
    assert by_a_person(incident()) is IncidentHandling.MANUAL
    assert by_a_person(incident(handling=IncidentHandling.HELD)) is IncidentHandling.HELD


def test_it_is_known_at_its_end_and_in_the_history() -> None:
    controller = Controller(WAITS)
    world = in_backoff(controller)
    controller.reconcile(world, 310.3)
    controller.settle(world.released().unsuspended(311).all_ready(314), 314.2)
    assert controller.recorded[-1].handling is IncidentHandling.AUTOMATIC
    assert controller.ledger.history[0].handling is IncidentHandling.AUTOMATIC


def test_what_it_adds_follows_from_its_record() -> None:
    spans = (
        PhaseSpan(Phase.DETECTED, at(0), at(1), 32.0),
        PhaseSpan(Phase.BACKOFF, at(1), at(2), 32.0),
        PhaseSpan(Phase.BACKOFF, at(2), at(12), 0.0, released=True, released_gpu_seconds=320.0),
    )
    closing = Closing(Outcome.RECOVERED, Reason.ALL_RANKS_READY, at(0) + timedelta(seconds=12))
    adds = totals_of("uid-1", incident(phases=spans, closing=closing, restarts=1))
    assert (adds.workload_uid, adds.number, adds.outcome) == ("uid-1", 1, Outcome.RECOVERED)
    assert adds.idle_gpu_seconds == {"Detected": 32.0, "Backoff": 32.0}
    assert (adds.released_gpu_seconds, adds.restarts) == (320.0, 1)
