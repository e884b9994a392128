"""The commands about nodes and the breaker: what they write, and what they print."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recovery.cli.connection import Connection
from recovery.cli.main import app
from recovery.core.fleet.quarantine import parsed_mark
from recovery.core.model.annotations import QUARANTINE_ANNOTATION, RELEASE_ANNOTATION, RESET_BREAKER_ANNOTATION
from recovery.core.model.fleet_ledger import FleetChange, Futile, Suspicion
from recovery.executors import node_quarantine
from recovery.ports import NODES, RECOVERY_CONFIGS, ForbiddenError
from tests.unit.cli.cluster import Middle
from tests.unit.core.world import at
from tests.unit.executors.fleet import Fleet

ALLOWED = {"allow": {"cordon": True}}


@pytest.fixture(params=[{"spec": ALLOWED}])
def fleet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet(**request.param)

    @asynccontextmanager
    async def connect(*_: object) -> AsyncIterator[Connection]:
        yield Connection(made.client, "https://plain", made.clock, Middle())

    async def context_user(*_: object) -> str:
        return "jane"

    monkeypatch.setattr("recovery.cli.quarantine.connect", connect)
    monkeypatch.setattr("recovery.cli.quarantine.context_user", context_user)
    return made


def run(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == exit_code, result.output
    return result


def annotation(fleet: Fleet, name: str, node: str = "gpu-1") -> str | None:
    found: dict[str, str] = fleet.node(node)["metadata"].get("annotations") or {}
    return found.get(name)


def by_controller(fleet: Fleet) -> None:
    asyncio.run(fleet.writer().change(FleetChange(quarantine=(fleet.wanted(),))))


def test_a_node_is_quarantined_by_a_person_with_the_reason(fleet: Fleet) -> None:
    said = run("quarantine", "gpu-1", "--reason", "fan noise").stdout
    assert said == (
        "node gpu-1 is quarantined; no new pod comes to it, those that run there stay, and only `recovery release "
        "gpu-1` ends it\n"
    )
    assert (fleet.cordoned("gpu-1"), fleet.taints("gpu-1")) == (False, ["quarantined=by-hand"])
    mark = parsed_mark(annotation(fleet, QUARANTINE_ANNOTATION))
    assert mark is not None
    assert (mark.by, mark.reason, mark.cordoned) == ("jane", "fan noise", False)


@pytest.mark.parametrize("fleet", [{"spec": {"quarantine": {"cordon": True}}}], indirect=True)
def test_a_person_cordons_the_node_as_well_where_the_config_says_so(fleet: Fleet) -> None:
    run("quarantine", "gpu-1", "--reason", "fan noise")
    assert (fleet.cordoned("gpu-1"), fleet.taints("gpu-1")) == (True, ["quarantined=by-hand"])
    assert "cordon" not in run("release", "gpu-1").stdout
    assert (fleet.cordoned("gpu-1"), fleet.taints("gpu-1")) == (False, [])


@pytest.mark.parametrize("fleet", [{"spec": {"quarantine": {"cordon": True}}}], indirect=True)
def test_a_release_says_who_claims_the_cordon_that_stays(fleet: Fleet) -> None:
    run("quarantine", "gpu-1", "--reason", "fan noise")
    agent = {"key": "AggregatedNodeHealth", "value": "False", "effect": "NoSchedule"}
    fleet.patch_node("gpu-1", {"spec": {"taints": [agent, *fleet.node("gpu-1")["spec"]["taints"]]}})
    assert "; its cordon stays for taint AggregatedNodeHealth" in run("release", "gpu-1").stdout
    assert (fleet.cordoned("gpu-1"), fleet.quarantined) == (True, [])


def test_once_more_says_so_and_writes_nothing(fleet: Fleet) -> None:
    run("quarantine", "gpu-1", "--reason", "fan noise")
    said = run("quarantine", "gpu-1", "--reason", "fan noise").stdout
    assert said == "node gpu-1 is quarantined already by jane: fan noise\n"
    assert fleet.client.patched == ["nodes gpu-1"]


def test_a_person_takes_over_from_the_controller_and_is_told(fleet: Fleet) -> None:
    by_controller(fleet)
    said = run("quarantine", "gpu-1", "--reason", "keep it").stdout
    assert "it was already by the controller (incident inc-1): XID 79" in said
    assert fleet.taints("gpu-1") == ["quarantined=by-hand"]


def test_each_node_is_tried_and_one_that_is_not_there_is_named(fleet: Fleet) -> None:
    result = run("quarantine", "gpu-9", "gpu-1", "--reason", "x", exit_code=1)
    assert result.stderr == "recovery: there is no node gpu-9; `kubectl get nodes` lists those that there are\n"
    assert fleet.quarantined == ["gpu-1"]


def test_a_reason_is_wanted(fleet: Fleet) -> None:
    assert "--reason must not be empty" in run("quarantine", "gpu-1", "--reason", " ", exit_code=2).stderr


def test_a_release_frees_the_node_and_tells_the_ledger(fleet: Fleet) -> None:
    by_controller(fleet)
    said = run("release", "gpu-1").stdout
    assert said == (
        "node gpu-1 is released; the controller drops it from its ledger within 30 s: it was quarantined by the "
        "controller (incident inc-1): XID 79\n"
    )
    assert (fleet.cordoned("gpu-1"), fleet.quarantined) == (False, [])
    assert annotation(fleet, RELEASE_ANNOTATION) == "2026-11-21T12:00:10Z"


@pytest.mark.parametrize("fleet", [{"spec": None}], indirect=True)
def test_release_frees_the_node_without_a_recovery_config(fleet: Fleet) -> None:
    run("quarantine", "gpu-1", "--reason", "fan noise")
    said = run("release", "gpu-1").stdout
    assert said == "node gpu-1 is released: it was quarantined by jane: fan noise\n"
    assert (fleet.cordoned("gpu-1"), fleet.quarantined) == (False, [])


def test_the_cordon_of_someone_else_stays_and_that_is_said(fleet: Fleet) -> None:
    fleet.patch_node("gpu-1", {"spec": {"unschedulable": True}})
    said = run("release", "gpu-1").stdout
    assert said == "node gpu-1 is not quarantined by recovery; its cordon was set by others, and stays\n"
    run("quarantine", "gpu-1", "--reason", "fan noise")
    assert "its cordon is not ours, and stays" in run("release", "gpu-1").stdout
    assert (fleet.cordoned("gpu-1"), fleet.quarantined) == (True, [])


def test_a_quarantine_that_is_decided_and_not_yet_set_is_released_as_well(fleet: Fleet) -> None:
    fleet.client.next("patch", NODES, ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        by_controller(fleet)
    assert "within 30 s" in run("release", "gpu-1").stdout
    asyncio.run(node_quarantine.apply(fleet.client, fleet.wanted(), fleet.clock.now()))
    assert fleet.quarantined == []


def test_a_node_that_is_only_suspected_is_released_of_that(fleet: Fleet) -> None:
    held = tuple(Suspicion("gpu-1", incident, at(5), "an exit", "ml") for incident in ("inc-1", "inc-2"))
    asyncio.run(fleet.writer().change(FleetChange(suspicions=held)))
    said = run("release", "gpu-1", "gpu-2").stdout
    assert said == (
        "node gpu-1 was not quarantined; the controller forgets 2 suspicions against it within 30 s\n"
        "node gpu-2 is not quarantined by recovery\n"
    )
    assert fleet.node("gpu-1")["metadata"]["annotations"] == {RELEASE_ANNOTATION: "2026-11-21T12:00:10Z"}


def test_a_missing_permission_is_one_line(fleet: Fleet) -> None:
    fleet.client.next("patch", NODES, ForbiddenError("patch nodes gpu-1: forbidden", status=403))
    result = run("quarantine", "gpu-1", "gpu-2", "--reason", "x", exit_code=1)
    assert result.stderr == "recovery: a permission is missing: patch nodes gpu-1: forbidden\n"


# --- the breaker ---------------------------------------------------------------------------------------------------

BREAKS: dict[str, Any] = {"spec": {**ALLOWED, "circuitBreaker": {"recoveries": 1}}}


@pytest.mark.parametrize("fleet", [BREAKS], indirect=True)
def test_the_breaker_is_reset_by_an_annotation(fleet: Fleet) -> None:
    asyncio.run(fleet.writer().change(FleetChange(futile=(Futile("inc-1", at(5), "inc-1", "llm"),))))
    said = run("reset-breaker").stdout
    assert said.startswith(
        "RecoveryConfig default: the controller closes the circuit breaker within 30 s, and enforces"
    )
    assert "it opened at 2026-11-21T12:00:10Z: 1 recovery within" in said
    found = fleet.server.get(RECOVERY_CONFIGS, "default")["metadata"]["annotations"]
    assert found == {RESET_BREAKER_ANNOTATION: "2026-11-21T12:00:10Z"}


def test_a_closed_breaker_is_left_alone(fleet: Fleet) -> None:
    assert "there is nothing to reset" in run("reset-breaker").stdout
    assert fleet.client.patched == []


@pytest.mark.parametrize("fleet", [{"spec": None}], indirect=True)
def test_without_a_config_there_is_no_breaker(fleet: Fleet) -> None:
    result = run("reset-breaker", exit_code=1)
    assert result.stderr == "recovery: there is no RecoveryConfig default, and so no circuit breaker\n"
