"""What is observed of incidents when a ledger write has succeeded: durations, decisions, refusals.

Durations are histograms without job labels: with job labels, 200 jobs would have 82,400 series.
"""

from datetime import datetime

from prometheus_client import CollectorRegistry

from recovery.core.model.ledger import Incident, Ledger, PhaseSpan
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode
from recovery.telemetry.catalogue import of_fleet
from recovery.telemetry.catalogue.label_values import DRILL, NO_DRILL, SCOPE, known_class
from recovery.telemetry.decision_labels import decisions
from recovery.telemetry.families import counter, histogram

_BUCKETS_SECONDS = (1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 3600)

_REFUSALS = {
    Reason.QUARANTINE_CAP: "cap",
    Reason.QUARANTINE_NAMESPACE_CAP: "namespace_cap",
    Reason.MESSAGE_UNCONFIRMED: "unconfirmed",
    Reason.QUARANTINE_NOT_ALLOWED: "permission",
    Reason.QUARANTINE_LAST_NODES: "feasible",
    Reason.FEASIBLE_NODES_UNKNOWN: "feasible",
}
"""The label under which a refused quarantine is counted."""


class IncidentInstruments:
    """Histograms and counters of incidents."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._phase = histogram(of_fleet.PHASE_DURATION, registry, _BUCKETS_SECONDS)
        for phase in of_fleet.PHASE_DURATION.values_of("phase"):
            self._phase.labels(phase, SCOPE, NO_DRILL)  # starts at 0, so that the first one is an increase
        self._duration = histogram(of_fleet.INCIDENT_DURATION, registry, _BUCKETS_SECONDS)
        self._decisions = counter(of_fleet.DECISIONS, registry)
        self._suppressed = counter(of_fleet.ACTIONS_SUPPRESSED, registry)
        self._refusals = counter(of_fleet.QUARANTINE_REFUSALS, registry)

    def ledger_written(self, before: Ledger, after: Ledger) -> None:
        """Observe what ended with this write, and count what it decided."""
        for made in decisions(before, after):
            self._decisions.labels(made.action, made.reason, made.mode).inc()
            if made.suppressed:
                self._suppressed.labels(made.suppressed).inc()
        incident = after.incident
        if incident is None:
            return
        known = known_before(before, incident)
        self._count_refusals(known, incident)
        drill = DRILL if incident.drill is not None else NO_DRILL
        for span, ended_at in spans_ended(known, incident):
            self._phase.labels(span.phase, SCOPE, drill).observe((ended_at - span.started_at).total_seconds())
        closed = incident.closing is not None and (known is None or known.closing is None)
        if incident.closing is not None and closed:
            seconds = (incident.closing.ended_at - incident.started_at).total_seconds()
            failure_class = known_class(incident.booked_class)
            self._duration.labels(failure_class, incident.closing.outcome, incident.handling).observe(seconds)

    def _count_refusals(self, known: Incident | None, incident: Incident) -> None:
        before_keys = {each.key for each in known.considered} if known is not None else set()
        for each in incident.considered if incident.mode == Mode.ENFORCE else ():
            if (why := _REFUSALS.get(each.reason)) and each.key not in before_keys:
                self._refusals.labels(why).inc()


def known_before(before: Ledger, incident: Incident) -> Incident | None:
    """The same incident as it was before the write. None: it has just opened."""
    return before.incident if before.incident is not None and before.incident.id == incident.id else None


def spans_ended(known: Incident | None, incident: Incident) -> list[tuple[PhaseSpan, datetime]]:
    """The spans that ended since `known`, with their ends. (The oldest spans may have been merged meanwhile: a merged
    span has the start of one that had ended before.)"""
    before = {_key(span) for span in known.phases if span.ended_at} if known is not None else set()
    return [(span, span.ended_at) for span in incident.phases if span.ended_at is not None and _key(span) not in before]


def _key(span: PhaseSpan) -> tuple[str, datetime]:
    return span.phase, span.started_at
