"""The metrics that the ledgers tell, computed from them at every scrape.

Nothing is counted here: each value follows from `RecoveryGroup.status` and the clock. So the metrics equal a fold over
it, a new leader goes on where the last one stopped, and the series of a job end with its RecoveryGroup. Every replica
has the ledgers at hand and only the leader tells of them: else a sum over all replicas would count each job twice.

Two things are remembered all the same. How far a counter had come: what runs is accrued up to now, but booked up to
when it ended (the last rank may have been Ready a second before anybody looked), and a counter must never go back. And
the phases of the last incident, because the ledger drops them once the incident is recorded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.incident import budget
from recovery.core.incident.lifecycle import restarted
from recovery.core.model.facts import GroupKey, PodFacts, Snapshot
from recovery.core.model.ledger import Incident, Ledger, LedgerObject, Phase
from recovery.core.policy.resolved import Policy
from recovery.core.policy.selection import applicable
from recovery.ports import Clock, GroupStore

PREFIX = "recovery_"
SCOPE = "group"
"""What is restarted: the only scope so far."""

_UNKNOWN_CLASS = "unknown"

_IDLE_REASONS = {
    Phase.DETECTED: "detect",
    Phase.DECIDED: "decide",
    Phase.FENCING: "fencing",
    Phase.TEARING_DOWN: "teardown",
    Phase.BACKOFF: "backoff",
    Phase.SCHEDULING: "schedule",
    Phase.STARTING: "start",
    Phase.RENDEZVOUS: "rendezvous",
    Phase.RESUMING: "resume",
    Phase.HELD: "hung",
}

_BOOKED_REASONS = {**_IDLE_REASONS, Phase.DECIDED: "hung"}
"""The reason under which the seconds of a phase are counted.

The ledger books by phase alone, so a phase must always count as the same reason; otherwise what was told as one reason
while it ran would be told again as another once it is booked. Decided lasts milliseconds where something is done about
a failure, and long only where nothing is: its seconds are those of a group that hangs.
"""


class _Job(msgspec.Struct, frozen=True):
    """A job as the scrape sees it."""

    group: LedgerObject
    gpus: int
    budget_left: int
    budget_limit: int

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.group.namespace, self.group.group)

    @property
    def ledger(self) -> Ledger:
        return self.group.ledger


_Values = Callable[[_Job], Mapping[str, float]]
"""One job's values by the value of the extra label; the key is empty where there is none."""


