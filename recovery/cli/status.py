"""`recovery status`: the TrainJobs of a namespace, or of all, one line each."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from recovery.cli.connection import chosen_namespace, connect, execute
from recovery.cli.selection import Selection, policy_of
from recovery.cli.wording import age, print_table
from recovery.core import budget
from recovery.core.facts import GroupKey, WorkloadFacts
from recovery.core.ledger import SCHEMA_VERSION, LedgerObject
from recovery.core.policy import PolicyFacts, paused
from recovery.kube.oneshot import Fleet, read_fleet

_HEADER = ("JOB", "PHASE", "CAUSE", "ACTION", "IDLE-GPUS", "RESTARTS", "BUDGET", "POLICY", "AGE")

_STYLES = {
    "Healthy": "green",
    "Complete": "green",
    "Suspended": "dim",
    "NoPolicy": "dim",
    "Deleting": "dim",
    "Failed": "bold red",
    "Held": "bold red",
    "Unreadable": "bold red",
}
_STYLE_OF_INCIDENTS = "yellow"


class JobRow(msgspec.Struct, frozen=True):
    """One TrainJob as `status` tells of it."""

    namespace: str
    job: str
    phase: str
    """The incident's phase; without an incident Healthy, or why nobody watches the job."""
    cause: str
    """Of the open incident, or of the last one. Empty: there was none."""
    action: str
    idle_gpus: int
    restarts: int
    budget_left: int | None
    """None: no policy, no budget."""
    budget_limit: int | None
    policy: str
    mode: str
    paused: bool
    created_at: datetime
    reason: str
    """The newest sentence; empty if there never was an incident."""


def job_row(
    key: GroupKey, workload: WorkloadFacts, group: LedgerObject | None, policies: Sequence[PolicyFacts], now: datetime
) -> JobRow:
    """`group` None: there never was an incident. `policies`: those of the job's namespace."""
    selection = policy_of(policies, workload)
    readable = group if group is not None and group.schema_version == SCHEMA_VERSION else None
    ledger = readable.ledger if readable is not None else None
    policy = selection.policy
    left = limit = None
    if policy is not None:
        limit = policy.budget_limit
        left = limit if ledger is None else budget.remaining(ledger.budget, limit, policy.budget_window, now)
    return JobRow(
        namespace=key.namespace,
        job=key.name,
        phase=_phase(workload, group, selection),
        cause=ledger.cause if ledger is not None else "",
        action=ledger.action if ledger is not None else "",
        idle_gpus=ledger.idle_gpus if ledger is not None else 0,
        restarts=ledger.totals.restarts if ledger is not None else 0,
        budget_left=left,
        budget_limit=limit,
        policy=selection.name,
        mode=("Invalid" if selection.error is not None else str(policy.mode) if policy is not None else ""),
        paused=paused(workload),
        created_at=workload.created_at,
        reason=ledger.reason if ledger is not None else "",
    )


def _phase(workload: WorkloadFacts, group: LedgerObject | None, selection: Selection) -> str:
    if group is not None and group.schema_version != SCHEMA_VERSION:
        return "Unreadable"
    if group is not None and group.ledger.incident is not None and group.ledger.incident.closing is None:
        return str(group.ledger.phase)
    if workload.deleting_since is not None:
        return "Deleting"
    for ended in ("Complete", "Failed"):
        if workload.condition(ended) is not None:
            return ended
    if workload.suspended:
        return "Suspended"
    return "Healthy" if selection.name else "NoPolicy"


def show_status(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, all_namespaces: bool, as_json: bool
) -> None:
    """Print the listing. Exit code 0, also when there is nothing to list."""
    execute(_status(kubeconfig, context, namespace, all_namespaces=all_namespaces, as_json=as_json))


async def _status(
    kubeconfig: str | None, context: str | None, namespace: str | None, *, all_namespaces: bool, as_json: bool
) -> int:
    async with connect(kubeconfig, context) as connection:
        where = None if all_namespaces else await chosen_namespace(kubeconfig, context, namespace)
        fleet = await read_fleet(connection.client, where)
        now = connection.clock.now()
    for line in fleet.unreadable:
        print(f"recovery: {line}", file=sys.stderr)
    rows = _rows(fleet, now)
    if as_json:
        print(json.dumps([_as_json(row) for row in rows], indent=2))
    elif rows:
        _print(rows, now, with_namespace=all_namespaces)
    else:
        print(
            f"recovery: no TrainJobs {'in the cluster' if where is None else f'in namespace {where}'}", file=sys.stderr
        )
    return 0


def _rows(fleet: Fleet, now: datetime) -> list[JobRow]:
    policies: dict[str, list[PolicyFacts]] = {}
    for policy in fleet.policies:
        policies.setdefault(policy.namespace, []).append(policy)
    return [
        job_row(key, workload, fleet.groups.get(workload.uid), policies.get(key.namespace, ()), now)
        for key, workload in sorted(fleet.workloads.items())
    ]


def _as_json(row: JobRow) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "job": row.job,
        "phase": row.phase,
        "cause": row.cause,
        "action": row.action,
        "idleGPUs": row.idle_gpus,
        "restarts": row.restarts,
        "budget": {"remaining": row.budget_left, "limit": row.budget_limit},
        "policy": {"name": row.policy, "mode": row.mode},
        "paused": row.paused,
        "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
        "reason": row.reason,
    }


def _print(rows: Sequence[JobRow], now: datetime, *, with_namespace: bool) -> None:
    header = ("NAMESPACE", *_HEADER) if with_namespace else _HEADER
    cells = [((row.namespace, *_cells(row, now)) if with_namespace else _cells(row, now)) for row in rows]
    styles = {row.phase: _STYLES.get(row.phase, _STYLE_OF_INCIDENTS) for row in rows}
    print_table(header, cells, styles)


def _cells(row: JobRow, now: datetime) -> tuple[str, ...]:
    mode = f"{row.mode},paused" if row.paused else row.mode
    return (
        row.job,
        row.phase,
        row.cause,
        row.action,
        str(row.idle_gpus),
        str(row.restarts),
        f"{row.budget_left}/{row.budget_limit}" if row.budget_limit is not None else "",
        f"{row.policy}({mode})" if row.policy else "",
        age(row.created_at, now),
    )
