"""Records closed incidents, each in a RecoveryIncident of its own or in a shared one, and counts them."""

import asyncio
from datetime import timedelta

import msgspec
import structlog

from recovery.controller.suspect_logs import SuspectLogs
from recovery.core.incident.closed_incident import totals_of
from recovery.core.incident.folding import folds_with, recorded_alone
from recovery.core.incident.lifecycle import incident_id, owing
from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.model.fleet_ledger import FleetChange
from recovery.core.model.ledger import Ledger
from recovery.core.plan.actions import CountIncidents, Plan, RecordIncident
from recovery.executors.fleet_ledger import FleetWriter
from recovery.executors.status import LedgerWriter, WorkloadReference, reference_to
from recovery.ports import ApiError, Clock, NotLeadingError, RefusedError, TryLaterError

_log = structlog.get_logger("recovery.controller")

_COUNT_AGAIN_AFTER = timedelta(seconds=60)
_COUNT_AGAIN_AFTER_REFUSAL = timedelta(minutes=10)
"""Each try reads the group live, and a missing permission is seldom granted within a minute."""
_COUNT_SECONDS_MAX = 5.0
"""All groups count in the same object, one after the other. If the API server does not answer, each group would wait
for the time-outs of all groups before it, and so would its own recovery."""


class IncidentRecorder:
    """Writes the records of closed incidents and the totals of the fleet."""

    def __init__(
        self, *, ledgers: LedgerWriter, fleet: FleetWriter, clock: Clock, logs: SuspectLogs | None = None
    ) -> None:
        """`logs` None: logs of suspects are not read."""
        self._ledgers = ledgers
        self._fleet = fleet
        self._clock = clock
        self._logs = logs

    async def record(self, key: GroupKey, workload: WorkloadFacts, plan: Plan, action: RecordIncident) -> Plan:
        """Record the incident in the record that it shares, or else in its own record, which later ones may share.

        Returns the plan with the ledger updated accordingly. Raises ApiError.
        """
        whose = reference_to(workload)
        if action.fold is not None:
            if await self._ledgers.fold(key.namespace, whose, action.fold):
                return plan
            plan = msgspec.structs.replace(plan, ledger=recorded_alone(plan.ledger, action.incident))
        incident = action.incident if self._logs is None else self._logs.with_log(key, action.incident)
        await self._ledgers.record(key.namespace, whose, incident)
        return plan

    async def record_gone(self, key: GroupKey, whose: WorkloadReference, ledger: Ledger) -> None:
        """Record and count what the last ledger of a job that is gone has, because no later reconcile reads it. Its
        incident is closed. Raises ApiError."""
        closed, created = None, True
        if ledger.incident is not None:
            closed = ledger.incident
            if self._logs is not None:
                closed = self._logs.with_log(key, closed)
            _, fold = folds_with(ledger, closed)
            folded = fold is not None and await self._ledgers.fold(key.namespace, whose, fold)
            created = folded or await self._ledgers.record(key.namespace, whose, closed)
        try:
            if closed is not None and not created:
                closed = await self._ledgers.recorded(key.namespace, whose, closed) or closed
            owed = (*ledger.uncounted, *((totals_of(whose.uid, closed),) if closed is not None else ()))
            if owed:
                await self._count(FleetChange(closed=owed))
        except RefusedError as error:
            _log.warning(
                "what a deleted job has cost is not in the fleet's totals",
                incident=closed.id if closed is not None else "",
                job=str(key),
                error=str(error),
            )

    async def count(self, key: GroupKey, plan: Plan, action: CountIncidents) -> Plan:
        """Add closed incidents to the totals of the fleet. If that fails, they stay in the ledger of the group and are
        tried again: neither the next incident nor the record of this one waits for statistics."""
        try:
            await self._count(action.change)
        except NotLeadingError:
            raise
        except ApiError as error:
            _log.info(
                "closed incidents are not in the fleet's totals yet",
                job=str(key),
                incident=", ".join(incident_id(each.workload_uid, each.number) for each in action.closed),
                error=str(error),
            )
            refused = isinstance(error, RefusedError)
            later = self._clock.now() + (_COUNT_AGAIN_AFTER_REFUSAL if refused else _COUNT_AGAIN_AFTER)
            return msgspec.structs.replace(
                plan,
                ledger=owing(plan.ledger, action.closed),
                requeue_at=later if plan.requeue_at is None else min(later, plan.requeue_at),
            )
        return plan

    async def _count(self, change: FleetChange) -> None:
        """Add closed incidents to the totals. Raises TryLaterError after a while. A retry recognises what was added."""
        try:
            async with asyncio.timeout(_COUNT_SECONDS_MAX):
                await self._fleet.change(change)
        except TimeoutError as error:
            raise TryLaterError(f"the RecoveryConfig is not written within {_COUNT_SECONDS_MAX:g} s") from error
