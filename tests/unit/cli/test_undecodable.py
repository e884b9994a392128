"""Objects that cannot be read: commands name the object and the field, and say that its job is left alone."""

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from recovery.cli.main import app
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, RECOVERY_CONFIGS, TRAIN_JOBS, Resource
from tests.unit.cli.cluster import PlainCluster, metadata
from tests.unit.cli.test_explain import section
from tests.unit.cli.test_status import open_incident, row
from tests.unit.fake_api import Object

NOTHING_IS_DONE = "nothing is done about this job until that is corrected or deleted"
BREAK: dict[str, Callable[[Object], object]] = {
    "Pod": lambda body: body["status"].update(phase=3),
    "Job": lambda body: body["metadata"]["labels"].update({"jobset.sigs.k8s.io/restart-attempt": "many"}),
    "JobSet": lambda body: body.setdefault("status", {}).update(restarts="many"),
    "TrainJob": lambda body: body["spec"].update(suspend="no"),
}
PROBLEM = {
    "Pod": "Pod team-a/llm-0 cannot be read: Expected `str`, got `int` - at `$.status.phase`",
    "Job": (
        "Job team-a/llm-node-0 cannot be read: Expected a whole number up to 2147483647, got `many` - at "
        "`$.metadata.labels['jobset.sigs.k8s.io/restart-attempt']`"
    ),
    "JobSet": "JobSet team-a/llm cannot be read: Expected `int`, got `str` - at `$.status.restarts`",
    "TrainJob": "TrainJob team-a/llm cannot be read: Expected `bool | null`, got `str` - at `$.spec.suspend`",
}
RESOURCES = {each.kind: each for each in (PODS, JOBS, JOB_SETS, TRAIN_JOBS)}
BELOW = ["Pod", "Job", "JobSet"]


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def broken(cluster: PlainCluster, kind: str, *, running: int | None = None) -> PlainCluster:
    cluster.add_job("llm", running=running)
    cluster.add_policy(mode="Enforce")
    BREAK[kind](cluster.objects[RESOURCES[kind].plural][0])
    return cluster


class TestExplain:
    @pytest.mark.parametrize("kind", BELOW)
    def test_what_cannot_be_read_is_named_and_decided_on(self, cluster: PlainCluster, kind: str) -> None:
        broken(cluster, kind)
        text = run("explain", "llm").stdout
        assert section(text, "Now")[0] == PROBLEM[kind]
        assert section(text, "Decision")[0] == f"{PROBLEM[kind]}; {NOTHING_IS_DONE}"
        told = json.loads(run("explain", "llm", "-o", "json").stdout)
        assert (told["phase"], told["decision"]["wouldDo"]) == ("Unreadable", [])
        assert (told["protection"]["protected"], told["protection"]["reason"]) == (False, "ObjectUndecodable")

    def test_a_job_that_cannot_be_read_is_not_absent(self, cluster: PlainCluster) -> None:
        broken(cluster, "TrainJob")
        result = run("explain", "llm")
        assert result.exit_code == 1
        assert result.stderr == (
            f"recovery: {PROBLEM['TrainJob']}; nothing is done about this job until it can be read\n"
        )

    def test_a_node_that_cannot_be_read_is_unknown(self, cluster: PlainCluster) -> None:
        cluster.add_job("llm")
        cluster.add_policy(mode="Enforce")
        cluster.objects[NODES.plural][0]["spec"] = {"unschedulable": "perhaps"}
        assert section(run("explain", "llm").stdout, "Decision") == ["no failure"]

    def test_an_incident_that_cannot_be_read_is_one_line(self, cluster: PlainCluster) -> None:
        cluster.add_job("llm")
        cluster.add_incident("llm", {"id": "uid-team-1", "startedAt": "2026-11-02T08:00:00"})
        result = run("explain", "llm", "--incident", "uid-team-1")
        assert result.exit_code == 1
        assert (
            "RecoveryIncident team-a/llm-uid-team-1 cannot be read: Expected `datetime` with a timezone"
            in result.stderr
        )

    @pytest.mark.parametrize(
        ("path", "value"),
        [("startedAt", "2026-11-02T08:59:00"), ("startedAt", "0001-01-01T00:00:00Z"), ("gpus", 10**30)],
    )
    def test_a_ledger_with_which_nothing_can_be_computed_is_unreadable(
        self, cluster: PlainCluster, path: str, value: object
    ) -> None:
        cluster.add_job("llm")
        ledger = open_incident("TearingDown")
        ledger["incident"][path] = value
        cluster.add_group("llm", ledger)
        assert f"at `$.incident.{path}`" in run("explain", "llm").stdout
        assert row("llm")["PHASE"] == "Unreadable"

    def test_so_is_one_whose_window_is_no_time(self, cluster: PlainCluster) -> None:
        cluster.add_job("llm")
        ledger = open_incident("TearingDown")
        ledger["incident"]["terms"]["budgetWindowSeconds"] = 1e300
        cluster.add_group("llm", ledger)
        assert "at `$.incident.terms.budgetWindowSeconds`" in run("explain", "llm").stdout


