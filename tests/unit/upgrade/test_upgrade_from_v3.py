"""A controller of this version takes over, in the middle of an incident, from one that wrote schemaVersion 3.

The fixtures are what commit 3338a6b wrote and did in `scenarios`. This version reads its ledger after each of the
steps, goes on from there, and has to do what that version did: no second trigger, no second decision, no Event twice.
"""

import json
from typing import Any

import msgspec
import pytest

from recovery.core.model.ledger import SCHEMA_VERSION, Ledger
from recovery.kube.projections.recovery import decode_recovery_group
from tests.unit.core.driver import Controller
from tests.unit.upgrade.scenarios import FIXTURES, SCENARIOS, group_of, reconcile

STEPS: dict[str, list[dict[str, Any]]] = {
    name: json.loads((FIXTURES / f"{name}.json").read_text()) for name in SCENARIOS
}


def read(status: dict[str, Any]) -> Ledger:
    """As the reader of RecoveryGroups does."""
    found = decode_recovery_group(group_of(status)).value
    assert found.readable
    return found.ledger


TAKEN_OVER = [(name, step) for name, steps in STEPS.items() for step in range(len(steps))]


@pytest.mark.parametrize(("name", "taken_over_after"), TAKEN_OVER)
def test_what_began_under_version_3_goes_on_as_it_would_have(name: str, taken_over_after: int) -> None:
    steps = STEPS[name]
    controller = Controller(ledger=read(steps[taken_over_after]["status"]))
    for step, then in list(zip(SCENARIOS[name](), steps, strict=True))[taken_over_after + 1 :]:
        actions = reconcile(controller, step)
        assert actions == then["actions"], f"at {then['seconds']} s"
        before, now = then["status"], controller.ledger
        assert now.phase == before.get("phase", "Healthy")
        assert now.epoch == before.get("epoch", 0)
        assert now.message == before.get("reason", "")
        assert (now.incident is None) == (before.get("incident") is None)


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_ledger_is_the_one_that_this_version_would_have_written(name: str) -> None:
    """So the codes that are read out of its sentences are those of the decisions that made the sentences."""
    controller = Controller()
    for step, then in zip(SCENARIOS[name](), STEPS[name], strict=True):
        reconcile(controller, step)
        assert read(then["status"]) == as_read(controller.ledger), f"at {then['seconds']} s"


def as_read(ledger: Ledger) -> Ledger:
    """What Enforce would have done cannot be told from how a closed incident ended; nobody asks for it any more."""
    closed = ledger.incident is not None and ledger.incident.closing is not None
    return ledger.with_incident(would_message="") if closed else ledger


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_ledger_that_was_taken_over_is_the_same_when_it_is_read_back(name: str) -> None:
    for step in STEPS[name]:
        ledger = read(step["status"])
        written = msgspec.json.encode(ledger)
        assert json.loads(written)["schemaVersion"] == SCHEMA_VERSION
        assert msgspec.json.decode(written, type=Ledger) == ledger
