"""Bugs in what is remembered."""

from datetime import datetime, timedelta

import msgspec
import pytest

from recovery import api_verbs
from recovery.core.decision import decide
from recovery.core.diagnosis.classify import Disruption
from recovery.core.incident import budget, lifecycle
from recovery.core.incident.invariants import violations
from recovery.core.model.facts import Snapshot, WorkloadFacts
from recovery.core.model.ledger import AttemptAction, Ledger, Target
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.reason import Reason
from recovery.core.model.standing import Standing
from recovery.core.plan.actions import CountIncidents, Plan, RecordIncident
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.resolved import Policy
from recovery.executors.status import LedgerWriter
from recovery.ports import RECOVERY_GROUPS, PatchKind


def last_write_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is patched without checking what it was, as if there were no other writer."""

    class LastWriteWins(LedgerWriter):
        async def write(
            self, namespace: str, workload: WorkloadFacts, known: LedgerObject | None, ledger: Ledger
        ) -> LedgerObject:
            if known is None:
                known = await self._create(namespace, workload)
            body = [{"op": "add", "path": "/status", "value": ledger}]
            answer = await api_verbs.patch(
                self._api,
                RECOVERY_GROUPS,
                known.name,
                body,
                kind=PatchKind.JSON,
                namespace=namespace,
                subresource="status",
            )
            version = msgspec.json.decode(answer)["metadata"]["resourceVersion"]
            return msgspec.structs.replace(
                known, resource_version=version, ledger=ledger, schema_version=ledger.schema_version
            )

    monkeypatch.setattr("recovery.controller.reconciler.LedgerWriter", LastWriteWins)


def quiet_groups_have_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group without an open incident trains, so its standing is Met."""

    class Confident(LedgerWriter):
        async def write(
            self, namespace: str, workload: WorkloadFacts, known: LedgerObject | None, ledger: Ledger
        ) -> LedgerObject:
            is_quiet = ledger.incident is None or ledger.incident.closing is not None
            standing = Standing.MET if is_quiet else Standing.UNKNOWN
            return await super().write(
                namespace, workload, known, msgspec.structs.replace(ledger, standing=standing, broken=None)
            )

    monkeypatch.setattr("recovery.controller.reconciler.LedgerWriter", Confident)


def a_charge_for_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every restart is charged, also the second one of an incident.

    `core.incident.invariants` would not let such a ledger be written. The author found that in the way, so its findings
    about charges are ignored.
    """
    charged_once = lifecycle.add_attempt

    def add_attempt(
        ledger: Ledger,
        action: AttemptAction,
        target: Target,
        reason: Reason,
        message: str,
        now: datetime,
        *,
        free_of_charge: bool = False,
        forced: bool = False,
        nodes: tuple[str, ...] = (),
    ) -> Ledger:
        uncharged = msgspec.structs.replace(ledger.current_incident, charged=False)
        before = msgspec.structs.replace(ledger, incident=uncharged)
        return charged_once(
            before, action, target, reason, message, now, free_of_charge=free_of_charge, forced=forced, nodes=nodes
        )

    def but_for_charges(before: Ledger, after: Ledger) -> tuple[str, ...]:
        return tuple(each for each in violations(before, after) if not each.startswith(("OneCharge", "BudgetLimit")))

    monkeypatch.setattr("recovery.core.incident.lifecycle.add_attempt", add_attempt)
    monkeypatch.setattr("recovery.controller.reconciler.violations", but_for_charges)


def a_charge_for_what_others_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first restart of an incident is charged, even if the JobSet makes it."""
    charged_for_ours = lifecycle.add_attempt

    def add_attempt(
        ledger: Ledger,
        action: AttemptAction,
        target: Target,
        reason: Reason,
        message: str,
        now: datetime,
        *,
        free_of_charge: bool = False,
        forced: bool = False,
        nodes: tuple[str, ...] = (),
    ) -> Ledger:
        after = charged_for_ours(
            ledger, action, target, reason, message, now, free_of_charge=free_of_charge, forced=forced, nodes=nodes
        )
        open_ = after.current_incident
        limit, window = open_.pinned.budget_limit, timedelta(seconds=open_.pinned.budget_window_seconds)
        left = budget.remaining(after.budget, limit, window, now)
        if (
            action is not AttemptAction.ADOPTED
            or free_of_charge
            or open_.charged
            or not left
            or open_.mode != "Enforce"
        ):
            return after
        return msgspec.structs.replace(
            after.with_incident(charged=True),
            totals=msgspec.structs.replace(after.totals, charged=after.totals.charged + 1),
            budget=budget.charge(after.budget, limit, window, now),
        )

    monkeypatch.setattr("recovery.core.incident.lifecycle.add_attempt", add_attempt)


def incidents_begin_when_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An incident begins when the controller opens it: time lost before that costs nothing."""
    open_as_dated = lifecycle.open_incident

    def open_incident(
        ledger: Ledger,
        snapshot: Snapshot,
        policy: Policy,
        disruption: Disruption,
        now: datetime,
        *,
        decided_at: datetime | None = None,
    ) -> Ledger:
        replace = msgspec.structs.replace
        undated = (replace(each, evidence=replace(each.evidence, at=None)) for each in disruption.findings)
        as_noticed = replace(disruption, findings=tuple(undated))
        return open_as_dated(ledger, snapshot, policy, as_noticed, now, decided_at=decided_at)

    monkeypatch.setattr("recovery.core.incident.lifecycle.open_incident", open_incident)


def shared_records_are_counted_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """An incident that shares another one's record is not added to the totals, as if the record already were."""
    record = decide._record

    def without_what_is_shared(context: ReconcileContext, ledger: Ledger) -> Plan:
        plan = record(context, ledger)
        recorded, count = plan.first
        assert isinstance(recorded, RecordIncident)
        assert isinstance(count, CountIncidents)
        if recorded.fold is None:
            return plan
        return msgspec.structs.replace(plan, first=(recorded, CountIncidents(count.closed[:-1])))

    monkeypatch.setattr(decide, "_record", without_what_is_shared)
