"""An incident with the log of its suspect, between controllers and CRDs of two versions."""

import json
from typing import Any

import msgspec
import pytest

from recovery.core.model.incident_record import decode_recorded
from recovery.core.model.ledger import SCHEMA_VERSION, WITHOUT_RESUMING, Incident, Ledger
from recovery.core.model.suspect_log import LogAbsence, SuspectLog
from recovery.kube.projections.recovery import decode_recovery_group
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.upgrade.scenarios import group_of
from tests.unit.upgrade.test_crds_of_two_versions import (
    EARLIER_GROUPS,
    EARLIER_INCIDENTS,
    GROUPS,
    INCIDENTS,
    OWNER,
    kept,
    lost,
    plain,
    status_kept,
)

LOG = SuspectLog("train-node-0-2", "node", previous=True, termination_message="CUDA error", tail="a\n  b\tc")
NONE = SuspectLog("train-node-0-2", absent=LogAbsence.TIMED_OUT)


def open_ledger(log: SuspectLog | None) -> Ledger:
    controller = Controller()
    controller.reconcile(training(4).pod_gone(2, 0), 1)
    return controller.ledger.with_incident(suspect_log=log)


def spec_of(incident: Incident) -> dict[str, Any]:
    """The spec of the incident's record."""
    fields: dict[str, Any] = json.loads(msgspec.json.encode(incident))
    closing = {"outcome": "Recovered", "outcomeReason": "AllRanksReady", "endedAt": "2026-11-21T12:01:00Z"}
    return OWNER | fields | closing | {"schemaVersion": WITHOUT_RESUMING}


@pytest.mark.parametrize("log", [LOG, NONE], ids=["log", "reason"])
def test_the_definitions_keep_it_and_it_is_read_as_it_was_written(log: SuspectLog) -> None:
    ledger = open_ledger(log)
    status = status_kept(GROUPS, plain(ledger))
    assert lost(plain(ledger), status) == []
    assert decode_recovery_group(group_of(status)).value.ledger == ledger
    spec = kept(INCIDENTS, {"kind": "RecoveryIncident", "spec": spec_of(ledger.current_incident)})["spec"]
    assert decode_recorded(msgspec.json.encode(spec)).suspect_log == log


def test_earlier_definitions_drop_it_and_nothing_else_is_different() -> None:
    with_it, without = open_ledger(LOG), open_ledger(None)
    assert status_kept(EARLIER_GROUPS, plain(with_it)) == status_kept(EARLIER_GROUPS, plain(without))
    records = [
        kept(EARLIER_INCIDENTS, {"kind": "RecoveryIncident", "spec": spec_of(each.current_incident)})
        for each in (with_it, without)
    ]
    assert records[0] == records[1]


def test_it_makes_no_newer_version_of_a_ledger_so_an_earlier_controller_reads_it() -> None:
    """Earlier controllers skip unknown fields, but hold at an unknown version."""
    assert open_ledger(LOG).schema_version == open_ledger(None).schema_version == WITHOUT_RESUMING < SCHEMA_VERSION


def test_a_record_without_it_is_read_as_one_whose_log_was_not_read() -> None:
    assert decode_recorded(msgspec.json.encode(spec_of(open_ledger(None).current_incident))).suspect_log is None
