"""Incidents are measured by the dates of the controller, whatever the clock of the client says."""

from datetime import timedelta

import msgspec

from recovery.chaos.incident_clock import IncidentClock
from recovery.core.model.ledger import Incident, Phase, PhaseSpan
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.step import WAITING
from recovery.sim.virtual_time import BEGIN, VirtualClock, virtual_time
from tests.unit.cli.test_status import open_incident

AHEAD = timedelta(hours=3)
"""The clock of the controller is ahead of that of the client."""


def incident(*starts: float) -> Incident:
    began = BEGIN + AHEAD
    spans = tuple(PhaseSpan(Phase.SCHEDULING, began + timedelta(seconds=start)) for start in starts)
    pinned = msgspec.convert(open_incident("Scheduling")["incident"]["terms"], PinnedPolicy)
    return Incident("inc-1", 1, began, began, "PodFailed", "Exit137", "Enforce", pinned, WAITING, phases=spans)


@virtual_time
async def test_without_an_incident_there_is_no_time() -> None:
    assert IncidentClock(VirtualClock()).now(()) is None


@virtual_time
async def test_time_goes_on_from_the_latest_date_of_the_incident() -> None:
    clock = VirtualClock()
    measured = IncidentClock(clock)
    assert measured.now([incident(2.0)]) == BEGIN + AHEAD + timedelta(seconds=2)
    await clock.sleep(5)
    assert measured.now([incident(2.0)]) == BEGIN + AHEAD + timedelta(seconds=7)


@virtual_time
async def test_a_later_date_moves_the_time_forward_and_never_back() -> None:
    clock = VirtualClock()
    measured = IncidentClock(clock)
    measured.now([incident(2.0)])
    await clock.sleep(5)
    assert measured.now([incident(2.0, 60.0)]) == BEGIN + AHEAD + timedelta(seconds=60)
    assert measured.now([incident(2.0, 30.0)]) == BEGIN + AHEAD + timedelta(seconds=60)
