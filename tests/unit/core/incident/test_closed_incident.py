"""Who has handled an incident, and what it adds to the totals of the fleet."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.incident import phases
from recovery.core.incident.closed_incident import by_a_person, handling_of, restarts_of_incident, totals_of
from recovery.core.model.ledger import (
    Attempt,
    AttemptAction,
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


BY_HAND = Attempt(1, 1, AttemptAction.RECREATE_GROUP, at(1), Reason.RESTARTED_BY_HAND)


@pytest.mark.parametrize(
    ("found", "handling"),
    [
        (incident(), IncidentHandling.AUTOMATIC),
        (incident(disruption_class="Manual"), IncidentHandling.MANUAL),
        (incident(attempts=(BY_HAND,)), IncidentHandling.MANUAL),
        (incident(handling=IncidentHandling.MANUAL), IncidentHandling.MANUAL),
        (incident(phases=(PhaseSpan(Phase.HELD, at(1)),)), IncidentHandling.HELD),
        (incident(phases=(PhaseSpan(Phase.HELD, at(1)),), attempts=(BY_HAND,)), IncidentHandling.HELD),
        (incident(handling=IncidentHandling.HELD, disruption_class="Manual"), IncidentHandling.HELD),
    ],
    ids=["no request", "class Manual", "restart by hand", "noted", "held", "held and restarted by hand", "was held"],
)
def test_held_goes_before_manual_and_manual_before_automatic(found: Incident, handling: IncidentHandling) -> None:
    assert handling_of(found) is handling


def test_that_it_was_held_outlives_the_merging_of_its_spans() -> None:
    controller = Controller()
    controller.reconcile(training(4).pod_deleted(3, 0), 0.2)
    ledger = phases.enter(controller.ledger, Phase.HELD, at(1))
    for number in range(phases.MAX_SPANS + 5):
        ledger = phases.enter(ledger, Phase.STARTING if number % 2 else Phase.SCHEDULING, at(2 + number))
    assert all(span.phase is not Phase.HELD for span in ledger.current_incident.phases)
    assert handling_of(ledger.current_incident) is IncidentHandling.HELD


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


def test_restarts_whose_attempts_are_forgotten_count() -> None:
    assert restarts_of_incident(incident(restarts=25)) == 25
    assert restarts_of_incident(incident(restarts=0, attempts=(BY_HAND,))) == 1, "as an older version wrote it"


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
