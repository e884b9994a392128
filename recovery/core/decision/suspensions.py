"""Keeps in the ledger when a group was last suspended, for a controller that starts after the resume.

The Jobs show it only until they are resumed, and their old pods may end later than that. No ledger is created for it:
where there is none, the dates of the pods decide alone (`core.diagnosis.trained.pods_of_run`).
"""

import msgspec

from recovery.core.diagnosis.trained import suspended_at
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.plan.actions import Plan


def remembered(snapshot: Snapshot, ledger: Ledger) -> Snapshot:
    """The snapshot, with the suspension of the ledger for the Jobs whose own was not seen by this process."""
    if ledger.suspended_at is None:
        return snapshot
    jobs = (
        job if job.suspended_at is not None else msgspec.structs.replace(job, suspended_at=ledger.suspended_at)
        for job in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


def recorded(snapshot: Snapshot, before: Ledger, plan: Plan) -> Plan:
    """The plan whose ledger has the date of a suspension that the Jobs show, or that this process remembers."""
    after = plan.ledger
    if after == Ledger():
        return plan  # a group that never had an incident has no ledger
    shown = [moment for job in snapshot.jobs for moment in (job.suspended_at, suspended_at(job)) if moment is not None]
    latest = max(shown, default=None)
    if latest is None or (after.suspended_at is not None and latest <= after.suspended_at):
        return plan
    return msgspec.structs.replace(plan, ledger=msgspec.structs.replace(after, suspended_at=latest))
