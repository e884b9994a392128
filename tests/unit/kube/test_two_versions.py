"""Two versions of the controller and of the CRDs at the same time: this version, and the next one.

CRDs are applied before the controller (docs/install.md). So this controller works under the next CRDs until it is
replaced, and again after the image alone went back. By mistake, the next controller may run under the present CRDs.
The log then says `ledgers are not kept whole` (tests/unit/executors/test_status.py).
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recovery.core.decision.decide import decide
from recovery.core.model.incident_record import decode_recorded
from recovery.core.model.ledger import SCHEMA_VERSION, Ledger
from recovery.core.model.suspect_log import LogAbsence, SuspectLog
from recovery.kube.projections.recovery import decode_recovery_group
from recovery.sim.api.schemas import Schema
from tests.unit import fast_yaml
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import at
from tests.unit.kube.testing import fixture

CRDS = Path(__file__).parents[3] / "manifests" / "crd"
OWNER = {
    "group": "train",
    "workloadRef": {"kind": "TrainJob", "name": "train", "uid": "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"},
}
FIXTURES = ("recoverygroup", "recoverygroup-tearing-down", "recoverygroup-resuming", "recoverygroup-shrinking")


def definition(plural: str) -> dict[str, Any]:
    [version] = fast_yaml.load((CRDS / f"{plural}.yaml").read_text())["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def next_definition() -> dict[str, Any]:
    """The CRD of RecoveryGroups with a phase, and a field of an incident, that this version does not have."""
    found = copy.deepcopy(definition("recoverygroups"))
    status = found["properties"]["status"]["properties"]
    status["phase"]["enum"].append("Levitating")
    status["incident"]["properties"]["height"] = {"type": "integer"}
    return found


GROUPS, NEXT_GROUPS = Schema(definition("recoverygroups")), Schema(next_definition())
INCIDENTS = Schema(definition("recoveryincidents"))


def kept(schema: Schema, **parts: Any) -> dict[str, Any]:
    """What the API server keeps of the object. Fails if the server refuses it."""
    head = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "metadata": {"name": "train", "namespace": "ml"}}
    body: dict[str, Any] = copy.deepcopy(head | parts)
    schema.complete(body, None)
    assert [cause.message for cause in schema.causes(body, None)] == []
    return body


def status_kept(schema: Schema, status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = kept(schema, kind="RecoveryGroup", spec=OWNER, status=status)["status"]
    return found


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """The paths of what `before` has and `after` lacks or changes. Defaults that were filled in are no loss."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [found for key, value in before.items() for found in lost(value, after.get(key), f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [found for old, new in zip(before, after, strict=True) for found in lost(old, new, f"{path}[]")]
    return [] if before == after else [path]


def plain(value: Any) -> dict[str, Any]:
    encoded: dict[str, Any] = json.loads(msgspec.json.encode(value))
    return encoded


def read(status: dict[str, Any]) -> tuple[int, Ledger]:
    metadata = {"name": "train", "namespace": "ml", "uid": "group-1", "resourceVersion": "1"}
    metadata["creationTimestamp"] = "2026-11-21T12:00:00Z"
    found = decode_recovery_group(json.dumps({"metadata": metadata, "spec": OWNER, "status": status}).encode()).value
    return found.schema_version, found.ledger


def opened() -> Ledger:
    controller = Controller()
    controller.reconcile(training(4).pod_gone(2, 0), 1)
    return controller.ledger


def ledgers() -> Iterator[Any]:
    log = SuspectLog("train-node-0-2", "node", previous=True, termination_message="CUDA error", tail="a\n  b\tc")
    no_log = SuspectLog("train-node-0-2", absent=LogAbsence.TIMED_OUT)
    yield pytest.param(opened(), id="open")
    yield pytest.param(opened().with_incident(suspect_log=log), id="with a log")
    yield pytest.param(opened().with_incident(suspect_log=no_log), id="with the reason why there is no log")
    for name in FIXTURES:
        yield pytest.param(decode_recovery_group(fixture(name)).value.ledger, id=name)


@pytest.mark.parametrize("schema", [GROUPS, NEXT_GROUPS], ids=["these CRDs", "the next CRDs"])
@pytest.mark.parametrize("ledger", [*ledgers()])
def test_a_ledger_of_this_version_is_kept_whole_and_read_as_it_was_written(ledger: Ledger, schema: Schema) -> None:
    status = status_kept(schema, plain(ledger))
    assert lost(plain(ledger), status) == []
    assert read(status) == (SCHEMA_VERSION, ledger)


def test_this_controller_holds_at_a_ledger_of_the_next_version() -> None:
    status = plain(opened()) | {"schemaVersion": SCHEMA_VERSION + 1, "phase": "Levitating"}
    status["incident"]["height"] = 3
    assert read(status_kept(NEXT_GROUPS, status)) == (SCHEMA_VERSION + 1, Ledger())


def test_these_crds_drop_what_only_the_next_version_has_and_nothing_else() -> None:
    status = plain(opened()) | {"schemaVersion": SCHEMA_VERSION + 1}
    status["incident"]["height"] = 3
    assert lost(status, status_kept(GROUPS, status)) == [".incident.height"]


def test_a_field_that_only_the_next_version_has_is_no_reason_to_hold_or_to_restart_twice() -> None:
    """A new field with a default needs no new `schemaVersion`."""
    status = plain(opened())
    status["incident"]["height"] = 3
    version, ledger = read(status_kept(NEXT_GROUPS, status))
    assert (version, ledger) == (SCHEMA_VERSION, opened())
    plan = decide(training(4).pod_gone(2, 0).snapshot(live=True), ledger, policy(), at(1))
    assert plan.ledger.epoch == ledger.epoch


def test_a_record_keeps_the_log_of_its_suspect() -> None:
    log = SuspectLog("train-node-0-2", "node", tail="a\n  b\tc")
    fields = plain(opened().with_incident(suspect_log=log).current_incident)
    closing = {"outcome": "Recovered", "outcomeReason": "AllRanksReady", "endedAt": "2026-11-21T12:01:00Z"}
    spec = kept(INCIDENTS, kind="RecoveryIncident", spec=OWNER | fields | closing | {"schemaVersion": SCHEMA_VERSION})
    assert decode_recorded(msgspec.json.encode(spec["spec"])).suspect_log == log
