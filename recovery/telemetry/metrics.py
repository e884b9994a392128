"""All metrics of the controller on one registry. `catalogue` has their names and what they mean.

What a ledger shows is computed at the scrape (`ledger_metrics`, `fleet_totals`). What only this process knows is
observed here and in `incident_instruments`: durations, and its own health. Anything that follows from a decision is
observed after its ledger write has succeeded.
"""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.core.diagnosis.not_started import NotStarted
from recovery.core.model.agent_facts import AgentFacts
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.protection import Protection
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError
from recovery.ports import Clock, GroupStore, LossWait, WatchEnd
from recovery.telemetry.admission_metrics import AdmissionMetrics
from recovery.telemetry.agent_metrics import AgentMetrics
from recovery.telemetry.cache_metrics import CacheCollector
from recovery.telemetry.catalogue import of_process
from recovery.telemetry.catalogue.label_values import CONTROLLER
from recovery.telemetry.families import counter, gauge, histogram
from recovery.telemetry.fleet_metrics import FleetCollector
from recovery.telemetry.fleet_totals import FleetTotalsCollector
from recovery.telemetry.groups_not_started import StartCollector
from recovery.telemetry.incident_instruments import IncidentInstruments
from recovery.telemetry.jobs_found import FoundJobs
from recovery.telemetry.ledger_metrics import LedgerCollector
from recovery.telemetry.pieces import Pieces
from recovery.telemetry.rendezvous_metrics import RendezvousMetrics
from recovery.telemetry.unprotected_jobs import ProtectionCollector

_OWN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Buckets for what this process does itself: a trigger is due within 250 ms of its pod event."""


class _Nested(Collector):
    """A registry in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()