class TestStatus:
    @pytest.mark.parametrize("kind", BELOW)
    def test_a_job_of_which_an_object_cannot_be_read_is_unreadable(self, cluster: PlainCluster, kind: str) -> None:
        broken(cluster, kind, running=1)
        result = run("status", "-o", "json")
        [told] = json.loads(result.stdout)
        name = "llm-0" if kind == "Pod" else "llm-node-0" if kind == "Job" else "llm"
        assert (told["phase"], told["cause"]) == ("Unreadable", f"{kind} {name} cannot be read")
        assert told["message"] == f"{PROBLEM[kind]}; {NOTHING_IS_DONE}"
        assert result.stderr == f"recovery: {PROBLEM[kind]}\n"

    def test_a_job_that_cannot_be_read_is_told_beside_the_others(self, cluster: PlainCluster) -> None:
        broken(cluster, "TrainJob")
        cluster.add_job("other")
        result = run("status")
        assert result.exit_code == 0
        assert PROBLEM["TrainJob"] in result.stderr
        assert "other" in result.stdout

    def test_what_the_controller_says_of_it_is_shown(self, cluster: PlainCluster) -> None:
        """A listing does not read the pods of a group whose members are all Ready."""
        cluster.add_job("llm")
        since = "2026-11-02T08:00:00Z"
        said = {"type": "Undecodable", "status": "True", "reason": "PodUndecodable", "message": PROBLEM["Pod"]}
        cluster.add_group("llm", open_incident("Rendezvous") | {"conditions": [said | {"lastTransitionTime": since}]})
        [told] = json.loads(run("status", "-o", "json").stdout)
        assert told["message"] == PROBLEM["Pod"]


class TestVerbs:
    @pytest.mark.parametrize("kind", BELOW)
    @pytest.mark.parametrize("force", [[], ["--force"]])
    def test_a_restart_is_refused(self, cluster: PlainCluster, kind: str, force: list[str]) -> None:
        broken(cluster, kind)
        result = run("restart", "llm", "--yes", "--reason", "x", *force)
        assert result.exit_code == 1
        assert f"restart is refused: {PROBLEM[kind]}; {NOTHING_IS_DONE}" in result.stderr
        assert cluster.patches == []

    @pytest.mark.parametrize(
        "verb", [["restart", "--yes", "--reason", "x"], ["retry"], ["reset-budget"], ["pause"], ["resume"]]
    )
    def test_a_job_that_cannot_be_read_is_one_line(self, cluster: PlainCluster, verb: list[str]) -> None:
        broken(cluster, "TrainJob")
        result = run(verb[0], "llm", *verb[1:])
        assert result.exit_code == 1
        assert PROBLEM["TrainJob"] in result.stderr
        assert cluster.patches == []

    def test_resume_of_all_goes_on_to_the_others(self, cluster: PlainCluster) -> None:
        broken(cluster, "TrainJob")
        other = cluster.add_job("other")
        other["metadata"]["annotations"] = {"recovery.trainjob.dev/suspended-by": "inc"}
        other["spec"]["suspend"] = True
        result = run("resume", "--all")
        assert (result.exit_code, cluster.patches) == (1, ["TrainJob team-a/other"])
        assert PROBLEM["TrainJob"] in result.stderr


class TestDepth:
    """A custom resource may hold JSON of thousands of levels."""

    @pytest.fixture
    def deep(self, cluster: PlainCluster) -> PlainCluster:
        """Every object of the job, its policy and the config have an unused field with 5,000 levels."""
        cluster.add_job("llm", running=1)
        cluster.add_policy(mode="Enforce")
        cluster.put(RECOVERY_CONFIGS, {"metadata": metadata("default", "", "c"), "spec": {}})
        for objects in cluster.objects.values():
            for body in objects:
                body["deep"] = "~"
        cluster.raw["~"] = "[" * 5000 + "]" * 5000
        return cluster

    @pytest.mark.parametrize(
        "command",
        [
            ["status"],
            ["explain", "llm"],
            ["restart", "llm", "--yes", "--reason", "x", "--wait", "0"],
            ["pause", "llm"],
            ["resume", "llm"],
        ],
        ids=lambda command: command[0],
    )
    def test_it_is_read_as_if_the_field_were_not_there(self, deep: PlainCluster, command: list[str]) -> None:
        assert run(*command).exit_code == 0


@pytest.mark.parametrize("resource", [TRAIN_JOBS, JOB_SETS], ids=lambda each: each.plural)
def test_a_job_whose_namespace_or_name_is_no_text_is_counted_as_unreadable(
    cluster: PlainCluster, resource: Resource
) -> None:
    cluster.put(resource, {"metadata": {"name": "odd", "namespace": "team-a", "labels": [1]}})
    result = run("status")
    assert result.exit_code == 0
    assert f"{resource.kind} team-a/odd cannot be read" in result.stderr
