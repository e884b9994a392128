"""The metrics of jobs, computed at every scrape from their ledgers and from what reconciles have read.

Nothing is counted here: each counter follows from `RecoveryGroup.status` and the clock. So the metrics equal a fold
over it, a new leader continues where the last one stopped, and the series of a job end with its workload. They begin at
0 when a policy first selects the job: a counter that begins at 1 shows no increase. Every replica has the ledgers, but
only the leader reports them: otherwise a sum over all replicas would count each job twice.

Two things are still remembered: the value that each counter has reached (`idle_cells`), and the phases of the last
incident, because the ledger drops them once the incident is recorded.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recovery.core.incident import budget
from recovery.core.incident.lifecycle import restarted
from recovery.core.model.agent_facts import AgentFacts
from recovery.core.model.facts import GroupKey
from recovery.core.model.group_size import ElasticState
from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.model.progress import Progress
from recovery.core.plan.status_conditions import in_crash_loop, is_proven
from recovery.ports import Clock, GroupStore
from recovery.telemetry.agent_rendezvous import PROCESSES_RUN, meets_now
from recovery.telemetry.catalogue import MetricRecord, of_jobs
from recovery.telemetry.catalogue.label_values import (
    ARRIVED,
    EXPECTED,
    FAILURE_CLASSES,
    FAILURE_REASONS,
    HUNG,
    IDLE_REASONS,
    JOINED,
    NO_MODE,
    PHASES,
    REASONS,
    SCOPE,
    badput_of,
    known_class,
)
from recovery.telemetry.families import family
from recovery.telemetry.idle_cells import (
    IdleCell,
    Monotone,
    booked_in,
    hanging,
    merged,
    open_incident,
    running_of,
    running_span,
    thousandths,
)
from recovery.telemetry.jobs_found import FoundJob, FoundJobs
from recovery.telemetry.pieces import Pieces, complete
from recovery.telemetry.smaller_groups import smaller_group, smaller_run

_MEETING = frozenset({"Starting", "Rendezvous", "Resuming"})
"""Phases in which the members of a restarted group come together."""

_SHORT = frozenset({Phase.DETECTED, Phase.STOPPING})
"""Phases that have no series at 0: a ledger is never written in Detected, and Stopping lasts for about a second."""

_JOBS_AT_ONCE = 20
"""Jobs in one step: about 300 samples, less than a millisecond."""


class _Sum(Enum):
    """Used in place of a cell by counters without labels of their own."""

    RELEASED = auto()
    """GPU-seconds that a suspension has released."""
    SMALLER = auto()
    """Seconds with fewer nodes than wanted."""
    GAINED = auto()
    """GPU-seconds that the group ran in that time."""


_Counted = IdleCell | _Sum


class _Job(msgspec.Struct, frozen=True):
    """A job as the scrape sees it."""

    key: GroupKey
    found: FoundJob
    group_uid: str
    """UID of its RecoveryGroup. Empty: it has none."""
    ledger: Ledger
    """An empty ledger if the job has no RecoveryGroup: it never had an incident."""
    progress: Progress | None
    """The last progress report of its training. None: there is none."""
    agent: AgentFacts | None
    """The last report of its agents. None: there is none, or they have been silent for long."""
    readable: bool
    """False: this version cannot read the ledger, so nothing of it is reported."""


Samples = Mapping[tuple[str, ...], float]
_Values = Callable[[_Job], Samples]
"""The values of one job, by the label values that follow those of the job."""
_Cells = dict[_Counted, float]
"""The values of the counters of one job."""


class LedgerCollector(Collector):
    """A prometheus collector over all jobs that a policy selects, and all that have a RecoveryGroup. Without a store,
    or while another process leads, it reports nothing."""

    def __init__(
        self, clock: Clock, jobs: FoundJobs, agents_of: Callable[[GroupKey], AgentFacts | None] = lambda _: None
    ) -> None:
        """`agents_of`: the latest report of a group's agents."""
        self._clock = clock
        self._found = jobs
        self._agents_of = agents_of
        self._store: GroupStore | None = None
        self.leads = False
        """Whether this process leads, and so reports the jobs."""
        self._reached: Monotone[tuple[str, _Counted]] = Monotone()
        """By UID of the RecoveryGroup."""
        self._last_phases: dict[GroupKey, Mapping[str, float]] = {}

    def follow(self, store: GroupStore) -> None:
        """Report the ledgers of this store from now on."""
        self._store = store

    def remember_phases(self, key: GroupKey, incident: Incident) -> None:
        """Keep the phase durations of an incident for when the ledger drops it."""
        self._last_phases[key] = _phase_durations(incident)

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that no registry collects to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        return complete(self.pieces())

    def pieces(self) -> Pieces:
        """See `MadeInPieces`."""
        if self._store is None or not self.leads:
            return iter(())
        jobs = _jobs(self._store, self._found.present(), self._agents_of)
        self._last_phases = {job.key: self._phases_of(job) for job in jobs if job.readable}
        return self._families(jobs, dict(self._last_phases), self._clock.now())

    def _families(
        self, jobs: Sequence[_Job], last_phases: Mapping[GroupKey, Mapping[str, float]], now: datetime
    ) -> Pieces:
        ledgers = [job for job in jobs if job.readable]
        sums = yield from self._counted(ledgers, now)
        of_all: tuple[tuple[MetricRecord, _Values], ...] = (
            (of_jobs.JOB_GPUS, _gpus),
            (of_jobs.JOB_INFO, _info),
            (of_jobs.JOB_PROGRESS, _progress),
            (of_jobs.JOB_PROGRESS_TIMESTAMP, _progress_timestamp),
        )
        of_ledgers: tuple[tuple[MetricRecord, _Values], ...] = (
            (of_jobs.GPU_IDLE_SECONDS, lambda job: _by_reason(sums[job.group_uid])),
            (of_jobs.GPU_IDLE_BY_CLASS_SECONDS, lambda job: _by_class(sums[job.group_uid])),
            (of_jobs.GPU_RELEASED_SECONDS, lambda job: {(): thousandths(sums[job.group_uid][_Sum.RELEASED])}),
            (of_jobs.GROUP_REDUCED_SECONDS, lambda job: {(): thousandths(sums[job.group_uid][_Sum.SMALLER])}),
            (of_jobs.GPU_GAINED_SECONDS, lambda job: {(): thousandths(sums[job.group_uid][_Sum.GAINED])}),
            (of_jobs.FAILURES, _failures),
            (
                of_jobs.GROUP_RESTARTS,
                lambda job: {(SCOPE,): job.ledger.totals.restarts - job.ledger.totals.drill_restarts},
            ),
            (of_jobs.GPUS_IDLE, _gpus_idle),
            (of_jobs.GPUS_RELEASED, _gpus_released),
            (of_jobs.JOB_PHASE, _phases),
            (of_jobs.JOB_STANDING, lambda job: {(job.ledger.standing,): 1.0}),
            (
                of_jobs.LAST_PHASE_DURATION,
                lambda job: {(phase,): seconds for phase, seconds in last_phases[job.key].items()},
            ),
            (of_jobs.INCIDENT_START, _incident_start),
            (of_jobs.INCIDENT_INFO, _incident_info),
            (of_jobs.RENDEZVOUS_PARTICIPANTS, _participants),
            (of_jobs.GROUP_NODES, lambda job: _of_smaller(job, lambda size: size.nodes)),
            (of_jobs.GROUP_NODES_WANTED, lambda job: _of_smaller(job, lambda size: size.wanted_nodes)),
            (of_jobs.GROUP_REDUCED_START, lambda job: _of_smaller(job, lambda size: size.since.timestamp())),
            (of_jobs.GROUP_FAILED_GROWTHS, lambda job: _of_smaller(job, lambda size: size.failed_growths)),
            (of_jobs.BUDGET_REMAINING, lambda job: {(): _budget(job, now)[0]}),
            (of_jobs.BUDGET_LIMIT, lambda job: {(): _budget(job, now)[1]}),
            (of_jobs.CRASH_LOOP, lambda job: {(): 1.0} if in_crash_loop(job.ledger) else {}),
            (of_jobs.PROVEN_TIMESTAMP, _proven_timestamp),
            (of_jobs.PROOF_VALID, _proof_valid),
        )
        for record, values in of_all:
            yield from _filled(record, jobs, values)
        for record, values in of_ledgers:
            yield from _filled(record, ledgers, values)

    def _counted(self, jobs: Sequence[_Job], now: datetime) -> Generator[None, None, Mapping[str, _Cells]]:
        """What is booked, plus the certain part of what is in progress, by UID of the RecoveryGroup."""
        values: dict[tuple[str, _Counted], float] = {}
        for job in _in_turns(jobs):
            if job is None:
                yield
                continue
            running, released = running_of(job.ledger, now)
            booked = booked_in(job.ledger.totals)
            values |= {(job.group_uid, cell): seconds for cell, seconds in merged(booked, running).items()}
            values[job.group_uid, _Sum.RELEASED] = job.ledger.totals.released_gpu_seconds + released
            smaller = smaller_run(job.ledger, now)
            values[job.group_uid, _Sum.SMALLER] = smaller.seconds
            values[job.group_uid, _Sum.GAINED] = smaller.gpu_seconds
        sums: dict[str, _Cells] = {job.group_uid: {} for job in jobs}
        self._reached.keep_only(lambda key: key[0] in sums)
        for (uid, cell), seconds in self._reached.raised(values).items():
            sums[uid][cell] = seconds
        return sums

    def _phases_of(self, job: _Job) -> Mapping[str, float]:
        if job.ledger.incident is not None:
            return _phase_durations(job.ledger.incident)
        return self._last_phases.get(job.key, {})


