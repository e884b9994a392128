"""The three reports: of one incident, of a job, of the fleet. Their fields are the JSON (docs/reports.md)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeAlias

import msgspec

from recovery.core.model.drill import DRILL_CLASS
from recovery.core.model.facts import GroupKey
from recovery.core.model.folded_incidents import FoldedNode
from recovery.core.model.incident_record import IncidentRecord
from recovery.report.broken_time import BrokenTime
from recovery.report.group_totals import GroupTotals, totals_of
from recovery.report.incident_account import CausedBy, IncidentAccount, account_of
from recovery.report.proof_account import ProofAccount

SCHEMA_VERSION = 1
WORST_MAX = 10
"""Jobs and nodes that a fleet's report lists."""


class RecordsFound(msgspec.Struct, frozen=True, rename="camel"):
    """The records that were read, and how many could not be read."""

    records: tuple[IncidentRecord, ...]
    """From RecoveryIncidents and from ledgers. The same incident may come from both."""
    unreadable: int = 0
    """RecoveryIncidents and RecoveryGroups that this version cannot read."""
    ledgers_read: bool = True
    """False: open incidents are missing, because RecoveryGroups may not be listed."""
    broken: tuple[BrokenTime, ...] = ()
    """From ledgers."""
    proofs: Mapping[GroupKey, ProofAccount] = {}
    """From ledgers."""


class Coverage(msgspec.Struct, frozen=True, rename="camel"):
    """What part of its subject a report covers."""

    oldest_record_at: datetime | None
    """When the oldest recorded incident began. None: there is no record."""
    whole_window: bool
    """Records reach back to before the window. False: it is unknown whether its beginning was free of incidents."""
    missing_records: int
    """Gaps in the numbers that a job's incidents carry: records that someone has deleted."""
    unreadable_records: int
    open_incidents_read: bool


class IncidentReport(msgspec.Struct, frozen=True, rename="camel", tag_field="report", tag="Incident"):
    """One incident."""

    schema_version: int
    generated_at: datetime
    incident: IncidentAccount


class DrillIncident(msgspec.Struct, frozen=True, rename="camel"):
    """An incident that a drill has caused, in brief."""

    id: str
    namespace: str
    job: str
    drill: CausedBy
    failure_class: str
    outcome: str
    started_at: datetime
    duration_seconds: float
    idle_gpu_seconds: float


class JobReport(msgspec.Struct, frozen=True, rename="camel", tag_field="report", tag="Job"):
    """All incidents of the jobs of one name."""

    schema_version: int
    generated_at: datetime
    namespace: str
    job: str
    workload_kind: str
    """TrainJob or JobSet. Empty: no record says."""
    coverage: Coverage
    totals: GroupTotals
    proof: ProofAccount | None
    """The latest proof that the job recovers. None: there is none, or it was not read."""
    incidents: tuple[IncidentAccount, ...]
    """The newest first, without drills."""
    drills: tuple[DrillIncident, ...]
    """The newest first."""


class WorstJob(msgspec.Struct, frozen=True, rename="camel"):
    """A job and what its incidents cost, with the time in which it was Broken after them."""

    namespace: str
    job: str
    incidents: int
    restarts: int
    idle_gpu_seconds: float
    released_gpu_seconds: float


class WorstNode(msgspec.Struct, frozen=True, rename="camel"):
    """A node on which failures showed first."""

    node: str
    incidents: int
    """Incidents in which one of its pods was a suspect."""
    replaced: int
    """Incidents in which it was quarantined."""
    idle_gpu_seconds: float
    """The whole cost of those incidents. An incident with suspects on two nodes counts for both."""


class FleetIncident(msgspec.Struct, frozen=True, rename="camel"):
    """An incident in brief. `recovery report JOB --incident ID` has the rest."""

    id: str
    namespace: str
    job: str
    failure_class: str
    outcome: str
    still_broken: bool
    handling: str
    started_at: datetime
    incidents: int
    """Incidents that share the record. The duration and the GPU-seconds are of all of them."""
    duration_seconds: float
    idle_gpu_seconds: float


class FleetReport(msgspec.Struct, frozen=True, rename="camel", tag_field="report", tag="Fleet"):
    """All incidents that ended in a window, or are open."""

    schema_version: int
    generated_at: datetime
    namespace: str
    """Empty: all namespaces."""
    window_start: datetime
    window_end: datetime
    coverage: Coverage
    totals: GroupTotals
    worst_jobs: tuple[WorstJob, ...]
    worst_nodes: tuple[WorstNode, ...]
    incidents: tuple[FleetIncident, ...]
    """The newest first, without drills."""
    drills: tuple[DrillIncident, ...]
    """The newest first."""


