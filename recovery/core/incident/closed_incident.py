"""The result of a closed incident: who handled it, and what it adds to the fleet's totals."""

import msgspec

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.fleet.totals import name_of_broken
from recovery.core.model.ledger import (
    AttemptAction,
    Incident,
    IncidentHandling,
    IncidentTotals,
    Outcome,
    Phase,
)
from recovery.core.model.reason import Reason
from recovery.core.model.standing import BROKEN_SECONDS, Broken


def handling_of(incident: Incident) -> IncidentHandling:
    """Held if the incident ever was held. Else manual if a person's restart or retry was carried out. Else automatic.

    The ledger records it when it happens, because spans are merged and attempts are dropped later. Spans and attempts
    show it where an older version, or an older CRD, has dropped that record.
    """
    if incident.handling is IncidentHandling.HELD or any(span.phase is Phase.HELD for span in incident.phases):
        return IncidentHandling.HELD
    by_hand = any(attempt.reason is Reason.RESTARTED_BY_HAND for attempt in incident.attempts)
    if incident.handling is IncidentHandling.MANUAL or incident.disruption_class == DisruptionClass.MANUAL or by_hand:
        return IncidentHandling.MANUAL
    return IncidentHandling.AUTOMATIC


def by_a_person(incident: Incident) -> IncidentHandling:
    """The incident's handling after a person's request has had an effect on it."""
    held = handling_of(incident) is IncidentHandling.HELD
    return IncidentHandling.HELD if held else IncidentHandling.MANUAL


def restarts_of_incident(incident: Incident) -> int:
    """The incident's restarts, ours and adopted. An older version wrote only attempts, and kept at most 20 of them."""
    kept = sum(1 for attempt in incident.attempts if attempt.action is not AttemptAction.NONE)
    return max(incident.restarts, kept)


def as_recorded(incident: Incident) -> Incident:
    """The closed incident as its RecoveryIncident records it, with the fields that an older version did not write."""
    return msgspec.structs.replace(incident, handling=handling_of(incident), restarts=restarts_of_incident(incident))


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
        disruption_class=incident.disruption_class,
        outcome=incident.closing.outcome,
        handling=handling_of(incident),
        idle_gpu_seconds=idle,
        released_gpu_seconds=round(sum(span.released_gpu_seconds for span in incident.phases), 3),
        restarts=restarts_of_incident(incident),
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
