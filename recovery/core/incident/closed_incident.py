"""The result of a closed incident: who handled it, and what it adds to the fleet's totals."""

from recovery.core.fleet.totals import name_of_broken
from recovery.core.model.ledger import (
    Incident,
    IncidentHandling,
    IncidentTotals,
    Outcome,
)
from recovery.core.model.standing import BROKEN_SECONDS, Broken


def by_a_person(incident: Incident) -> IncidentHandling:
    """The incident's handling after a person's request has had an effect on it."""
    held = incident.handling is IncidentHandling.HELD
    return IncidentHandling.HELD if held else IncidentHandling.MANUAL


def totals_of(workload_uid: str, incident: Incident) -> IncidentTotals:
    """What the closed incident adds to the fleet's totals. The record of the incident alone determines it."""
    assert incident.closing is not None, "only closed incidents are counted"
    idle: dict[str, float] = {}
    for span in incident.phases:
        if span.idle_gpu_seconds:
            idle[span.phase] = round(idle.get(span.phase, 0.0) + span.idle_gpu_seconds, 3)
    return IncidentTotals(
        workload_uid=workload_uid,
        number=incident.number,
        started_at=incident.started_at,
        disruption_class=incident.booked_class,
        outcome=incident.closing.outcome,
        handling=incident.handling,
        idle_gpu_seconds=idle,
        released_gpu_seconds=round(sum(span.released_gpu_seconds for span in incident.phases), 3),
        restarts=incident.restarts - incident.drill_restarts,
        enforce_estimate=incident.enforce_estimate,
    )


def totals_of_broken(workload_uid: str, broken: Broken, idle_gpu_seconds: float) -> IncidentTotals:
    """What the time in which the group hung between incidents adds to the fleet's totals, when it ends."""
    uid, number, since = name_of_broken(workload_uid, broken)
    return IncidentTotals(
        workload_uid=uid,
        number=number,
        started_at=since,
        disruption_class=broken.disruption_class,
        outcome=Outcome.HELD,
        idle_gpu_seconds={BROKEN_SECONDS: idle_gpu_seconds},
        broken=True,
    )
