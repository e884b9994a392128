"""`recovery explain JOB`: what the controller sees of a job, what it decides right now, and what it has done before.

The decision is the controller's own function, applied to objects read for this answer and to the ledger as it stands.
Nothing of it is carried out or written.
"""

import sys
from collections.abc import Iterable
from datetime import datetime

from recovery.cli import account
from recovery.cli.connection import CommandError, Connection, chosen_namespace, connect, execute
from recovery.cli.selection import policy_of
from recovery.cli.wording import age
from recovery.core.decide import decide
from recovery.core.facts import GroupKey, WorkloadFacts
from recovery.core.ledger import SCHEMA_VERSION, Ledger, LedgerObject
from recovery.kube.oneshot import JobReading, read_incident, read_job
from recovery.workloads.trainjob import TrainJobAdapter


def show_explanation(
    kubeconfig: str | None, context: str | None, namespace: str | None, job: str, incident_id: str | None
) -> None:
    """Print the account; a job or incident that is not there is one line and exit code 1."""
    execute(_explain(kubeconfig, context, namespace, job, incident_id))


async def _explain(
    kubeconfig: str | None, context: str | None, namespace: str | None, job: str, incident_id: str | None
) -> int:
    async with connect(kubeconfig, context) as connection:
        key = GroupKey(await chosen_namespace(kubeconfig, context, namespace), job)
        reading = await read_job(connection.client, TrainJobAdapter(), key)
        now = connection.clock.now()
        for line in reading.unreadable:
            print(f"recovery: {line}", file=sys.stderr)
        if incident_id is not None:
            _print(f"Incident of TrainJob {key}", await _incident_lines(connection, key, reading, incident_id, now))
            return 0
    workload = reading.snapshot.workload
    if workload is None:
        raise CommandError(f"there is no TrainJob {job!r} in namespace {key.namespace!r}")
    _print_all(key, workload, reading, now)
    return 0


async def _incident_lines(
    connection: Connection, key: GroupKey, reading: JobReading, incident_id: str, now: datetime
) -> Iterable[str]:
    """The incident from the ledger while it is there, else as it was recorded; a record outlives its job."""
    incident = reading.group.ledger.incident if reading.group is not None else None
    if incident is not None and incident.id == incident_id:
        return account.incident_lines(incident, now)
    recorded = await read_incident(connection.client, key, incident_id)
    if recorded is None:
        raise CommandError(f"there is no incident {incident_id!r} of TrainJob {key}")
    return account.incident_lines(recorded, now)


def _print_all(key: GroupKey, workload: WorkloadFacts, reading: JobReading, now: datetime) -> None:
    selection = policy_of(reading.policies, workload)
    unreadable = _unreadable(reading.group)
    ledger = reading.group.ledger if reading.group is not None and not unreadable else Ledger()
    print(f"TrainJob {key}, created {age(workload.created_at, now)} ago")
    _print("Policy", account.policy_lines(selection, ledger, now))
    _print("Now", account.sight_lines(reading.snapshot, workload, now))
    if unreadable:
        _print("Decision", [f"none, and no controller of this version takes one: {unreadable}"])
        return
    _print("Decision", account.decision_lines(decide(reading.snapshot, ledger, selection.decides, now)))
    if ledger.incident is not None:
        _print("Incident", account.incident_lines(ledger.incident, now))
    if ledger.history:
        _print("History", account.history_lines(ledger.history, now))


def _unreadable(group: LedgerObject | None) -> str:
    """Why the ledger cannot be used; empty if it can, or if there is none yet."""
    if group is None or group.schema_version == SCHEMA_VERSION:
        return ""
    if group.schema_version > SCHEMA_VERSION:
        return (
            f"RecoveryGroup {group.name} has schemaVersion {group.schema_version}, this version knows {SCHEMA_VERSION}"
        )
    return f"RecoveryGroup {group.name}: {group.ledger.reason}"


def _print(title: str, lines: Iterable[str]) -> None:
    """What pods and platform say about themselves must not move the cursor of whoever reads it."""
    print(f"\n{title}:")
    for line in lines:
        print("  " + "".join(character if character.isprintable() else " " for character in line))
