"""`explain` says whether the program trains, and never that nothing failed in a group that hangs."""

import json

import pytest

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import PODS
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_explain import explain, section
from tests.unit.cli.test_status import open_incident
from tests.unit.cli.test_status_broken import HANGS, WHY, broken
from tests.unit.cli.test_status_table import PAUSED
from tests.unit.fake_api import Object


def hanging(cluster: PlainCluster, *, mode: str = "Enforce", ranks: int = 4, ledger: Object | None = None) -> None:
    """Rank 3 was replaced, and the others hang."""
    cluster.add_job("llm", ranks=ranks)
    cluster.add_policy(mode=mode)
    cluster.add_group("llm", broken() if ledger is None else ledger)
    for pod in cluster.objects[PODS.plural]:
        began = "08:00:10"
        if pod["metadata"]["name"] == "llm-3":
            began = "08:50:07"
            pod["metadata"]["creationTimestamp"] = "2026-11-02T08:50:05Z"
        for container in pod["status"]["containerStatuses"]:
            container["state"] = {"running": {"startedAt": f"2026-11-02T{began}Z"}}


def test_a_group_that_hangs_says_since_when_and_how_many_ranks(cluster: PlainCluster) -> None:
    hanging(cluster)
    text = explain("llm")
    assert text.splitlines()[1] == f"Protected: no. {HANGS} Run recovery retry llm to restart the group."
    assert section(text, "Now")[:2] == [
        f"the group has been Broken since 2026-11-02 08:50:00Z: {WHY}; 3 ranks still run and hang",
        "hanging: pod llm-0 (rank 0, node gpu-0), pod llm-1 (rank 1, node gpu-1), pod llm-2 (rank 2, node gpu-2)",
    ]
    assert section(text, "Last incident")[0].startswith("uid-team-1, Held (LeftToKubernetes, its ranks still hung)")


@pytest.mark.parametrize("mode", ["Enforce", "Observe"])
def test_the_decision_never_says_that_nothing_failed(cluster: PlainCluster, mode: str) -> None:
    hanging(cluster, mode=mode)
    assert "no failure" not in explain("llm")
    found = json.loads(explain("llm", "-o", "json"))
    assert found["phase"] == "Broken"
    assert "no failure" not in found["decision"]["message"]
    assert found["now"][0].startswith("the group has been Broken since ")


def test_the_end_of_a_pause_repairs_nothing_either(cluster: PlainCluster) -> None:
    hanging(cluster)
    cluster.objects["trainjobs"][0]["metadata"]["annotations"] = PAUSED
    text = explain("llm")
    assert "the other ranks have hung since" in section(text, "If the pause ended now")[0]
    assert "no failure" not in text


def test_a_silent_node_does_not_hide_that_it_hangs(cluster: PlainCluster) -> None:
    hanging(cluster)
    cluster.goes_silent("gpu-2")
    text = explain("llm")
    assert section(text, "Decision")[0].startswith("nothing: the group hangs, and a node is silent.")
    assert "no failure" not in text


@pytest.mark.parametrize(
    ("standing", "line"),
    [
        ("Met", "standing Met: all ranks have met, and none has ended since"),
        ("Forming", "standing Forming: its processes have not all met yet, and none hangs"),
    ],
)
def test_otherwise_the_standing_is_said(cluster: PlainCluster, standing: str, line: str) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", {"schemaVersion": SCHEMA_VERSION, "standing": standing})
    assert section(explain("llm"), "Now")[0] == line


def test_in_an_incident_the_ranks_hang_until_it_has_restarted_them(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", open_incident("Held") | {"standing": "Broken"})
    assert section(explain("llm"), "Now")[0] == "standing Broken: a rank ended, and the ranks that had met it hang"


def test_a_held_incident_names_the_ranks_that_hang(cluster: PlainCluster) -> None:
    ledger = open_incident("Held") | {"standing": "Broken"}
    ledger["incident"] |= {"startedAt": "2026-11-02T08:50:00Z", "lostAt": "2026-11-02T08:50:00Z", "evidence": [WHY]}
    hanging(cluster, ledger=ledger)
    assert section(explain("llm"), "Now")[:2] == [
        f"standing Broken since 2026-11-02 08:50:00Z: {WHY}; 3 ranks still run and hang",
        "hanging: pod llm-0 (rank 0, node gpu-0), pod llm-1 (rank 1, node gpu-1), pod llm-2 (rank 2, node gpu-2)",
    ]


def test_of_many_ranks_that_hang_the_first_are_named_by_rank(cluster: PlainCluster) -> None:
    hanging(cluster, ranks=12)
    assert section(explain("llm"), "Now")[1] == (
        "hanging: pod llm-0 (rank 0, node gpu-0), pod llm-1 (rank 1, node gpu-1), pod llm-2 (rank 2, node gpu-2) "
        "and 8 more"
    )


def test_a_silent_node_leaves_the_standing_unknown(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=4)
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", {"schemaVersion": SCHEMA_VERSION, "standing": "Met"})
    cluster.goes_silent("gpu-2")
    first = section(explain("llm"), "Now")[0]
    assert first.startswith("standing Unknown: node gpu-2 has not answered since 08:58:00")


def test_a_ledger_that_does_not_say_adds_no_line(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", {"schemaVersion": SCHEMA_VERSION})
    assert section(explain("llm"), "Now")[0] == "JobSet llm, 0 restarts of its own"
