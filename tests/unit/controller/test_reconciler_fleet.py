"""A plan's changes to the fleet follow the ledger write. If a cap of the fleet refuses them, it is decided again."""

from datetime import datetime

import msgspec
import pytest

from recovery.core.model.facts import ContainerFacts, Snapshot
from recovery.core.model.fleet_ledger import FleetChange, FleetLimits, Quarantined
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Reason
from recovery.core.plan.actions import ChangeFleet, EmitEvent, Plan
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError
from recovery.executors.fleet_ledger import FleetWriter
from tests.unit.controller.scene import Scene
from tests.unit.core.groups import group, training
from tests.unit.core.world import at

WANTED = Quarantined("gpu-1", "uid-1", "XID 79", at(0), incident="inc-1")
ASKS = ChangeFleet(epoch=1, change=FleetChange(quarantine=(WANTED,)))
SAYS = EmitEvent(key="inc-1.quarantine", warning=True, reason="QuarantineRefused", note="the cap is reached")


async def test_what_a_group_without_an_incident_asks_of_the_fleet_is_done_and_makes_no_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[FleetChange] = []

    async def change(_: FleetWriter, what: FleetChange) -> None:
        asked.append(what)

    monkeypatch.setattr(FleetWriter, "change", change)
    container = ContainerFacts(name="node", waiting_reason="CreateContainerError")
    world = group(4, born=-300).started(0, -290).started(1, -290).started(2, -290)
    scene = Scene(world.scheduled(3).with_pod(3, containers=(container,)))
    monkeypatch.setattr("recovery.core.policy.resolved.fleet_limits", lambda _: FleetLimits(may_cordon=True))
    await scene.reconcile()
    assert scene.api.said() == []
    assert [(each.node, each.incident) for what in asked for each in what.suspicions] == [("gpu-3", "start-jobset-1")]


async def test_a_quarantine_that_the_fleet_refuses_is_decided_on_live_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def decide(snapshot: Snapshot, ledger: Ledger, policy: Policy | PolicyError | None, now: datetime) -> Plan:
        """Only live facts show the cap."""
        asked.append(snapshot.live)
        written = msgspec.structs.replace(ledger, message="decided")
        return Plan(written, Reason.DEFAULT_RESTART, "decided", actions=(SAYS,) if snapshot.live else (ASKS,))

    monkeypatch.setattr("recovery.controller.reconciler.decide", decide)
    scene = Scene(training(4))
    await scene.reconcile()
    assert asked == [False, True]
    assert (scene.api.ledger.message, scene.api.said()[-1]) == ("decided", "create Event")
    assert not any(request.resource.plural in {"nodes", "recoveryconfigs"} for request in scene.api.writes)