def _jobs(
    store: GroupStore, present: Mapping[GroupKey, FoundJob], agents_of: Callable[[GroupKey], AgentFacts | None]
) -> tuple[_Job, ...]:
    """The jobs that a policy selects, and those with a RecoveryGroup. A RecoveryGroup whose workload is gone is left
    out: it only waits for its garbage collection, and no GPU is idle for it."""
    jobs = []
    for key, found in present.items():
        group = store.ledger_object(key, found.workload_uid)
        agent = agents_of(key)
        if group is not None:
            jobs.append(_Job(key, found, group.uid, group.ledger, store.progress(key), agent, group.readable))
        elif found.selected:
            jobs.append(_Job(key, found, "", Ledger(), store.progress(key), agent, readable=True))
    return tuple(jobs)


def _in_turns(jobs: Iterable[_Job]) -> Iterator[_Job | None]:
    """All jobs. None: other tasks may run now."""
    for number, job in enumerate(jobs, 1):
        yield job
        if number % _JOBS_AT_ONCE == 0:
            yield None


def _filled(record: MetricRecord, jobs: Iterable[_Job], values: _Values) -> Pieces:
    made = family(record)
    for job in _in_turns(jobs):
        if job is None:
            yield None
            continue
        of_job = (job.key.namespace, job.key.name)
        for labels, value in values(job).items():
            made.add_metric((*of_job, *labels), value)
    yield made


