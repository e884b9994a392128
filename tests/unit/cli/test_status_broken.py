"""A group that hangs between incidents is never called Healthy: not by `status`, and not by its RecoveryGroup."""

import json
from typing import Any

import pytest

from recovery.core.model.ledger import SCHEMA_VERSION
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_status import open_incident, row, status
from tests.unit.cli.test_status_table import PAUSED
from tests.unit.fake_api import Object

WHY = "pod llm-node-0-3-x7k2p (rank 3, node gpu-3) ended"
HANGS = f"The group has been Broken since 2026-11-02 08:50:00Z: {WHY}. Its other ranks hang."


def broken(**changes: Any) -> Object:
    """`status` of a RecoveryGroup whose last incident closed and left its ranks hanging."""
    closed = {
        "id": "uid-team-1",
        "outcome": "Held",
        "outcomeReason": "LeftToKubernetes",
        "class": "PodDeleted",
        "cause": "Deleted",
        "startedAt": "2026-11-02T08:50:00Z",
        "endedAt": "2026-11-02T08:50:12Z",
        "attempts": 1,
        "idleGpuSeconds": 192.0,
        "reason": "LeftToKubernetes",
        "stillBroken": True,
    }
    return {
        "schemaVersion": SCHEMA_VERSION,
        "epoch": 1,
        "phase": "Healthy",
        "standing": "Broken",
        "broken": {
            "since": "2026-11-02T08:50:00Z",
            "lostAt": "2026-11-02T08:50:00Z",
            "bookedFrom": "2026-11-02T08:50:12Z",
            "incident": "uid-team-1",
            "class": "PodDeleted",
            "gpus": 16,
            "message": WHY,
        },
        "history": [closed],
        "totals": {"incidents": 1},
        "cause": "Deleted",
        "action": "None",
        "reason": "LeftToKubernetes",
        "message": "left to Kubernetes",
    } | changes


def told() -> Object:
    [found] = json.loads(status("-o", "json").stdout)
    return dict(found)


def test_a_group_that_hangs_is_broken_and_waits_for_a_person(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", broken())
    assert row("llm") == {
        "JOB": "llm",
        "PHASE": "Broken",
        "CAUSE": "Deleted",
        "SINCE": "10m",
        "IDLE-GPUS": "16",
        "PROTECTED": "no: Broken",
        "NEXT": "recovery retry llm",
    }
    found = told()
    assert (found["standing"], found["since"]) == ("Broken", "2026-11-02T08:50:00Z")
    assert found["message"] == f"{HANGS} Run recovery retry llm to restart the group."
    assert found["nextStep"]["command"] == "recovery retry llm -n team-a"


def test_where_the_policy_only_observes_the_restart_is_forced(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Observe")
    cluster.add_group("llm", broken())
    cells = row("llm")
    assert (cells["PHASE"], cells["PROTECTED"]) == ("Broken", "no: Broken")
    assert cells["NEXT"] == "recovery restart llm --reason TEXT --force"


def test_it_comes_before_jobs_that_only_are_unprotected(cluster: PlainCluster) -> None:
    for name in ("asleep", "llm"):
        cluster.add_job(name)
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", broken())
    assert [line.split()[:2] for line in status().stdout.splitlines()[1:]] == [["llm", "Broken"], ["asleep", "Healthy"]]


def test_a_pause_stays_a_pause_and_hides_no_idle_gpu(cluster: PlainCluster) -> None:
    cluster.add_job("llm")["metadata"]["annotations"] = PAUSED
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", broken())
    cells = row("llm", "-o", "wide")
    assert (cells["PHASE"], cells["IDLE-GPUS"], cells["PROTECTED"]) == ("Paused", "16", "no: Broken")
    assert cells["NEXT"] == "recovery resume llm"
    assert cells["REASON"] == f"paused by annotation; {HANGS}"
    assert told()["standing"] == "Broken"


def test_without_a_policy_no_controller_says_whether_it_still_hangs(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_group("llm", broken())
    assert row("llm")["PHASE"] == "NoPolicy"


def test_a_group_that_is_smaller_too_is_broken_first(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", broken(elastic={"nodes": 1, "wantedNodes": 2, "since": "2026-11-02T08:00:00Z"}))
    cells = row("llm")
    assert (cells["CAUSE"], cells["NEXT"]) == ("Deleted", "recovery retry llm")


def test_a_silent_node_does_not_hide_that_it_hangs(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4)
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", broken())
    cluster.goes_silent("gpu-2")
    cells = row("llm")
    assert (cells["PHASE"], cells["NEXT"]) == ("Broken", "recovery retry llm")
    assert told()["standing"] == "Broken"


def test_a_silent_node_of_a_group_that_trained_leaves_it_unknown(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4)
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", {"schemaVersion": SCHEMA_VERSION, "phase": "Healthy", "standing": "Met"})
    assert told()["standing"] == "Met"
    cluster.goes_silent("gpu-2")
    assert row("llm")["PROTECTED"] == "no: NodeSilent"
    assert told()["standing"] == "Unknown"


@pytest.mark.parametrize("phase", ["Held", "Backoff", "Starting"])
def test_in_an_incident_the_phase_says_where_the_pods_are(cluster: PlainCluster, phase: str) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", open_incident(phase) | {"standing": "Broken"})
    assert row("llm")["PHASE"] == phase
    assert told()["standing"] == "Broken"


def test_a_ledger_without_a_standing_changes_nothing(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    of_before = {name: value for name, value in broken().items() if name not in {"standing", "broken"}}
    cluster.add_group("llm", of_before)
    cells = row("llm")
    assert (cells["PHASE"], cells["IDLE-GPUS"], cells["PROTECTED"]) == ("Healthy", "0", "yes")
    assert told()["standing"] == "Unknown"


def test_a_job_that_is_not_meant_to_run_has_no_standing(cluster: PlainCluster) -> None:
    cluster.add_job("llm")["spec"]["suspend"] = True
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", broken())
    assert (row("llm")["PHASE"], told()["standing"]) == ("Suspended", None)
