"""`recovery status` of jobs whose policy was in Observe and is now in Enforce."""

from recovery.core.model.ledger import SCHEMA_VERSION
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_status import WOULD_WORDS, observed, row, status
from tests.unit.fake_api import Object


def test_of_jobs_that_enforce_by_now_it_is_not_said_any_more(cluster: PlainCluster) -> None:
    for name in ("llm", "vlm"):
        cluster.add_job(name, namespace="team-b" if name == "vlm" else "team-a")
        cluster.add_group(name, observed(), namespace="team-b" if name == "vlm" else "team-a")
    cluster.add_policy(mode="Enforce")
    cluster.add_policy(namespace="team-b")
    assert WOULD_WORDS.format(3, "2.00") in status("-A").stderr
    assert "Enforce would" not in status().stderr


EARLIER = "pod llm-1 was lost: incident uid-team-1 was one of mode Observe; run recovery restart llm --reason TEXT"


def with_earlier_loss(status: str = "True") -> Object:
    """`status` of a RecoveryGroup without an open incident."""
    condition = {
        "type": "EarlierLoss",
        "status": status,
        "reason": "Baseline",
        "message": EARLIER,
        "lastTransitionTime": "2026-11-02T08:59:00Z",
    }
    return {"schemaVersion": SCHEMA_VERSION, "cause": "Exit137", "message": "closed", "conditions": [condition]}


def test_a_loss_about_which_nothing_is_done_is_named_with_what_to_do(cluster: PlainCluster) -> None:
    cluster.add_job("bert")
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", with_earlier_loss())
    cells = row("llm", "-o", "wide")
    assert (cells["PHASE"], cells["CAUSE"], cells["PROTECTED"]) == ("Healthy", "EarlierLoss", "yes")
    assert (cells["NEXT"], cells["REASON"]) == ("recovery explain llm", EARLIER)
    assert [line.split()[0] for line in status().stdout.splitlines()[1:]] == ["llm", "bert"], "it needs a person more"


def test_one_that_hangs_no_rank_any_more_is_not(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", with_earlier_loss("False"))
    cells = row("llm", "-o", "wide")
    assert (cells["CAUSE"], cells["NEXT"], cells["REASON"]) == ("Exit137", "-", "closed")