class Metrics:
    """Implements what `controller` and `kube` report of their work, and renders it for Prometheus."""

    def __init__(self, *, clock: Clock, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        """All metrics."""
        self._instruments = CollectorRegistry()
        """The metrics that are collected in one step."""
        self.registry.register(_Nested(self._instruments))
        self.terms = 0
        """How often this process has begun or ceased to lead. An exposition of an earlier term is out of date."""
        self._clock = clock
        self._jobs = FoundJobs()
        self._rendezvous = RendezvousMetrics(self._instruments, clock)
        self._ledgers = LedgerCollector(clock, self._jobs, self._rendezvous.agents_of)
        self._fleet = FleetCollector(clock, self._jobs)
        self._totals = FleetTotalsCollector(clock, self._jobs)
        self._starts = StartCollector()
        self._protections = ProtectionCollector()
        self._caches = CacheCollector()
        self._collectors = (
            self._ledgers,
            self._fleet,
            self._totals,
            self._starts,
            self._protections,
            self._caches,
        )
        self._in_pieces = (self._ledgers, self._totals)
        for collector in self._collectors:
            (self.registry if collector in self._in_pieces else self._instruments).register(collector)
        self._incidents = IncidentInstruments(self._instruments)
        self._own_instruments()
        gauge(of_process.BUILD_INFO, self._instruments).labels(version).set(1)

    def _own_instruments(self) -> None:
        registry = self._instruments
        self._reconcile = histogram(of_process.RECONCILE_DURATION, registry, _OWN_SECONDS)
        self._reconcile_errors = counter(of_process.RECONCILE_ERRORS, registry)
        self._reconcile_errors.labels(CONTROLLER)
        self._queue_depth = gauge(of_process.WORKQUEUE_DEPTH, registry)
        self._queue_wait = histogram(of_process.WORKQUEUE_WAIT, registry, _OWN_SECONDS)
        self._loss_wait = histogram(of_process.LOSS_WAIT, registry, _OWN_SECONDS)
        self._leader = gauge(of_process.LEADER, registry)
        self._leader_transitions = counter(of_process.LEADER_TRANSITIONS, registry)
        self._holds_for_another = gauge(of_process.HOLDS_FOR_ANOTHER, registry)
        self._lag = histogram(of_process.EVENT_LOOP_LAG, registry, _OWN_SECONDS)
        self._requests = counter(of_process.API_REQUESTS, registry)
        self._request_seconds = histogram(of_process.API_REQUEST_DURATION, registry, _OWN_SECONDS)
        self._watch_restarts = counter(of_process.WATCH_RESTARTS, registry)
        self._watch_event = gauge(of_process.WATCH_LAST_EVENT, registry)
        self._missing_permissions = gauge(of_process.MISSING_PERMISSIONS, registry)

    def follow(self, store: GroupStore) -> None:
        """Report the jobs and the RecoveryConfig of this store while this process leads, and its unreadable objects and
        stale watches at all times."""
        self._jobs.follow(store)
        self._rendezvous.follow(store)
        for collector in self._collectors:
            collector.follow(store)

    def follow_queue(self, depth: Callable[[], int]) -> None:
        """Ask for the queue's depth at every scrape."""
        self._queue_depth.labels(CONTROLLER).set_function(lambda: float(depth()))

    def follow_process(self) -> None:
        """Report the memory, the CPU time and the open files of this process, if the system provides them."""
        ProcessCollector(registry=self._instruments)

    def admission(self, webhooks: Sequence[str]) -> AdmissionMetrics:
        """Add the metrics of a server of these webhooks. Without a call there are none."""
        return AdmissionMetrics(self._instruments, webhooks)

    def agents(self) -> AgentMetrics:
        """Add the metrics of an endpoint for agents. Without a call there are none."""
        return AgentMetrics(self._instruments, self._clock)

    def pieces(self) -> Pieces:
        """All metrics, as of the moment of the first family."""
        yield from self._jobs.read_others()
        begun = [collector.pieces() for collector in self._in_pieces]
        yield from tuple(self._instruments.collect())
        for pieces in begun:
            yield from pieces

    def permissions_missing(self, missing: Iterable[tuple[str, str]]) -> None:
        """The controller lacked these permissions at its start: verb and resource of each."""
        for verb, resource in missing:
            self._missing_permissions.labels(verb, resource).set(1)

    # --- reported by controller ------------------------------------------------------------------------------------

    def facts_read(self, key: GroupKey, snapshot: Snapshot, policy: Policy | PolicyError | None) -> None:
        """A reconcile decides on these facts."""
        self._jobs.read(key, snapshot, policy)
        self._rendezvous.facts_read(key, snapshot)

    def agents_reported(self, key: GroupKey, facts: AgentFacts) -> None:
        """The agents of a group have reported."""
        self._rendezvous.reported(key, facts)

    def workload_gone(self, key: GroupKey) -> None:
        """The workload does not exist any more."""
        self._rendezvous.gone(key)

    def reconciled(self, key: GroupKey, found: NotStarted | None) -> None:
        """A reconcile of the group is over. `found` None: it has started, or is not watched."""
        self._starts.reconciled(key, found)

    def protection_found(self, key: GroupKey, found: Protection) -> None:
        """A reconcile has found out whether the job is protected."""
        self._protections.found(key, found)

    def ledger_written(self, key: GroupKey, before: Ledger, after: Ledger) -> None:
        """Observe what ended with this write, and count what it decided."""
        self._incidents.ledger_written(before, after)
        self._rendezvous.ledger_written(key, before, after)
        self._totals.ledger_written(key, before, after)
        if after.incident is not None:
            self._ledgers.remember_phases(key, after.incident)

    def reconcile_finished(self, key: GroupKey, seconds: float, error: str | None) -> None:
        """A reconcile of a group is over; `error` names the class of what went wrong."""
        self._reconcile.labels(CONTROLLER).observe(seconds)
        if error is not None:
            self._reconcile_errors.labels(CONTROLLER).inc()

    def queue_waited(self, seconds: float) -> None:
        """A group was reconciled this long after it was due."""
        self._queue_wait.labels(CONTROLLER).observe(seconds)

    def loss_waited(self, cause: LossWait, seconds: float) -> None:
        """A loss waited so long for its ledger, mostly for this cause."""
        self._loss_wait.labels(str(cause)).observe(seconds)

    def leadership_changed(self, *, leads: bool) -> None:
        """This process has begun to lead, or has ceased to: the leader reports the ledgers."""
        self._ledgers.leads = self._fleet.leads = self._totals.leads = self._protections.leads = leads
        self._rendezvous.leadership_changed(leads=leads)
        self._jobs.forget()
        self._starts.forget()
        self._protections.forget()
        self.terms += 1
        self._leader.set(leads)
        self._leader_transitions.inc()

    def holds_for_another(self, *, holds: bool) -> None:
        """This process is elected, but does nothing while a controller with an older Lease acts; or no longer so."""
        self._holds_for_another.set(holds)

    # --- reported by kube ------------------------------------------------------------------------------------------

    def request_finished(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """A request is over. `code` is the HTTP status, or the failure if there was no answer."""
        self._requests.labels(verb, resource, code).inc()
        self._request_seconds.labels(verb, resource).observe(seconds)

    def watch_event(self, resource: str) -> None:
        """A line of a watch arrived."""
        self._watch_event.labels(resource).set(self._clock.now().timestamp())

    def watch_restarted(self, resource: str, reason: WatchEnd, _message: str) -> None:
        """A watch ended before its time limit, or could not be opened."""
        self._watch_restarts.labels(resource, reason).inc()

    # --- reported by telemetry itself ------------------------------------------------------------------------------

    def event_loop_lagged(self, seconds: float) -> None:
        """A sleeper was woken this much too late."""
        self._lag.observe(seconds)
