"""`recovery nodes`: one line for each node that is quarantined or suspected, with the reason."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recovery.cli.connection import Connection
from recovery.cli.main import app
from recovery.core.model.annotations import QUARANTINE_ANNOTATION
from recovery.core.model.fleet_ledger import FleetChange, Suspicion
from recovery.executors import node_quarantine
from recovery.ports import NODES, RECOVERY_CONFIGS, ForbiddenError, PatchKind
from tests.unit.cli.cluster import Middle
from tests.unit.core.world import at
from tests.unit.executors.fleet import Fleet

ALLOWED = {"allow": {"cordon": True}, "suspicion": {"suspicions": 3, "within": "24h"}}
HEADER = ["NODE", "STATE", "SINCE", "BY", "ENDS", "EVIDENCE"]


@pytest.fixture(params=[{"spec": ALLOWED}])
def fleet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    made = Fleet(**request.param)

    @asynccontextmanager
    async def connect(*_: object) -> AsyncIterator[Connection]:
        yield Connection(made.client, "https://plain", made.clock, Middle())

    for module in ("nodes", "quarantine"):
        monkeypatch.setattr(f"recovery.cli.{module}.connect", connect)
    return made


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, arguments or ["nodes"])
    assert result.exit_code == 0, result.output
    return result


def table() -> list[list[str]]:
    header, *lines = run().stdout.splitlines()
    assert header.split() == HEADER
    return [re.split(" {2,}", line) for line in lines]


def quarantined(fleet: Fleet, **fields: Any) -> None:
    entry = fleet.wanted(**fields)
    asyncio.run(fleet.writer().change(FleetChange(quarantine=(entry,))))


def suspected(fleet: Fleet, *suspicions: Suspicion) -> None:
    asyncio.run(fleet.writer().change(FleetChange(suspicions=suspicions)))


def test_nothing_is_held_against_any_node(fleet: Fleet) -> None:
    result = run()
    assert (result.stdout, result.stderr) == ("", "recovery: no node is quarantined or suspected\n")
    assert json.loads(run("nodes", "-o", "json").stdout) == []


def test_each_node_is_one_line_with_its_evidence(fleet: Fleet) -> None:
    reasons = ("pod llm-1 (rank 1): Exit139", "pod vlm-4 (rank 4): Exit139")
    suspected(
        fleet,
        Suspicion("gpu-3", "inc-8", at(-60), reasons[0], "ml"),
        Suspicion("gpu-3", "inc-9", at(-30), reasons[1], "ml"),
        Suspicion("gpu-0", "old", at(-90_000), "long ago", "ml"),
    )
    quarantined(fleet, release_at=at(3600), release_when="GpuUnhealthy")
    assert table() == [
        [
            "gpu-1",
            "Quarantined",
            "5s",
            "incident inc-1",
            "when GpuUnhealthy ends or at 2026-11-21 13:00:00Z or by hand",
            "XID 79",
        ],
        ["gpu-3", "Suspected 2/3", "70s", "inc-8, inc-9", "at 2026-11-22 11:59:30Z or by hand", "; ".join(reasons)],
    ]


def test_a_quarantined_node_that_is_suspected_too_is_one_line(fleet: Fleet) -> None:
    quarantined(fleet)
    suspected(fleet, Suspicion("gpu-1", "inc-8", at(-60), "an exit", "ml"))
    [line] = table()
    assert line[:2] == ["gpu-1", "Quarantined"]
    [data] = json.loads(run("nodes", "-o", "json").stdout)
    assert (data["suspicions"], data["suspicionsNeeded"], data["evidence"]) == (1, 3, ["XID 79"])


def test_one_that_is_decided_and_not_in_force_says_so(fleet: Fleet) -> None:
    fleet.client.next("patch", NODES, ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        quarantined(fleet)
    assert table()[0][:2] == ["gpu-1", "Quarantining"]


@pytest.mark.parametrize("fleet", [{"spec": None}], indirect=True)
def test_without_a_config_the_nodes_themselves_say_what_a_person_has_done(fleet: Fleet) -> None:
    entry = fleet.wanted("gpu-2", "", reason="fan noise", by="jane", node_sign="")
    asyncio.run(node_quarantine.quarantine_by_hand(fleet.client, entry))
    assert table() == [["gpu-2", "Quarantined", "5s", "jane", "by hand", "fan noise"]]


def test_an_annotation_that_cannot_be_read_hides_no_quarantine(fleet: Fleet) -> None:
    quarantined(fleet)
    fleet.server.patch(
        RECOVERY_CONFIGS, "default", {"status": {"quarantined": None}}, kind=PatchKind.MERGE, subresource="status"
    )
    fleet.patch_node("gpu-1", {"metadata": {"annotations": {QUARANTINE_ANNOTATION: "{"}}})
    [line] = table()
    assert line[:4] == ["gpu-1", "Quarantined", "-", "inc-1"]
    assert line[5].endswith("cannot be read")


def test_who_may_not_list_nodes_sees_what_the_ledger_has(fleet: Fleet) -> None:
    quarantined(fleet)
    fleet.client.next("list", NODES, ForbiddenError("list nodes: forbidden", status=403))
    result = run()
    assert result.stdout.splitlines()[1].startswith("gpu-1  Quarantined")
    assert "nodes may not be listed" in result.stderr


def test_who_may_not_read_the_config_sees_what_the_nodes_say(fleet: Fleet) -> None:
    quarantined(fleet)
    fleet.client.next("get", RECOVERY_CONFIGS, ForbiddenError("get recoveryconfigs: forbidden", status=403))
    result = run()
    assert result.stdout.splitlines()[1].startswith("gpu-1  Quarantined")
    assert "so suspicions are not shown" in result.stderr
