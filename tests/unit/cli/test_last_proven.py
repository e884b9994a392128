"""Whether the recovery of a job is proven, in `status` and `explain`."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from recovery.cli.main import app
from recovery.core.model.ledger import SCHEMA_VERSION
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_explain import explain
from tests.unit.cli.test_status import row, status
from tests.unit.fake_api import Object

PROOF = {
    "provenAt": "2026-10-30T06:00:00Z",
    "seconds": 45.2,
    "incident": "uid-team-1",
    "run": "one-pod-x7k2p",
    "step": 1200,
    "verified": True,
    "source": "joined-probe",
}
MESSAGE = "the group recovered from drill one-pod-x7k2p in 45 s"


def ledger(reason: str, status_: str, proof: Object | None = None) -> Object:
    """`status` of a RecoveryGroup whose incidents have closed."""
    said = {"type": "RecoveryProven", "status": status_, "reason": reason, "message": MESSAGE}
    found: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "conditions": [said | {"lastTransitionTime": "2026-10-30T06:00:01Z", "observedGeneration": 0}],
    }
    return found | ({"proof": proof} if proof is not None else {})


STATES = {
    "RecoveryProven": ("True", "3d3h", "yes"),
    "ProofExpired": ("False", "3d3h (expired)", "no longer"),
    "ProofOutdated": ("False", "3d3h (outdated)", "no longer"),
    "ProofNotVerified": ("Unknown", "3d3h (not verified)", "not verified"),
}


@pytest.mark.parametrize("reason", STATES)
def test_a_proof_shows_its_age_and_why_it_does_not_count(cluster: PlainCluster, reason: str) -> None:
    condition, cell, answer = STATES[reason]
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", ledger(reason, condition, PROOF))
    assert row("llm", "-o", "wide")["LAST-PROVEN"] == cell
    assert explain("llm").splitlines()[2] == f"Proven: {answer}, last 3d3h ago. T{MESSAGE[1:]}."


def test_data_have_the_whole_proof(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", ledger("ProofExpired", "False", PROOF))
    [told] = json.loads(status("-o", "json").stdout)
    assert told["proof"] == PROOF | {"counts": False, "reason": "ProofExpired", "message": MESSAGE}


def test_a_group_that_has_not_recovered_yet(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", ledger("NeverProven", "Unknown"))
    assert row("llm", "-o", "wide")["LAST-PROVEN"] == "never"
    [told] = json.loads(status("-o", "json").stdout)
    assert told["proof"] is None


def test_explain_says_that_nothing_is_proven_where_the_policy_asks_for_a_proof(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce", drill={"maxAge": "720h"})
    assert explain("llm").splitlines()[2] == "Proven: no. The group has not recovered from a failure yet."


def test_explain_is_silent_about_it_where_no_one_asks(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    assert "Proven" not in explain("llm")


def test_the_report_of_a_job_has_the_proof_of_its_ledger(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_group("llm", ledger("RecoveryProven", "True", PROOF))
    result = CliRunner().invoke(app, ["report", "llm", "-o", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["proof"]["run"] == "one-pod-x7k2p"
