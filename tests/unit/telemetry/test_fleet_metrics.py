"""The metrics of the fleet: nodes kept free, nodes suspected, the breaker, and each refusal once."""

import msgspec

from recovery.core.model.config import AllowSpec, ConfigFacts, ConfigSpec
from recovery.core.model.fleet_ledger import Breaker, FleetLedger, Quarantined, Suspicion
from recovery.core.model.ledger import Considered
from recovery.core.model.reason import Reason
from recovery.telemetry.catalogue import label_values
from recovery.telemetry.incident_instruments import _REFUSALS
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import BEGIN, KEY, Group, HeldStore, Scrape, SetClock

REFUSALS = "recovery_quarantine_refusals_total"


def config(fleet: FleetLedger) -> ConfigFacts:
    return ConfigFacts("default", "uid", 1, ConfigSpec(allow=AllowSpec(cordon=True)), fleet=fleet)


def entry(node: str, by: str = "") -> Quarantined:
    return Quarantined(node, node, "XID 79", BEGIN, incident="" if by else "inc-1", by=by)


def test_without_a_config_nothing_is_quarantined_and_the_breaker_is_closed(metrics: Telemetry) -> None:
    found = Scrape(metrics)
    assert found.value("recovery_nodes_quarantined", by="controller") == 0
    assert found.value("recovery_circuit_breaker_open") == 0


def test_nodes_are_counted_by_who_asked_and_suspicions_while_they_count(
    metrics: Telemetry, store: HeldStore, clock: SetClock
) -> None:
    old, new = (
        Suspicion("gpu-1", "inc-1", BEGIN, "an exit", "ml"),
        Suspicion("gpu-1", "inc-2", BEGIN.replace(minute=59), "an exit", "ml"),
    )
    store.config_facts = config(
        FleetLedger(
            quarantined=(entry("a"), entry("b"), entry("c", by="jane")),
            suspicions=(old, new, Suspicion("gpu-2", "inc-2", BEGIN, "an exit", "ml")),
            breaker=Breaker(BEGIN, Reason.RECOVERIES_IN_VAIN),
        )
    )
    found = Scrape(metrics)
    assert found.by("recovery_nodes_quarantined", "by") == {"controller": 2, "person": 1}
    assert found.by("recovery_node_suspicions", "node") == {"gpu-1": 2, "gpu-2": 1}
    assert found.value("recovery_circuit_breaker_open") == 1
    clock.seconds = 86_400
    assert Scrape(metrics).by("recovery_node_suspicions", "node") == {"gpu-1": 1}


def test_only_the_leader_tells(metrics: Telemetry) -> None:
    metrics.leadership_changed(leads=False)
    assert Scrape(metrics).value("recovery_circuit_breaker_open") is None


def test_a_refusal_is_counted_once_by_its_reason(metrics: Telemetry, group: Group) -> None:
    group.fails()
    before = group.ledger
    assert before.incident is not None
    said = (Considered("RecreateGroup", Reason.SAME_ERROR_AGAIN), Considered("ReplaceNode", Reason.QUARANTINE_CAP))
    after = msgspec.structs.replace(before, incident=msgspec.structs.replace(before.incident, considered=said))
    metrics.ledger_written(KEY, before, after)
    metrics.ledger_written(KEY, after, msgspec.structs.replace(after, message="said again"))
    assert Scrape(metrics).by(REFUSALS, "reason") == {"cap": 1}


def test_each_reason_for_which_a_quarantine_is_refused_is_in_the_catalogue() -> None:
    assert set(_REFUSALS.values()) == set(label_values.REFUSALS)