def _by_reason(cells: _Cells) -> Samples:
    seconds = dict.fromkeys(FAILURE_REASONS, 0.0)
    for cell, spent in cells.items():
        if isinstance(cell, IdleCell):
            seconds[cell.reason] = seconds.get(cell.reason, 0.0) + spent
    return {(reason, badput_of(reason)): thousandths(spent) for reason, spent in seconds.items()}


def _by_class(cells: _Cells) -> Samples:
    seconds = dict.fromkeys(FAILURE_CLASSES, 0.0)
    for cell, spent in cells.items():
        if isinstance(cell, IdleCell):
            seconds[cell.failure_class] = seconds.get(cell.failure_class, 0.0) + spent
    return {(name,): thousandths(spent) for name, spent in seconds.items()}


def _gpus(job: _Job) -> Samples:
    """While an incident is open, the GPUs that it has noted. Between incidents, those of the job's pods."""
    incident = open_incident(job.ledger) if job.readable else None
    return {(): job.found.gpus if incident is None else incident.gpus_now}


def _info(job: _Job) -> Samples:
    return {(job.found.mode, job.found.kind): 1.0} if job.found.mode != NO_MODE else {}


def _progress(job: _Job) -> Samples:
    progress = job.progress
    return {(): progress.ratio} if progress is not None and progress.ratio is not None else {}


def _progress_timestamp(job: _Job) -> Samples:
    return {(): job.progress.updated_at.timestamp()} if job.progress is not None else {}


