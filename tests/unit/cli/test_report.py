"""`recovery report`: what it reads, and what it says about data that is missing or may not be read."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recovery.cli.main import app
from recovery.ports import RECOVERY_INCIDENTS
from tests.unit.cli.cluster import PlainCluster, metadata
from tests.unit.cli.test_explain import record
from tests.unit.cli.test_status import open_incident
from tests.unit.cli.test_status_broken import broken


def report(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["report", *arguments])


def told(*arguments: str) -> Any:
    """The report as JSON. Nothing may be on stderr."""
    result = report(*arguments, "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    result = report(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("job_exists", [True, False])
def test_a_job_is_told_of_whether_it_is_there_or_gone(cluster: PlainCluster, job_exists: bool) -> None:
    if job_exists:
        cluster.add_job("llm")
    cluster.add_incident("llm", record(startedAt="2026-11-02T08:59:18Z"))
    cluster.add_incident("other", record())
    found = told("llm")
    assert found["report"] == "Job"
    assert [each["id"] for each in found["incidents"]] == ["uid-team-1"]
    assert found["incidents"][0]["durationSeconds"] == 24


def test_the_open_incident_comes_from_the_ledger(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_group("llm", open_incident("Held"))
    [incident] = told("llm")["incidents"]
    assert (incident["outcome"], incident["durationSeconds"], incident["idleGpuSeconds"]) == ("Open", 60, 960)
    assert told("llm", "--incident", "uid-team-1")["incident"] == incident


def test_what_a_group_loses_while_it_is_broken_comes_from_its_ledger(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_group("llm", broken())
    for found in (told("llm"), told("--fleet")):
        assert found["totals"]["idleGpuSecondsByPhase"] == {"Broken": 16 * (9 * 60 + 48)}
    assert "Broken" in report("llm").stdout


def test_of_several_incidents_of_one_id_the_newest_is_meant(cluster: PlainCluster) -> None:
    for at in ("2026-11-02T08:10:00Z", "2026-11-02T08:40:00Z", "2026-11-02T08:30:00Z"):
        spec = {"group": "llm", **record(startedAt=at)}
        cluster.put(RECOVERY_INCIDENTS, {"metadata": metadata(f"llm-{at}", "team-a", at), "spec": spec})
    assert told("llm", "--incident", "uid-team-1")["incident"]["startedAt"] == "2026-11-02T08:40:00Z"


def test_the_fleet_is_all_namespaces_or_the_one_that_is_named(cluster: PlainCluster) -> None:
    cluster.add_incident("llm", record())
    cluster.add_incident("lm", record(), namespace="team-b")
    assert told("--fleet")["totals"]["incidents"] == 2
    [incident] = told("--fleet", "-n", "team-b")["incidents"]
    assert (incident["namespace"], incident["job"]) == ("team-b", "lm")


def test_the_fleets_window_is_a_week_or_what_is_asked_for(cluster: PlainCluster) -> None:
    cluster.add_incident("llm", record(startedAt="2026-10-27T08:00:00Z", endedAt="2026-10-27T09:00:00Z"))
    assert told("--fleet")["totals"]["incidents"] == 1
    assert told("--fleet", "--since", "5d")["totals"]["incidents"] == 0


def test_markdown_is_what_is_printed_unless_html_is_asked_for(cluster: PlainCluster) -> None:
    cluster.add_incident("llm", record())
    assert report("llm").stdout.startswith("# Job team-a/llm\n")
    assert report("llm", "-o", "html").stdout.startswith("<!DOCTYPE html>\n")


def test_a_job_without_incidents_has_a_report_that_says_so(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    result = report("llm")
    assert result.exit_code == 0
    assert "There are no incidents." in result.stdout


def test_what_is_not_there_is_one_line(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    assert refused("lln") == "recovery: there is no TrainJob or JobSet 'lln' in namespace 'team-a'; did you mean llm?"
    assert refused("llm", "--incident", "x") == "recovery: there is no incident 'x' of job team-a/llm: it has none"


def test_an_unknown_id_is_answered_with_the_known_ones_the_newest_first(cluster: PlainCluster) -> None:
    for number, at in ((1, "2026-11-02T08:10:00Z"), (2, "2026-11-02T08:40:00Z")):
        cluster.add_incident("llm", record(id=f"uid-team-{number}", startedAt=at))
    assert refused("llm", "--incident", "x") == (
        "recovery: there is no incident 'x' of job team-a/llm: it has uid-team-2, uid-team-1"
    )


def test_a_namespace_that_is_not_there_is_one_line(cluster: PlainCluster) -> None:
    for arguments in (("--fleet", "-n", "team-x"), ("llm", "-n", "team-x")):
        assert refused(*arguments) == "recovery: there is no namespace 'team-x'"


def test_a_fleet_without_incidents_has_a_report_that_says_so(cluster: PlainCluster) -> None:
    for arguments in (("--fleet", "--since", "7d"), ("--fleet", "-n", "team-b")):
        result = report(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "There are no incidents." in result.stdout


def test_a_run_that_fails_prints_only_why(cluster: PlainCluster) -> None:
    """Reading the ledgers comes first and fails, so the report says nothing about what else it would lack."""
    cluster.denied = {("list", "recoverygroups")}
    assert refused("lln").startswith("recovery: there is no TrainJob or JobSet 'lln'")
    cluster.denied |= {("list", "recoveryincidents")}
    assert "recoveryincidents" in refused("--fleet")


@pytest.mark.parametrize("arguments", [("llm",), ("--fleet",)])
def test_without_the_right_to_read_records_there_is_one_line(cluster: PlainCluster, arguments: tuple[str]) -> None:
    cluster.denied = {("list", "recoveryincidents")}
    assert refused(*arguments).startswith("recovery: a permission is missing: ")


def test_without_the_right_to_read_ledgers_open_incidents_are_left_out_and_that_is_said(cluster: PlainCluster) -> None:
    cluster.add_incident("llm", record())
    cluster.denied = {("list", "recoverygroups")}
    result = report("llm", "-o", "json")
    assert result.exit_code == 0
    [line] = result.stderr.splitlines()
    assert line.startswith("recovery: open incidents are left out: a permission is missing: ")
    found = json.loads(result.stdout)
    assert (found["totals"]["incidents"], found["coverage"]["openIncidentsRead"]) == (1, False)


def test_a_record_that_cannot_be_read_is_named_and_counted_and_the_others_are_told(cluster: PlainCluster) -> None:
    cluster.add_incident("llm", record())
    cluster.add_incident("llm", record(id="uid-team-2", outcome="Transcended"))
    result = report("llm", "-o", "json")
    assert result.exit_code == 0
    [line] = result.stderr.splitlines()
    assert "llm-uid-team-2" in line
    found = json.loads(result.stdout)
    assert (found["totals"]["incidents"], found["coverage"]["unreadableRecords"]) == (1, 1)


def test_a_ledger_that_cannot_be_read_is_named_and_counted(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_incident("llm", record())
    cluster.add_group("llm", {"schemaVersion": 99})
    result = report("llm", "-o", "json")
    [line] = result.stderr.splitlines()
    assert line.startswith("recovery: namespace team-a: RecoveryGroup llm-uid-team-a-llm has schemaVersion 99")
    assert json.loads(result.stdout)["coverage"]["unreadableRecords"] == 1