AnyReport: TypeAlias = IncidentReport | JobReport | FleetReport


def incident_report(record: IncidentRecord, now: datetime) -> IncidentReport:
    """The report of one incident."""
    return IncidentReport(SCHEMA_VERSION, now, account_of(record, now))


def job_report(key: GroupKey, found: RecordsFound, now: datetime) -> JobReport:
    """The report of a job, and of those that had its name before it. Records of other jobs are left out."""
    mine = _distinct(record for record in found.records if record.job == key)
    accounts = _newest_first(mine, now)
    kinds = [each.workload_kind for each in accounts if each.workload_kind]
    return JobReport(
        schema_version=SCHEMA_VERSION,
        generated_at=now,
        namespace=key.namespace,
        job=key.name,
        workload_kind=kinds[0] if kinds else "",
        coverage=_coverage(mine, found, None),
        totals=totals_of(accounts, [each for each in found.broken if each.job == key]),
        proof=found.proofs.get(key),
        incidents=_failures(accounts),
        drills=_drills(accounts),
    )


def fleet_report(namespace: str | None, found: RecordsFound, since: timedelta, now: datetime) -> FleetReport:
    """The report of a window up to now. An incident that began before the window counts whole if it ended in it. So
    does the time in which a group was Broken, if it still is, or if the latest incident before it ended in the window:
    no ledger dates its end."""
    start = now - since
    known = _distinct(found.records)
    within = [record for record in known if _ends(record, now) >= start]
    accounts = _newest_first(within, now)
    broken = [each for each in found.broken if each.counts_at is not None and each.counts_at >= start]
    return FleetReport(
        schema_version=SCHEMA_VERSION,
        generated_at=now,
        namespace=namespace or "",
        window_start=start,
        window_end=now,
        coverage=_coverage(known, found, start),
        totals=totals_of(accounts, broken),
        worst_jobs=_worst_jobs(_failures(accounts), broken),
        worst_nodes=_worst_nodes(_failures(accounts)),
        incidents=tuple(_brief(each) for each in _failures(accounts)),
        drills=_drills(accounts),
    )


def _ends(record: IncidentRecord, now: datetime) -> datetime:
    closing = record.incident.closing
    if record.fold is not None:
        return record.fold.ended_at
    return now if closing is None else closing.ended_at


def _distinct(records: Iterable[IncidentRecord]) -> list[IncidentRecord]:
    """Each incident once. A ledger keeps a closed incident until it has been recorded, in a record of its own or in a
    shared one, and both the ledger and the record may be read."""
    found: dict[tuple[GroupKey, str, datetime], IncidentRecord] = {}
    for record in records:
        key = (record.job, record.incident.id, record.incident.started_at)
        if key not in found or found[key].incident.closing is None:
            found[key] = record
    shared = [record for record in found.values() if record.fold is not None and record.fold.count > 1]
    return [record for record in found.values() if not any(_is_covered_by(record, other) for other in shared)]


def _is_covered_by(record: IncidentRecord, shared: IncidentRecord) -> bool:
    """The incident of the record is one of those that share the other record."""
    same = (record.job, record.workload_uid) == (shared.job, shared.workload_uid)
    fold = shared.fold
    return (
        same
        and record is not shared
        and fold is not None
        and fold.covers(record.incident.number)
        and fold.started_at <= record.incident.started_at <= fold.latest_started_at
    )


def _newest_first(records: Iterable[IncidentRecord], now: datetime) -> tuple[IncidentAccount, ...]:
    accounts = (account_of(record, now) for record in records)
    return tuple(sorted(accounts, key=lambda each: (each.started_at, each.namespace, each.job, each.id), reverse=True))


def _coverage(records: Sequence[IncidentRecord], found: RecordsFound, start: datetime | None) -> Coverage:
    """`start`: the start of the window. None: there is no window."""
    oldest = min((record.incident.started_at for record in records), default=None)
    return Coverage(
        oldest_record_at=oldest,
        whole_window=start is None or (oldest is not None and oldest <= start),
        missing_records=_missing(records, start),
        unreadable_records=found.unreadable,
        open_incidents_read=found.ledgers_read,
    )


