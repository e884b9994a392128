"""All metrics of the controller on one registry, with the names that dashboards and alerts rely on.

What a ledger tells is computed at the scrape (`ledger_metrics`). What only this process knows is observed here:
durations, as histograms without job labels (200 jobs with job labels on histograms are 82,400 series), and its own
health. Anything that follows from a decision is observed after its ledger write has succeeded.
"""

from collections.abc import Callable
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from recovery.core.diagnosis.not_started import NotStarted
from recovery.core.incident.lifecycle import restarted
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Incident, Ledger, Phase, PhaseSpan
from recovery.core.model.protection import Protection
from recovery.core.model.reason import Reason
from recovery.core.policy.spec import Mode
from recovery.ports import Clock, GroupStore, WatchEnd
from recovery.telemetry.decision_labels import decisions
from recovery.telemetry.fleet_metrics import FleetCollector
from recovery.telemetry.groups_not_started import StartCollector
from recovery.telemetry.ledger_metrics import PREFIX, SCOPE, LedgerCollector
from recovery.telemetry.undecodable_objects import UndecodableCollector
from recovery.telemetry.unprotected_jobs import ProtectionCollector

CONTROLLER = "group"
"""Label of the only kind of reconciler and queue there is."""

_INCIDENT_SECONDS = (1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 3600)
_OWN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""For what this process does itself: a trigger is due within 250 ms of its pod event."""

_INTERRUPTED = "Interrupted"
"""Outcome of a rendezvous that a further loss or a time-out ended."""


class Metrics:
    """Implements what `controller` and `kube` report of their work, and renders it for Prometheus."""

    def __init__(self, *, clock: Clock, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._clock = clock
        self._ledgers = LedgerCollector(clock)
        self.registry.register(self._ledgers)
        self._fleet = FleetCollector(clock, PREFIX)
        self.registry.register(self._fleet)
        self._starts = StartCollector(PREFIX)
        self.registry.register(self._starts)
        self._protections = ProtectionCollector(PREFIX)
        self.registry.register(self._protections)
        self._undecodable = UndecodableCollector(PREFIX)
        self.registry.register(self._undecodable)
        self._incident_instruments()
        self._own_instruments()
        self._gauge("build_info", "What runs.", "version").labels(version).set(1)

    def _incident_instruments(self) -> None:
        buckets = _INCIDENT_SECONDS
        self._phase = self._histogram("phase_duration_seconds", "Phases of incidents.", buckets, "phase", "scope")
        for phase in Phase:
            if phase is not Phase.HEALTHY:
                self._phase.labels(phase, SCOPE)  # there from the start, so that the first one is an increase
        self._recovery = self._histogram(
            "recovery_duration_seconds", "Incidents, from the failure on.", buckets, "failure_class", "outcome"
        )
        self._rendezvous = self._histogram(
            "rendezvous_duration_seconds", "From the first join to all joined.", buckets, "outcome"
        )
        self._decisions = self._counter(
            "decisions_total", "Decisions about incidents, suppressed ones included.", "action", "reason", "mode"
        )
        self._suppressed = self._counter("actions_suppressed_total", "Actions called for and not taken.", "reason")
        self._refusals = self._counter("quarantine_refusals_total", "Nodes that were not quarantined.", "reason")

    def _own_instruments(self) -> None:
        buckets = _OWN_SECONDS
        self._reconcile = self._histogram("reconcile_duration_seconds", "Reconciles of a group.", buckets, "controller")
        self._reconcile_errors = self._counter(
            "reconcile_errors_total", "Reconciles that ended in an error.", "controller"
        )
        self._queue_depth = self._gauge("workqueue_depth", "Groups whose reconcile is due.", "name")
        self._queue_wait = self._histogram(
            "workqueue_queue_duration_seconds", "How long reconciles waited beyond their due time.", buckets, "name"
        )
        self._leader = self._gauge("leader", "Whether this process acts: 1, or stands by: 0.")
        self._leader_transitions = self._counter(
            "leader_transitions_total", "How often this process began to lead, or ceased to."
        )
        self._lag = self._histogram("event_loop_lag_seconds", "How late the event loop wakes a sleeper.", buckets)
        self._requests = self._counter(
            "api_requests_total", "Exchanges with the API server.", "verb", "resource", "code"
        )
        self._request_seconds = self._histogram(
            "api_request_duration_seconds", "Exchanges with the API server.", buckets, "verb", "resource"
        )
        self._watch_restarts = self._counter("watch_restarts_total", "Watches that ended early.", "resource", "reason")
        self._watch_event = self._gauge(
            "watch_last_event_timestamp_seconds", "When a watch last told anything, bookmarks included.", "resource"
        )

    def follow(self, store: GroupStore) -> None:
        """Tell of the ledgers of this store and of its RecoveryConfig, while this process leads, and of what in it
        cannot be read."""
        self._ledgers.follow(store)
        self._fleet.follow(store)
        self._starts.follow(store)
        self._protections.follow(store)
        self._undecodable.follow(store)

    def follow_queue(self, depth: Callable[[], int]) -> None:
        """Ask for the queue's depth at every scrape."""
        self._queue_depth.labels(CONTROLLER).set_function(lambda: float(depth()))

    def follow_admission(self, up: Callable[[], bool]) -> None:
        """Ask at every scrape whether the webhooks are served."""
        served = self._gauge("admission_up", "Whether the admission webhooks are served: 1, or nothing is checked: 0.")
        served.set_function(lambda: float(up()))

    # --- reported by the controller --------------------------------------------------------------------------------

    def reconciled(self, key: GroupKey, found: NotStarted | None) -> None:
        """A reconcile of the group is over. `found` None: it has started, or nobody watches it."""
        self._starts.reconciled(key, found)

    def protection_found(self, key: GroupKey, found: Protection) -> None:
        """A reconcile has found out whether the job is protected."""
        self._protections.found(key, found)

    def ledger_written(self, key: GroupKey, before: Ledger, after: Ledger) -> None:
        """Observe what ended with this write, and count what it decided."""
        for made in decisions(before, after):
            self._decisions.labels(made.action, made.reason, made.mode).inc()
            if made.suppressed:
                self._suppressed.labels(made.suppressed).inc()
        incident = after.incident
        if incident is None:
            return
        known = before.incident if before.incident is not None and before.incident.id == incident.id else None
        before_keys = {each.key for each in known.considered} if known is not None else set()
        for each in incident.considered if incident.mode == Mode.ENFORCE else ():
            if (why := _REFUSALS.get(each.reason)) and each.key not in before_keys:
                self._refusals.labels(why).inc()
        ended = _spans_ended(known, incident)
        for span, ended_at in ended:
            self._phase.labels(span.phase, SCOPE).observe((ended_at - span.started_at).total_seconds())
        closed = incident.closing is not None and (known is None or known.closing is None)
        self._observe_rendezvous(after, incident, ended, closed=closed)
        if incident.closing is not None and closed:
            seconds = (incident.closing.ended_at - incident.started_at).total_seconds()
            self._recovery.labels(incident.disruption_class, incident.closing.outcome).observe(seconds)
        self._ledgers.remember_phases(key, incident)

    def _observe_rendezvous(
        self, after: Ledger, incident: Incident, ended: list[tuple[PhaseSpan, datetime]], *, closed: bool
    ) -> None:
        outcome = str(incident.closing.outcome) if incident.closing is not None and closed else _INTERRUPTED
        spans = [(span, ended_at) for span, ended_at in ended if span.phase is Phase.RENDEZVOUS]
        for span, ended_at in spans:
            self._rendezvous.labels(outcome).observe((ended_at - span.started_at).total_seconds())
        joined = closed and incident.closing is not None and bool(incident.closing.source)
        if joined and not spans and restarted(after):
            # All were Ready as soon as they ran: without a probe Kubernetes tells both at once.
            self._rendezvous.labels(outcome).observe(0.0)

    def reconcile_finished(self, key: GroupKey, seconds: float, error: str | None) -> None:
        """A reconcile of a group is over; `error` names the class of what went wrong."""
        self._reconcile.labels(CONTROLLER).observe(seconds)
        if error is not None:
            self._reconcile_errors.labels(CONTROLLER).inc()

    def queue_waited(self, seconds: float, depth: int) -> None:
        """A group was reconciled this long after it was due. `depth` is asked for at the scrape instead."""
        self._queue_wait.labels(CONTROLLER).observe(seconds)

    def leadership_changed(self, *, leads: bool) -> None:
        """This process has begun to lead, or has ceased to: who leads tells of the ledgers."""
        self._ledgers.leads = self._fleet.leads = self._protections.leads = leads
        self._starts.forget()
        self._protections.forget()
        self._leader.set(leads)
        self._leader_transitions.inc()

    # --- reported by kube ------------------------------------------------------------------------------------------

    def request_finished(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """An exchange is over; `code` is the HTTP status, or what came in its place."""
        self._requests.labels(verb, resource, code).inc()
        self._request_seconds.labels(verb, resource).observe(seconds)

    def watch_event(self, resource: str) -> None:
        """A line of a watch arrived."""
        self._watch_event.labels(resource).set(self._clock.now().timestamp())

    def watch_restarted(self, resource: str, reason: WatchEnd, _message: str) -> None:
        """A watch ended otherwise than by its time limit."""
        self._watch_restarts.labels(resource, reason).inc()

    # --- reported by telemetry itself ------------------------------------------------------------------------------

    def event_loop_lagged(self, seconds: float) -> None:
        """A sleeper was woken this much too late."""
        self._lag.observe(seconds)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(PREFIX + name, text, labels, buckets=buckets, registry=self.registry)


_REFUSALS = {
    Reason.QUARANTINE_CAP: "cap",
    Reason.QUARANTINE_NOT_ALLOWED: "permission",
    Reason.QUARANTINE_LAST_NODES: "feasible",
}
"""The label under which a refused quarantine is counted."""


def _spans_ended(known: Incident | None, incident: Incident) -> list[tuple[PhaseSpan, datetime]]:
    """The spans that ended since `known`, with their ends. (The oldest spans may have been merged meanwhile: a merged
    span begins as one that had ended before.)"""
    before = {(span.phase, span.started_at) for span in known.phases if span.ended_at} if known is not None else set()
    return [
        (span, span.ended_at)
        for span in incident.phases
        if span.ended_at is not None and (span.phase, span.started_at) not in before
    ]
