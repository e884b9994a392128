"""`recovery report`: reads the records of incidents, and the ledgers for those that are open, and prints the report."""

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NoReturn

from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import CommandError, chosen_namespace, connect, error_words, execute
from recovery.cli.exit_codes import print_error
from recovery.cli.job_lookup import find, namespace_is_missing
from recovery.cli.status_rows import ledger_problem
from recovery.core.model.facts import GroupKey
from recovery.core.model.incident_record import IncidentRecord
from recovery.core.model.ledger_object import LedgerObject
from recovery.kube.cluster_reader import read_all
from recovery.kube.incident_records import read_records
from recovery.kube.projections.recovery import decode_recovery_group
from recovery.ports import RECOVERY_GROUPS, ApiClient, ForbiddenError
from recovery.report.broken_time import broken_time_of
from recovery.report.formats import ReportFormat
from recovery.report.proof_account import proof_account
from recovery.report.rendering import rendered
from recovery.report.reports import AnyReport, RecordsFound, fleet_report, incident_report, job_report

DEFAULT_WINDOW = timedelta(days=7)


def report_on_job(
    server: ServerOptions,
    namespace: str | None,
    job: str,
    incident_id: str | None,
    output: ReportFormat,
) -> NoReturn:
    """Print the report of a job, or of one of its incidents. If it does not exist: one line, and exit code 1."""
    execute(_on_job(server, namespace, job, incident_id, output))


def report_on_fleet(server: ServerOptions, namespace: str | None, since: timedelta, output: ReportFormat) -> NoReturn:
    """Print the report of all jobs of the namespace. `namespace` None: of all namespaces."""
    execute(_on_fleet(server, namespace, since, output))


async def _on_job(
    server: ServerOptions,
    namespace: str | None,
    job: str,
    incident_id: str | None,
    output: ReportFormat,
) -> int:
    left_out: list[str] = []
    async with connect(server) as connection:
        key = GroupKey(await chosen_namespace(server, namespace), job)
        now = connection.clock.now()
        found = await _read(connection.client, key.namespace, now, left_out)
        mine = [record for record in found.records if record.job == key]
        if not mine:
            await find(connection.client, key)
    if incident_id is None:
        _print(job_report(key, found, now), output, left_out)
        return 0
    named = [record for record in mine if record.has_id(incident_id)]
    if not named:
        ids = dict.fromkeys(record.incident.id for record in sorted(mine, key=_began, reverse=True))
        has = f"it has {', '.join(ids)}" if ids else "it has none"
        raise CommandError(f"there is no incident {incident_id!r} of job {key}: {has}")
    # After a RecoveryGroup is deleted, ids start from 1 again. This takes the newest incident, and prefers its record.
    record = max(named, key=lambda each: (each.incident.started_at, each.incident.closing is not None))
    _print(incident_report(record, now), output, left_out)
    return 0


async def _on_fleet(server: ServerOptions, namespace: str | None, since: timedelta, output: ReportFormat) -> int:
    left_out: list[str] = []
    async with connect(server) as connection:
        now = connection.clock.now()
        found = await _read(connection.client, namespace, now, left_out)
        if namespace is not None and not found.records and await namespace_is_missing(connection.client, namespace):
            raise CommandError(f"there is no namespace {namespace!r}")
        _print(fleet_report(namespace, found, since, now), output, left_out)
    return 0


def _began(record: IncidentRecord) -> datetime:
    return record.incident.started_at


async def _read(client: ApiClient, namespace: str | None, now: datetime, left_out: list[str]) -> RecordsFound:
    """Read the ledgers first: an incident that is recorded meanwhile is then in both, and never in neither.

    Adds a line to `left_out` for each thing that the report lacks. The caller prints them with the report: a run that
    fails prints only why it failed.
    """
    try:
        groups = await read_all(client, RECOVERY_GROUPS, namespace, decode_recovery_group)
    except ForbiddenError as error:
        left_out.append(f"open incidents are left out: {error_words(error)}")
        groups = None
    recorded = await read_records(client, namespace)
    left_out.extend(each.sentence for each in recorded.undecodable)
    if groups is None:
        return RecordsFound(recorded.records, len(recorded.undecodable), ledgers_read=False)
    left_out.extend(groups.unreadable)
    ledgers = [entry.value for entry in groups.entries]
    unreadable = [each for each in ledgers if not each.readable]
    left_out.extend(f"namespace {each.namespace}: {ledger_problem(each)}" for each in unreadable)
    return RecordsFound(
        records=(*(record for each in ledgers for record in _open(each)), *recorded.records),
        unreadable=len(recorded.undecodable) + len(groups.undecodable) + len(unreadable),
        broken=tuple(time for each in ledgers if each.readable and (time := broken_time_of(each, now)) is not None),
        proofs={
            GroupKey(each.namespace, each.group): proof
            for each in ledgers
            if each.readable and (proof := proof_account(each.ledger)) is not None
        },
    )


def _open(group: LedgerObject) -> Iterator[IncidentRecord]:
    """The incident of a ledger: open, or closed and not recorded yet."""
    if group.readable and group.ledger.incident is not None:
        key = GroupKey(group.namespace, group.group)
        yield IncidentRecord(key, group.workload_kind, group.workload_uid, group.ledger.incident)


def _print(report: AnyReport, output: ReportFormat, left_out: Iterable[str]) -> None:
    for line in left_out:
        print_error(line)
    sys.stdout.write(rendered(report, output))