def _missing(records: Iterable[IncidentRecord], start: datetime | None) -> int:
    """How many numbers between two records of a workload no record has. Gaps before the window do not count."""
    numbers: defaultdict[tuple[GroupKey, str], list[tuple[int, int, datetime]]] = defaultdict(list)
    for record in records:
        numbers[record.job, record.workload_uid] += _numbers_of(record)
    missing = 0
    for known in numbers.values():
        known.sort()
        for (_, one, _), (other, _, began_at) in pairwise(known):
            if start is None or began_at >= start:
                missing += max(0, other - one - 1)
    return missing


def _numbers_of(record: IncidentRecord) -> list[tuple[int, int, datetime]]:
    """First and last number, and when they began. Of incidents that share a record only two dates are known."""
    incident, fold = record.incident, record.fold
    if fold is None:
        return [(incident.number, incident.number, incident.started_at)]
    first, *others = fold.numbers
    return [
        (first.first, first.last, fold.started_at),
        *((each.first, each.last, fold.latest_started_at) for each in others),
    ]


def _worst_jobs(accounts: Iterable[IncidentAccount], broken: Iterable[BrokenTime]) -> tuple[WorstJob, ...]:
    by_job: defaultdict[GroupKey, list[IncidentAccount]] = defaultdict(list)
    for each in accounts:
        by_job[GroupKey(each.namespace, each.job)].append(each)
    hung: defaultdict[GroupKey, float] = defaultdict(float)
    for time in broken:
        after = [seconds for name, seconds in time.idle_gpu_seconds.items() if name != DRILL_CLASS]
        if after:
            hung[time.job] += sum(after)
    jobs = (_worst_job(key, by_job[key], hung[key]) for key in dict.fromkeys((*by_job, *hung)))
    return tuple(sorted(jobs, key=lambda each: (-each.idle_gpu_seconds, each.namespace, each.job))[:WORST_MAX])


def _worst_job(key: GroupKey, accounts: Sequence[IncidentAccount], broken_gpu_seconds: float) -> WorstJob:
    return WorstJob(
        namespace=key.namespace,
        job=key.name,
        incidents=sum(each.incidents for each in accounts),
        restarts=sum(each.restarts for each in accounts),
        idle_gpu_seconds=round(sum(each.idle_gpu_seconds for each in accounts) + broken_gpu_seconds, 3),
        released_gpu_seconds=round(sum(each.released_gpu_seconds for each in accounts), 3),
    )


def _worst_nodes(accounts: Iterable[IncidentAccount]) -> tuple[WorstNode, ...]:
    suspected: defaultdict[str, list[FoldedNode]] = defaultdict(list)
    replaced: defaultdict[str, int] = defaultdict(int)
    for each in accounts:
        for name, node in each.suspected_nodes.items():
            suspected[name].append(node)
        for name in sorted({node for attempt in each.attempts for node in attempt.nodes}):
            replaced[name] += 1
    nodes = (
        WorstNode(
            node=name,
            incidents=sum(each.incidents for each in suspected.get(name, ())),
            replaced=replaced.get(name, 0),
            idle_gpu_seconds=round(sum(each.idle_gpu_seconds for each in suspected.get(name, ())), 3),
        )
        for name in sorted({*suspected, *replaced})
    )
    return tuple(sorted(nodes, key=lambda each: (-each.incidents, -each.idle_gpu_seconds, each.node))[:WORST_MAX])


def _failures(accounts: Iterable[IncidentAccount]) -> tuple[IncidentAccount, ...]:
    """The incidents that are no drills."""
    return tuple(each for each in accounts if each.drill is None)


def _drills(accounts: Iterable[IncidentAccount]) -> tuple[DrillIncident, ...]:
    return tuple(
        DrillIncident(
            id=each.id,
            namespace=each.namespace,
            job=each.job,
            drill=each.drill,
            failure_class=each.failure_class,
            outcome=each.outcome,
            started_at=each.started_at,
            duration_seconds=each.duration_seconds,
            idle_gpu_seconds=each.idle_gpu_seconds,
        )
        for each in accounts
        if each.drill is not None
    )


def _brief(account: IncidentAccount) -> FleetIncident:
    return FleetIncident(
        id=account.id,
        namespace=account.namespace,
        job=account.job,
        failure_class=account.failure_class,
        outcome=account.outcome,
        still_broken=account.still_broken,
        handling=account.handling,
        started_at=account.started_at,
        incidents=account.incidents,
        duration_seconds=account.duration_seconds,
        idle_gpu_seconds=account.idle_gpu_seconds,
    )