def _phases(job: _Job) -> Samples:
    """A job in none of the short phases has no series for them, which keeps a scrape small."""
    present = job.ledger.phase
    shown = (phase for phase in PHASES if phase is present or phase not in _SHORT)
    return {(phase,): float(phase is present) for phase in shown}


def _budget(job: _Job, now: datetime) -> tuple[int, int]:
    """The remaining budget and its limit, by the terms of the incident if there is one, else by the current policy."""
    state, incident, window = job.ledger.budget, job.ledger.incident, job.found.budget_window
    if incident is not None:
        pinned = timedelta(seconds=incident.pinned.budget_window_seconds)
        limit = incident.pinned.budget_limit
        return budget.remaining(state, limit, pinned, now), limit
    if window is None:
        return state.remaining, state.limit
    # Charges leave the window without a ledger write.
    return budget.remaining(state, job.found.budget_limit, window, now), job.found.budget_limit


def _gpus_idle(job: _Job) -> Samples:
    idle: dict[tuple[str, ...], float] = {(reason,): 0.0 for reason in REASONS}
    incident, span, hangs = open_incident(job.ledger), running_span(job.ledger), hanging(job.ledger)
    if hangs is not None:
        idle[(HUNG,)] = float(hangs.gpus)
    if incident is not None and not (span is not None and span.released):
        # Only observed, or left to others or to Kubernetes: no decision follows, and the group hangs.
        nothing_done = job.ledger.phase is Phase.DECIDED and not restarted(job.ledger)
        idle[(HUNG if nothing_done else IDLE_REASONS.get(job.ledger.phase, HUNG),)] = float(incident.gpus_now)
    return idle


def _gpus_released(job: _Job) -> Samples:
    incident, span = open_incident(job.ledger), running_span(job.ledger)
    released = incident is not None and span is not None and span.released
    return {(): float(incident.gpus_now) if released and incident is not None else 0.0}


def _failures(job: _Job) -> Samples:
    """Failures by class. Classes that this version does not know are reported as one, so that labels stay bounded."""
    counts: dict[tuple[str, ...], float] = {(name,): 0.0 for name in FAILURE_CLASSES}
    for name, count in job.ledger.totals.failures.items():
        known = (known_class(name),)
        counts[known] = counts.get(known, 0.0) + count
    return counts


def _proven_timestamp(job: _Job) -> Samples:
    proof = job.ledger.proof
    return {(): proof.proven_at.timestamp()} if proof is not None else {}


def _proof_valid(job: _Job) -> Samples:
    """A job that has ended, or has not started, needs no proof."""
    runs = job.found.members_ready > 0 or open_incident(job.ledger) is not None
    return {(): float(is_proven(job.ledger))} if job.found.asks_for_proof and runs else {}


def _incident_start(job: _Job) -> Samples:
    incident = open_incident(job.ledger)
    return {(): incident.started_at.timestamp()} if incident is not None else {}


def _incident_info(job: _Job) -> Samples:
    incident = open_incident(job.ledger)
    return {(incident.id, known_class(incident.booked_class)): 1.0} if incident is not None else {}


def _participants(job: _Job) -> Samples:
    """By the agents, if their ranks show when they join: also outside of incidents, such as at the first start."""
    incident, agent = open_incident(job.ledger), job.agent
    comes_together = incident is not None and job.ledger.phase in _MEETING
    if agent is not None and agent.meets and (meets_now(agent) or (comes_together and agent.state in PROCESSES_RUN)):
        return {(ARRIVED,): agent.arrived, (JOINED,): agent.joined, (EXPECTED,): agent.slots}
    if incident is None or not comes_together:
        return {}
    return {(JOINED,): min(job.found.members_ready, incident.ranks), (EXPECTED,): incident.ranks}


def _of_smaller(job: _Job, value: Callable[[ElasticState], float]) -> Samples:
    size = smaller_group(job.ledger)
    return {(): value(size)} if size is not None else {}


def _phase_durations(incident: Incident) -> Mapping[str, float]:
    """Seconds by phase. If a phase has several spans, those of the last one."""
    return {
        span.phase: (span.ended_at - span.started_at).total_seconds()
        for span in incident.phases
        if span.ended_at is not None
    }
