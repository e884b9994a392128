"""The way back to a controller that writes schemaVersion 3, as docs/install.md describes it.

Commit 3338a6b itself was tested once, by hand. It holds at each of the 177 ledgers that this version writes in
`scenarios`. If they are labelled 3, it continues with exactly the actions of the fixtures. These tests check what they
can without that code: the block does what it says, and both the CRDs of 3338a6b and this version accept the result.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recovery.core.model.ledger import WITHOUT_RESUMING, Ledger, Phase
from recovery.kube.projections.recovery import decode_recovery_group
from tests.unit.core.driver import Controller
from tests.unit.upgrade.scenarios import SCENARIOS, group_of, reconcile
from tests.unit.upgrade.test_crds_of_two_versions import EARLIER_GROUPS, plain, status_kept

INSTALL = Path(__file__).parents[3] / "docs" / "install.md"
KUBECTL = """#!/bin/sh
echo "$@" >> "$CALLS"
if [ "$1" = get ]; then printf 'ml   train   4\\nml   old   3\\nlab   empty   <none>\\nlab   llm   4\\n'; fi
"""


def block() -> str:
    [found] = re.findall(r"^### Go back\n.*?^```sh\n(.*?)^```", INSTALL.read_text(), re.DOTALL | re.MULTILINE)
    return str(found)


def labelled(ledger: Ledger) -> dict[str, Any]:
    """The status of the ledger after the patch in the block."""
    [patch] = re.findall(r"-p '(.*?)'", block())
    status: dict[str, Any] = json.loads(patch)["status"]
    return plain(ledger) | status


def test_the_block_stops_the_controller_and_labels_what_this_version_wrote(tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    calls = tmp_path / "calls"
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["sh", "-euc", block()], check=True, env={"PATH": path, "CALLS": str(calls)}, timeout=30)
    scale, wait, listed, *patches = calls.read_text().splitlines()
    assert [scale.split()[0], wait.split()[0], listed.split()[0]] == ["scale", "wait", "get"]
    assert [patch.split()[1:5] for patch in patches] == [
        ["recoverygroups", "train", "-n", "ml"],
        ["recoverygroups", "llm", "-n", "lab"],
    ]
    assert f"schemaVersion = {WITHOUT_RESUMING}" == "schemaVersion = 4", "the block names the version that is left"


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_labelled_ledger_fits_the_earlier_definition_and_is_read_again_as_it_was(name: str) -> None:
    controller = Controller()
    for step in SCENARIOS[name]():
        reconcile(controller, step)
        status = labelled(controller.ledger)
        assert status["schemaVersion"] == 3
        status_kept(EARLIER_GROUPS, status)
        found = decode_recovery_group(group_of(status)).value
        assert (found.schema_version, found.ledger) == (3, controller.ledger)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_the_older_controller_keeps_of_it_is_gone_on_with(name: str) -> None:
    """It knows no messages. Where it had a sentence there is now a code, which this version reads as a code."""
    controller = Controller()
    for step in SCENARIOS[name]():
        reconcile(controller, step)
        kept = status_kept(EARLIER_GROUPS, labelled(controller.ledger))
        found = decode_recovery_group(group_of(kept)).value
        assert found.readable
        assert (found.ledger.epoch, found.ledger.phase) == (controller.ledger.epoch, controller.ledger.phase)
        assert found.ledger.reason == controller.ledger.reason
        again, now = Controller(ledger=found.ledger), controller.ledger.incident
        if now is not None and now.closing is None:
            reconcile(again, step)
            assert again.ledger.epoch == controller.ledger.epoch, "no second trigger"
        assert msgspec.json.decode(msgspec.json.encode(again.ledger), type=Ledger) == again.ledger


def test_where_the_ledger_is_deleted_instead_a_held_group_is_restarted() -> None:
    """A controller of any version finds the loss, but no ledger that says what it has cost."""
    controller = Controller()
    for step in SCENARIOS["held_by_budget"]():
        if step[0] == 32:
            assert controller.ledger.phase is Phase.HELD
            actions = reconcile(Controller(), step)
            assert [action["type"] for action in actions][:1] == ["DeleteJob"]
        reconcile(controller, step)
