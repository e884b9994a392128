"""`recovery status` of jobs that users have paused, and of suspended jobs."""

import json

import pytest
from typer.testing import CliRunner

from recovery.cli.main import app
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import JOBS, PODS
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_status import Watched, open_incident, row, status
from tests.unit.fake_api import Object

PAUSED = {"recovery.trainjob.dev/paused": "true"}
BECAUSE = {"recovery.trainjob.dev/paused": "network maintenance"}
OURS = {"recovery.trainjob.dev/suspended-by": "i"}


def stopped_in_several_ways(cluster: PlainCluster) -> None:
    cluster.add_policy(mode="Observe")
    cluster.add_job("free")
    cluster.add_job("a-paused")["metadata"]["annotations"] = PAUSED
    cluster.add_job("b-in-incident")["metadata"]["annotations"] = PAUSED
    cluster.add_group("b-in-incident", open_incident("Decided"))
    cluster.add_job("c-suspended")["spec"]["suspend"] = True
    ours = cluster.add_job("d-ours")
    ours["spec"]["suspend"], ours["metadata"]["annotations"] = True, OURS
    cluster.add_group("d-ours", open_incident("Backoff"))
    both = cluster.add_job("e-both")
    both["spec"]["suspend"], both["metadata"]["annotations"] = True, PAUSED
    cluster.add_job("elsewhere", namespace="team-b")["metadata"]["annotations"] = PAUSED


def named(*arguments: str) -> list[str]:
    return sorted(job["job"] for job in json.loads(status("-o", "json", *arguments).stdout))


# --- the filter ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--paused",), ["a-paused", "b-in-incident", "e-both"]),
        (("--suspended",), ["c-suspended", "d-ours", "e-both"]),
        (("--paused", "--suspended"), ["a-paused", "b-in-incident", "c-suspended", "d-ours", "e-both"]),
        (("--paused", "-A"), ["a-paused", "b-in-incident", "e-both", "elsewhere"]),
    ],
)
def test_only_the_jobs_that_are_stopped_are_listed(
    arguments: tuple[str, ...], names: list[str], cluster: PlainCluster
) -> None:
    stopped_in_several_ways(cluster)
    assert named(*arguments) == names


def test_the_table_has_the_same_rows(cluster: PlainCluster) -> None:
    stopped_in_several_ways(cluster)
    listed = [line.split()[0] for line in status("--suspended").stdout.splitlines()]
    assert sorted(listed[1:]) == ["c-suspended", "d-ours", "e-both"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--paused",), "no job in namespace team-a is paused"),
        (("--suspended", "-A"), "no job in the cluster is suspended"),
        (("--paused", "--suspended"), "no job in namespace team-a is paused or suspended"),
    ],
)
def test_that_no_job_is_stopped_is_one_line(arguments: tuple[str, ...], line: str, cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    result = status(*arguments)
    assert (result.stdout, result.stderr) == ("", f"recovery: {line}\n")


def test_without_any_job_it_is_said_as_ever(cluster: PlainCluster) -> None:
    assert status("--paused").stderr == "recovery: no TrainJobs or JobSets in namespace team-a\n"


def test_watch_shows_how_a_job_leaves_the_listing(cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job leaves the filter but is not deleted."""
    annotations = dict(PAUSED)
    cluster.add_job("llm")["metadata"]["annotations"] = annotations
    cluster.add_policy(mode="Enforce")
    watched = Watched(monkeypatch, annotations.clear, lambda: None, lambda: annotations.update(PAUSED))
    phases = [line.split()[1] for line in watched.status("--paused").stdout.splitlines()]
    assert phases == ["PHASE", "Paused", "Healthy", "Paused"]


# --- the phase -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["Observe", "Enforce"])
@pytest.mark.parametrize(("ready", "message"), [(4, ""), (3, "; on its way: 3 of 4 pods run, ")])
def test_a_paused_job_reads_paused_whether_its_pods_are_on_their_way_or_not(
    mode: str, ready: int, message: str, cluster: PlainCluster
) -> None:
    """The user decides what happens to the job, so `Starting` and `Healthy` would mislead."""
    cluster.add_job("llm", ranks=4, running=ready)["metadata"]["annotations"] = BECAUSE
    cluster.add_policy(mode=mode)
    if ready < 4:
        [waits] = cluster.objects[PODS.plural][3]["status"]["containerStatuses"]
        waits["state"] = {"waiting": {"reason": "ContainerCreating"}}
    cells = row("llm", "-o", "wide")
    assert (cells["PHASE"], cells["CAUSE"], cells["SINCE"]) == ("Paused", "-", "-")
    assert cells["NEXT"] == "recovery resume llm"
    assert cells["REASON"].startswith(f"paused by annotation: network maintenance{message}")


def test_the_cause_of_an_incident_before_is_not_that_of_the_pause(cluster: PlainCluster) -> None:
    cluster.add_job("llm")["metadata"]["annotations"] = PAUSED
    cluster.add_policy()
    cluster.add_group("llm", {"schemaVersion": SCHEMA_VERSION, "cause": "Exit137", "message": "it was restarted"})
    cells = row("llm", "-o", "wide")
    assert (cells["CAUSE"], cells["REASON"]) == ("-", "paused by annotation")


@pytest.mark.parametrize(
    ("change", "phase"),
    [
        ({"spec": {"suspend": True}}, "Suspended"),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "Complete"),
    ],
)
def test_a_pause_does_not_hide_that_a_job_does_not_run(change: Object, phase: str, cluster: PlainCluster) -> None:
    job = cluster.add_job("llm")
    job["metadata"]["annotations"] = PAUSED
    job.update(change)
    cluster.add_policy()
    assert row("llm")["PHASE"] == phase


def test_a_pause_does_not_hide_an_incident_or_what_keeps_a_job_from_starting(cluster: PlainCluster) -> None:
    cluster.add_policy()
    cluster.add_job("a")["metadata"]["annotations"] = PAUSED
    cluster.add_group("a", open_incident("Starting"))
    cluster.add_job("b", running=1)["metadata"]["annotations"] = PAUSED
    assert (row("a")["PHASE"], row("a")["CAUSE"]) == ("Starting", "Exit137")
    assert row("b")["PHASE"] == "NotStarted"


def test_the_help_names_the_filters() -> None:
    text = CliRunner().invoke(app, ["status", "--help"]).output
    assert "--paused" in text
    assert "--suspended" in text


def test_a_user_who_may_not_list_jobs_sees_the_pause(cluster: PlainCluster) -> None:
    cluster.add_job("llm")["metadata"]["annotations"] = PAUSED
    cluster.add_policy()
    cluster.denied = {("list", JOBS.plural)}
    assert row("llm")["PHASE"] == "Paused"
