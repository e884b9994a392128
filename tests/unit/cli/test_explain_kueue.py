"""`recovery explain` and `status` of a job that Kueue queues: what its Workload says, as far as it can be read."""

import json
from typing import Any

import pytest

from recovery.core.model.annotations import KUEUE_QUEUE_LABEL
from recovery.kube.kueue_workloads import WORKLOADS
from recovery.ports import NoSuchResourceError, TryLaterError
from tests.unit.cli.cluster import PlainCluster, metadata
from tests.unit.cli.test_explain import explain, section
from tests.unit.cli.test_status import status
from tests.unit.fake_api import Object

AT = "2026-11-02T08:30:00Z"
LIMIT = "Kueue evicts the job if a restart, or a backoff, leaves pods that are not Ready for longer than its "
GIVEN_UP = {
    "type": "Evicted",
    "status": "True",
    "reason": "DeactivatedDueToRequeuingLimitExceeded",
    "message": "The workload is deactivated due to exceeding the maximum number of re-queuing retries",
    "lastTransitionTime": AT,
}
"""As Kueue 0.19 writes it."""
GAVE_UP = (
    "Kueue has given up on the job: its Workload trainjob-llm is not active since 2026-11-02 08:30:00Z "
    "(DeactivatedDueToRequeuingLimitExceeded: The workload is deactivated due to exceeding the maximum number of "
    "re-queuing retries)"
)


def queued(cluster: PlainCluster, *, suspended: bool = True, label: bool = True) -> None:
    job = cluster.add_job("llm")
    job["metadata"]["labels"] = {KUEUE_QUEUE_LABEL: "research"} if label else {}
    job["spec"]["suspend"] = suspended
    cluster.add_policy(mode="Enforce")


def workload(cluster: PlainCluster, *conditions: Object, active: bool | None = None, **status: Any) -> None:
    labels = {"kueue.x-k8s.io/job-uid": "uid-team-a-llm"}
    found = {
        "metadata": metadata("trainjob-llm", "team-a", "uid-workload", labels=labels),
        "spec": {} if active is None else {"active": active},
        "status": {"conditions": list(conditions), **status},
    }
    cluster.put(WORKLOADS, found)


def condition(type_: str, status: str, reason: str, message: str) -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": AT}


def test_a_workload_that_kueue_gave_up_on_says_why_and_how_to_queue_it_again(cluster: PlainCluster) -> None:
    queued(cluster)
    workload(cluster, GIVEN_UP, active=False)
    lines = section(explain("llm"), "Kueue")
    assert lines[:2] == [
        GAVE_UP,
        "kubectl delete workload trainjob-llm -n team-a lets Kueue make another one, and queue the job",
    ]
    assert lines[2].startswith(LIMIT)
    assert json.loads(explain("llm", "-o", "json"))["kueue"] == lines
    [row] = json.loads(status("-o", "json").stdout)
    assert (row["phase"], row["message"]) == ("Suspended", GAVE_UP)


@pytest.mark.parametrize(
    ("conditions", "more", "words"),
    [
        (
            [condition("Evicted", "True", "PodsReadyTimeout", "Exceeded the PodsReady timeout team-a/llm")],
            {"requeueState": {"count": 2, "requeueAt": "2026-11-02T09:02:00Z"}},
            "Kueue has evicted the job since 2026-11-02 08:30:00Z (PodsReadyTimeout: Exceeded the PodsReady timeout "
            "team-a/llm); so far it was queued again 2 times; it is queued again at 2026-11-02 09:02:00Z",
        ),
        (
            [condition("QuotaReserved", "False", "WaitingForQuota", "insufficient unused quota for nvidia.com/gpu")],
            {},
            "Kueue has not admitted the job since 2026-11-02 08:30:00Z (WaitingForQuota: insufficient unused quota for "
            "nvidia.com/gpu)",
        ),
        ([], {}, "Kueue has not admitted the job"),
    ],
    ids=["evicted", "waits for quota", "new"],
)
def test_a_job_that_kueue_keeps_suspended_says_why(
    conditions: list[Object], more: Object, words: str, cluster: PlainCluster
) -> None:
    queued(cluster)
    workload(cluster, *conditions, **more)
    assert section(explain("llm"), "Kueue")[0] == words


def test_an_admitted_job_says_when_kueue_would_evict_it(cluster: PlainCluster) -> None:
    queued(cluster, suspended=False)
    admitted = condition("Admitted", "True", "Admitted", "The workload is admitted")
    workload(cluster, admitted, condition("PodsReady", "False", "WaitForRecovery", "At least one pod has failed"))
    first, limit = section(explain("llm"), "Kueue")
    assert first == (
        "Kueue waits until all pods are Ready again since 2026-11-02 08:30:00Z (WaitForRecovery: At least one pod has "
        "failed)"
    )
    assert limit.startswith(LIMIT)
    assert limit.endswith("30m unless it is configured, which cannot be read from here")


def test_a_workload_shows_kueue_where_no_label_does(cluster: PlainCluster) -> None:
    """Under manageJobsWithoutQueueName, before the first admission."""
    queued(cluster, label=False)
    workload(cluster, GIVEN_UP, active=False)
    assert section(explain("llm"), "Kueue")[0] == GAVE_UP


def test_an_older_kueue_serves_the_older_version(cluster: PlainCluster) -> None:
    queued(cluster)
    workload(cluster, GIVEN_UP, active=False)
    cluster.next("list", WORKLOADS, NoSuchResourceError("404 page not found", status=404))
    assert section(explain("llm"), "Kueue")[0] == GAVE_UP


# --- what cannot be read breaks nothing ------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", ["forbidden", "busy"])
def test_a_user_who_cannot_read_workloads_learns_that(failure: str, cluster: PlainCluster) -> None:
    queued(cluster)
    if failure == "forbidden":
        cluster.denied = {("list", "workloads")}
    else:
        cluster.next("list", WORKLOADS, TryLaterError("busy"))
    line, _ = section(explain("llm"), "Kueue")
    assert line.startswith("Workloads of Kueue cannot be read, so what Kueue has decided about a job is not known: ")


def test_status_says_once_that_they_cannot_be_read(cluster: PlainCluster) -> None:
    queued(cluster)
    cluster.denied = {("list", "workloads")}
    result = status()
    assert "Workloads of Kueue cannot be read" in result.stderr
    assert "Suspended" in result.stdout


@pytest.mark.parametrize("label", [True, False])
def test_a_cluster_without_kueue_says_nothing_of_it(label: bool, cluster: PlainCluster) -> None:
    queued(cluster, label=label)
    cluster.absent = {"workloads"}
    assert status().stderr == ""
    assert ("\nKueue:\n" in explain("llm")) is label, "the label says that Kueue should manage it"


def test_a_job_that_runs_without_kueue_costs_no_request(cluster: PlainCluster) -> None:
    queued(cluster, suspended=False, label=False)
    assert "\nKueue:\n" not in explain("llm")
    status()
    assert "workloads" not in cluster.plurals("list")
