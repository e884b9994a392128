"""Controllers and CRDs of different versions at the same time.

CRDs are applied before the controller (docs/install.md). So an earlier controller works under these CRDs until it is
replaced, and again after a rollback of the image alone. The reverse order is an error and is reported, but even then
nothing may be restarted twice. `earlier_crds` are the CRDs of commit 3338a6b.
"""

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recovery.core.decision.decide import decide
from recovery.core.model.ledger import Ledger
from recovery.core.plan.actions import ReadLive
from recovery.kube.projections.recovery import decode_recovery_group
from recovery.sim.api.schemas import Schema
from tests.unit import fast_yaml
from tests.unit.core.driver import Controller
from tests.unit.core.world import at
from tests.unit.upgrade.scenarios import FIXTURES, RECORDS, SCENARIOS, Step, agreed, group_of, reconcile

EARLIER = Path(__file__).parent / "earlier_crds"
PRESENT = Path(__file__).parents[3] / "manifests" / "crd"
HEAD = {"apiVersion": "recovery.trainjob.dev/v1alpha1", "metadata": {"name": "train", "namespace": "ml"}}
OWNER = {
    "group": "train",
    "workloadRef": {"kind": "TrainJob", "name": "train", "uid": "0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"},
}


def schema(folder: Path, plural: str) -> Schema:
    [version] = fast_yaml.load((folder / f"{plural}.yaml").read_text())["spec"]["versions"]
    return Schema(version["schema"]["openAPIV3Schema"])


GROUPS, EARLIER_GROUPS = (schema(folder, "recoverygroups") for folder in (PRESENT, EARLIER))
INCIDENTS, EARLIER_INCIDENTS = (schema(folder, "recoveryincidents") for folder in (PRESENT, EARLIER))


def kept(definition: Schema, body: dict[str, Any]) -> dict[str, Any]:
    """What the API server keeps of the object. Fails if the server refuses it."""
    body = copy.deepcopy(HEAD | body)
    definition.complete(body, None)
    assert [cause.message for cause in definition.causes(body, None)] == []
    return body


def status_kept(definition: Schema, status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = kept(definition, {"kind": "RecoveryGroup", "spec": OWNER, "status": status})["status"]
    return found


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """The paths of what `before` has and `after` lacks or changes. Defaults that were filled in are no loss."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [found for key, value in before.items() for found in lost(value, after.get(key), f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [found for old, new in zip(before, after, strict=True) for found in lost(old, new, f"{path}[]")]
    return [] if before == after else [path]


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_earlier_controller_writes_its_ledgers_under_these_definitions(name: str) -> None:
    for step in json.loads((FIXTURES / f"{name}.json").read_text()):
        assert lost(step["status"], status_kept(GROUPS, step["status"])) == []


@pytest.mark.parametrize("record", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_an_earlier_controller_writes_its_records_under_these_definitions(record: Path) -> None:
    body = json.loads(record.read_text())
    assert lost(body["spec"], kept(INCIDENTS, body)["spec"]) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_ledger_of_this_version_is_kept_whole_under_these_definitions(name: str) -> None:
    controller = Controller()
    for step in SCENARIOS[name]():
        reconcile(controller, step)
        assert lost(plain(controller.ledger), status_kept(GROUPS, plain(controller.ledger))) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_under_earlier_definitions_nothing_is_refused_and_nothing_is_done_twice(name: str) -> None:
    """They prune messages and what these relate to. Codes, targets, attempts and what holds the group stay."""
    ledger = Ledger()
    for step, then in zip(SCENARIOS[name](), json.loads((FIXTURES / f"{name}.json").read_text()), strict=True):
        actions, written = decided(ledger, step)
        assert actions == then["actions"], f"at {then['seconds']} s"
        ledger = read(status_kept(EARLIER_GROUPS, plain(written)))
        if ledger.incident is not None and ledger.incident.closing is None:
            assert_comes_to_rest(ledger, step)


def assert_comes_to_rest(ledger: Ledger, step: Step) -> None:
    """On the same facts nothing new is done, and from the second write on nothing changes. So no watch event
    follows, and no further reconcile."""
    for _ in range(2):
        actions, written = decided(ledger, step)
        assert written.epoch == ledger.epoch
        assert "EmitEvent" not in [action["type"] for action in actions]
        before, ledger = ledger, read(status_kept(EARLIER_GROUPS, plain(written)))
    assert ledger == before, f"at {step[0]} s"


def decided(ledger: Ledger, step: Step) -> tuple[list[dict[str, Any]], Ledger]:
    """Decide as the reconciler does: on live facts if the cached ones call for them."""
    seconds, world, policy = step
    plan = decide(world.snapshot(), ledger, policy, at(seconds))
    if ReadLive() in plan.actions:
        plan = decide(world.snapshot(live=True), ledger, policy, at(seconds))
    return agreed((*plan.first, *plan.actions)), plan.ledger


def read(status: dict[str, Any]) -> Ledger:
    return decode_recovery_group(group_of(status)).value.ledger


def plain(ledger: Ledger) -> dict[str, Any]:
    encoded: dict[str, Any] = json.loads(msgspec.json.encode(ledger))
    return encoded


@pytest.mark.parametrize(("seconds", "undecided"), [(20, False), (20.1, True)])
def test_what_an_earlier_controller_had_not_decided_is_undecided_for_this_one(seconds: float, undecided: bool) -> None:
    """It concluded from the message whether a later loss waits. Its ledger has no field for that."""
    controller = Controller()
    for step in SCENARIOS["stood_aside_said_more"]():
        if step[0] <= seconds:
            reconcile(controller, step)
    written = plain(controller.ledger)
    assert written["incident"].pop("undecided") is undecided
    assert read(written) == controller.ledger
