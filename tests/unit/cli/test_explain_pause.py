"""`recovery explain` of a paused job: the members lost during the pause, by name, and what happens when it ends."""

import json

import pytest

from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_explain import explain, section
from tests.unit.cli.test_explain_why import add_config, fail_pod, group_with

NOW, THEN = "If the pause ended now", "Incident, as it would be opened then"


def paused_job(cluster: PlainCluster, *, by_config: bool = False) -> None:
    job = cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    if by_config:
        add_config(cluster, paused=True)
    else:
        job["metadata"]["annotations"] = {"recovery.trainjob.dev/paused": "net work"}


@pytest.mark.parametrize("by_config", [False, True], ids=["of the job", "of all"])
def test_what_a_paused_job_has_lost_is_named_with_what_would_be_decided(cluster: PlainCluster, by_config: bool) -> None:
    paused_job(cluster, by_config=by_config)
    fail_pod(cluster, "2026-11-02T08:59:30Z")
    text = explain("llm")
    [decision] = section(text, "Decision")
    assert "pod llm-1 (rank 1, node gpu-1) failed with exit code 137: the group is not restarted until the" in decision
    assert "it would delete Job llm-node-0 (uid uid-team-a-llm-j)" in section(text, NOW)
    assert "  llm-1  gpu-1  1     137" in section(text, THEN)
    assert "as it would be opened now" not in text


def test_a_paused_job_that_has_lost_nothing_says_so(cluster: PlainCluster) -> None:
    paused_job(cluster)
    text = explain("llm")
    assert section(text, NOW) == ["no failure"]
    assert THEN not in text


def test_an_incident_that_is_open_is_not_shown_twice(cluster: PlainCluster) -> None:
    paused_job(cluster)
    cluster.add_group("llm", group_with("Decided", step={"type": "Restarting"}))
    fail_pod(cluster, "2026-11-02T08:59:30Z")
    text = explain("llm")
    assert section(text, "Incident")
    assert section(text, NOW)
    assert THEN not in text


def test_a_job_that_is_not_paused_has_no_such_section(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    assert NOW not in explain("llm")
    assert json.loads(explain("llm", "-o", "json"))["afterPause"] is None


def test_as_data_it_is_the_same(cluster: PlainCluster) -> None:
    paused_job(cluster)
    fail_pod(cluster, "2026-11-02T08:59:30Z")
    after = json.loads(explain("llm", "-o", "json"))["afterPause"]
    assert (after["reason"], after["incident"]["suspects"][0]["pod"]) == ("DefaultRestart", "llm-1")
    assert after["wouldDo"]
