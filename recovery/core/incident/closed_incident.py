"""What a closed incident comes to: who has handled it, and what it adds to the totals of the fleet."""

import msgspec

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.model.ledger import AttemptAction, Incident, IncidentHandling, IncidentTotals, Phase
from recovery.core.model.reason import Reason


def handling_of(incident: Incident) -> IncidentHandling:
    """Held, if it ever was; else manual, if a person asked for a restart or a retry that was made; else automatic.

    The ledger notes it when it happens, because spans are merged and attempts are forgotten. Spans and attempts show it
    where an older version, or an older CRD, has dropped that note.
    """
    if incident.handling is IncidentHandling.HELD or any(span.phase is Phase.HELD for span in incident.phases):
        return IncidentHandling.HELD
    by_hand = any(attempt.reason is Reason.RESTARTED_BY_HAND for attempt in incident.attempts)
    if incident.handling is IncidentHandling.MANUAL or incident.disruption_class == DisruptionClass.MANUAL or by_hand:
        return IncidentHandling.MANUAL
    return IncidentHandling.AUTOMATIC


def by_a_person(incident: Incident) -> IncidentHandling:
    """Its handling once a person's request has led to something in it."""
    held = handling_of(incident) is IncidentHandling.HELD
    return IncidentHandling.HELD if held else IncidentHandling.MANUAL


def restarts_of_incident(incident: Incident) -> int:
    """Restarts in it, ours and adopted ones. An older version wrote only its attempts, of which it kept 20."""
    kept = sum(1 for attempt in incident.attempts if attempt.action is not AttemptAction.NONE)
    return max(incident.restarts, kept)


def as_recorded(incident: Incident) -> Incident:
    """The closed incident as its RecoveryIncident has it: with what an older version has not written."""
    return msgspec.structs.replace(incident, handling=handling_of(incident), restarts=restarts_of_incident(incident))


def totals_of(workload_uid: str, incident: Incident) -> IncidentTotals:
    """What the closed incident adds to the totals of the fleet. It follows from its record alone."""
    assert incident.closing is not None, "only closed incidents are counted"
    idle: dict[str, float] = {}
    for span in incident.phases:
        if span.idle_gpu_seconds:
            idle[span.phase] = round(idle.get(span.phase, 0.0) + span.idle_gpu_seconds, 3)
    return IncidentTotals(
        workload_uid=workload_uid,
        number=incident.number,
        started_at=incident.started_at,
        disruption_class=incident.disruption_class,
        outcome=incident.closing.outcome,
        handling=handling_of(incident),
        idle_gpu_seconds=idle,
        released_gpu_seconds=round(sum(span.released_gpu_seconds for span in incident.phases), 3),
        restarts=restarts_of_incident(incident),
        enforce_estimate=incident.enforce_estimate,
    )