class LedgerCollector(Collector):
    """A prometheus collector over all RecoveryGroups that the store knows. Without a store, or while another process
    leads, it tells nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._store: GroupStore | None = None
        self.leads = False
        """Whether this process acts, and so tells of the jobs."""
        self._reached: dict[tuple[str, str], float] = {}
        """By RecoveryGroup UID and reason: the idle GPU-seconds told at the last scrape."""
        self._last_phases: dict[GroupKey, Mapping[str, float]] = {}

    def follow(self, store: GroupStore) -> None:
        """Tell of the ledgers of this store from now on."""
        self._store = store

    def remember_phases(self, key: GroupKey, incident: Incident) -> None:
        """Keep what the phases of an incident took for when the ledger forgets it."""
        self._last_phases[key] = _phase_durations(incident)

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would collect instead, to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        if self._store is None or not self.leads:
            return
        now = self._clock.now()
        jobs = _jobs(self._store, now)
        self._last_phases = {job.key: self._phases_of(job) for job in jobs}
        counters: tuple[tuple[str, str, _Values, str], ...] = (
            ("gpu_idle_seconds_total", "reason", self._idle_seconds(jobs, now), "GPU-seconds lost to incidents."),
            ("failures_total", "failure_class", _failures, "Classified failures."),
            (
                "group_restarts_total",
                "scope",
                _restarts,
                "Restarts of the group, adopted ones of the platform included.",
            ),
        )
        gauges: tuple[tuple[str, str, _Values, str], ...] = (
            ("gpus_idle", "reason", _gpus_idle, "GPUs that are idle right now because of an incident."),
            ("job_gpus", "", lambda job: {"": job.gpus}, "GPUs that the group holds."),
            ("job_phase", "phase", _phase, "1 for the phase that the group is in, 0 for all others."),
            ("last_phase_duration_seconds", "phase", self._phases_of, "How long the last incident's phases took."),
            ("incident_start_timestamp_seconds", "", _incident_start, "When the open incident's failure happened."),
            ("restart_budget_remaining", "", lambda job: {"": job.budget_left}, "Recoveries left in the window."),
            ("restart_budget_limit", "", lambda job: {"": job.budget_limit}, "Recoveries allowed per window."),
        )
        for name, label, values, text in counters:
            yield _filled(CounterMetricFamily(PREFIX + name, _help(text), labels=_label_names(label)), jobs, values)
        for name, label, values, text in gauges:
            yield _filled(GaugeMetricFamily(PREFIX + name, _help(text), labels=_label_names(label)), jobs, values)

    def _idle_seconds(self, jobs: Iterable[_Job], now: datetime) -> _Values:
        """What is booked, and the running phase up to now; never less than what was told before."""
        reached: dict[tuple[str, str], float] = {}
        for job in jobs:
            for reason, seconds in _idle_gpu_seconds(job.ledger, now).items():
                told = (job.group.uid, reason)
                reached[told] = max(seconds, self._reached.get(told, 0.0))
        self._reached = reached
        reasons = tuple(dict.fromkeys(_BOOKED_REASONS.values()))
        return lambda job: {reason: reached[job.group.uid, reason] for reason in reasons}

    def _phases_of(self, job: _Job) -> Mapping[str, float]:
        if job.ledger.incident is not None:
            return _phase_durations(job.ledger.incident)
        return self._last_phases.get(job.key, {})


def _jobs(store: GroupStore, now: datetime) -> tuple[_Job, ...]:
    """The jobs with a readable ledger. One whose workload is gone only waits to be collected: nothing of it idles."""
    jobs = []
    for group in store.ledger_objects():
        snapshot = store.snapshot(GroupKey(group.namespace, group.group))
        workload = snapshot.workload
        if workload is not None and workload.uid == group.workload_uid and group.readable:
            policy = applicable(store.policies(group.namespace), workload)
            jobs.append(_job(group, snapshot, policy if isinstance(policy, Policy) else None, now))
    return tuple(jobs)


def _job(group: LedgerObject, snapshot: Snapshot, policy: Policy | None, now: datetime) -> _Job:
    """While an incident is open by what was noted when it opened; between incidents by its pods and policy now."""
    state, incident = group.ledger.budget, group.ledger.incident
    if incident is not None:
        window = timedelta(seconds=incident.pinned.budget_window_seconds)
        limit = incident.pinned.budget_limit
        return _Job(group, incident.gpus, budget.remaining(state, limit, window, now), limit)
    gpus = sum(pod.gpus for pod in snapshot.pods if _holds_gpus(pod))
    if policy is None:
        return _Job(group, gpus, state.remaining, state.limit)
    # Charges leave the window without a ledger write.
    left = budget.remaining(state, policy.budget_limit, policy.budget_window, now)
    return _Job(group, gpus, left, policy.budget_limit)


def _holds_gpus(pod: PodFacts) -> bool:
    return pod.gone_at is None and bool(pod.node) and pod.phase not in {"Succeeded", "Failed"}


def _help(text: str) -> str:
    return f"{text} Told by the leader only."


def _label_names(extra: str) -> tuple[str, ...]:
    return ("namespace", "job_name", extra) if extra else ("namespace", "job_name")


def _filled(family: CounterMetricFamily | GaugeMetricFamily, jobs: Iterable[_Job], values: _Values) -> Metric:
    for job in jobs:
        labels = (job.key.namespace, job.key.name)
        for extra, value in values(job).items():
            family.add_metric((*labels, extra) if extra else labels, value)
    return family


def _open_incident(ledger: Ledger) -> Incident | None:
    incident = ledger.incident
    return incident if incident is not None and incident.closing is None else None


def _gpus_idle(job: _Job) -> Mapping[str, float]:
    idle = dict.fromkeys(_IDLE_REASONS.values(), 0.0)
    incident = _open_incident(job.ledger)
    if incident is not None:
        # Observed, stood aside from, left to Kubernetes: nobody decides any more, the group just hangs.
        nothing_done = job.ledger.phase is Phase.DECIDED and not restarted(job.ledger)
        idle["hung" if nothing_done else _IDLE_REASONS.get(job.ledger.phase, "hung")] = float(incident.gpus)
    return idle


def _idle_gpu_seconds(ledger: Ledger, now: datetime) -> Mapping[str, float]:
    """By reason: what the ledger has booked, and the running phase up to now."""
    seconds = dict.fromkeys(_BOOKED_REASONS.values(), 0.0)
    for phase, reason in _BOOKED_REASONS.items():
        seconds[reason] += ledger.totals.idle_gpu_seconds.get(phase, 0.0)
    incident = _open_incident(ledger)
    if incident is not None and incident.phases and incident.phases[-1].ended_at is None:
        running = incident.phases[-1]
        elapsed = max(0.0, (now - running.started_at).total_seconds())
        seconds[_BOOKED_REASONS[running.phase]] += elapsed * incident.gpus
    return seconds


def _failures(job: _Job) -> Mapping[str, float]:
    """By class; names that this version does not know are told as one, so that labels stay bounded."""
    known = frozenset(DisruptionClass)
    counts: dict[str, float] = {}
    for name, count in job.ledger.totals.failures.items():
        label = name if name in known else _UNKNOWN_CLASS
        counts[label] = counts.get(label, 0.0) + count
    return counts


def _restarts(job: _Job) -> Mapping[str, float]:
    return {SCOPE: job.ledger.totals.restarts}


def _phase(job: _Job) -> Mapping[str, float]:
    return {phase: float(phase is job.ledger.phase) for phase in Phase}


def _incident_start(job: _Job) -> Mapping[str, float]:
    incident = _open_incident(job.ledger)
    return {"": incident.started_at.timestamp()} if incident is not None else {}


def _phase_durations(incident: Incident) -> Mapping[str, float]:
    """Seconds by phase; the last of several spans of one phase."""
    return {
        span.phase: (span.ended_at - span.started_at).total_seconds()
        for span in incident.phases
        if span.ended_at is not None
    }
