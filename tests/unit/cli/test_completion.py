"""Shell completion: kubectl's protocol for its plugins, names from the cluster, and no output where there are none."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from recovery.cli import plugin
from recovery.cli.main import app
from recovery.cli.main import plugin as plugin_app
from recovery.ports import RECOVERY_DRILLS
from tests.unit.cli.cluster import PlainCluster, connect_to, metadata
from tests.unit.cli.test_explain import record

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """Returns the output that kubectl reads for these words. The last word is the one to complete."""

    async def chosen_namespace(_server: object, namespace: str | None) -> str:
        return namespace or "team-a"

    monkeypatch.setattr("recovery.cli.connection.connect", connect_to(cluster))
    monkeypatch.setattr("recovery.cli.connection.chosen_namespace", chosen_namespace)
    monkeypatch.setattr("os.environ", dict(os.environ))

    def run(*words: str) -> list[str]:
        monkeypatch.setattr("sys.argv", ["kubectl_complete-recovery", *words])
        plugin.complete()
        out, err = capsys.readouterr()
        assert err == ""
        return [line for line in out.splitlines() if line]

    return run


def test_commands_come_with_what_they_do(complete: Complete) -> None:
    assert complete("st") == ["status\tList jobs and their state.", ":4"]
    assert "reset-budget\tForget the charges to a budget so far." in complete("")


def test_options_and_their_values(complete: Complete) -> None:
    assert complete("status", "--wa") == ["--watch\tKeep running, and print changes.", ":4"]
    assert complete("status", "-o", "") == ["table", "wide", "json", "yaml", ":4"]
    assert complete("explain", "-o", "") == ["text", "json", "yaml", ":4"]


def test_kubectl_completes_for_itself(complete: Complete) -> None:
    """The plugin offers no `--install-completion`: its completion of `kubectl recovery` would break kubectl's own."""
    assert complete("--i") == [":4"]
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout
    assert "--install-completion" not in CliRunner().invoke(plugin_app, ["--help"]).stdout


@pytest.mark.parametrize("verb", ["quarantine", "release"])
def test_nodes_are_those_of_the_cluster(verb: str, cluster: PlainCluster, complete: Complete) -> None:
    for name in ("gpu-0", "gpu-1", "cpu-0"):
        cluster.add_node(name, ready=True)
    assert complete(verb, "gp") == ["gpu-0", "gpu-1", ":4"]
    assert complete(verb, "gpu-0", "gp") == ["gpu-1", ":4"]


@pytest.mark.parametrize("verb", ["explain", "pause", "resume", "restart", "retry", "reset-budget"])
def test_jobs_are_those_of_the_namespace(verb: str, cluster: PlainCluster, complete: Complete) -> None:
    cluster.add_job("llm")
    cluster.add_bare_job_set("lm")
    cluster.add_job("other", namespace="team-b")
    assert complete(verb, "l") == ["llm", "lm", ":4"]
    assert complete(verb, "-n", "team-b", "") == ["other", ":4"]


def test_a_report_is_offered_of_jobs_that_are_gone_as_well(cluster: PlainCluster, complete: Complete) -> None:
    cluster.add_job("llm")
    cluster.add_incident("lost", record())
    cluster.add_incident("llm", record())
    cluster.add_incident("lm", record(), namespace="team-b")
    assert complete("report", "l") == ["llm", "lost", ":4"]
    assert complete("report", "-o", "") == ["md", "html", "json", ":4"]


def test_a_report_is_offered_of_jobs_whose_records_may_not_be_read(cluster: PlainCluster, complete: Complete) -> None:
    cluster.add_job("llm")
    cluster.denied = {("list", "recoveryincidents")}
    assert complete("report", "l") == ["llm", ":4"]


def test_a_job_is_not_offered_twice(cluster: PlainCluster, complete: Complete) -> None:
    cluster.add_job("llm")
    cluster.add_job("lm")
    assert complete("pause", "lm", "") == ["llm", ":4"]


def test_commands_of_chaos_and_runs_are_offered(cluster: PlainCluster, complete: Complete) -> None:
    spec = {"workloadRef": {"kind": "TrainJob", "name": "llm", "uid": "u"}, "experiment": "x"}
    for name, namespace in (("one-pod-x7k2p", "team-a"), ("one-pod-b2c4d", "team-b")):
        drill = {"metadata": metadata(name, namespace, name), "spec": {**spec, "expiresAt": "2026-11-02T11:00:00Z"}}
        cluster.put(RECOVERY_DRILLS, drill)
    assert complete("chaos", "li") == ["list\tList the runs and their verdicts.", ":4"]
    assert complete("chaos", "abort", "one") == ["one-pod-x7k2p", ":4"]
    assert complete("chaos", "abort", "-n", "team-b", "") == ["one-pod-b2c4d", ":4"]
    assert complete("chaos", "run", "-o", "") == ["table", "json", "junit", "yaml", ":0"]


def test_namespaces(complete: Complete) -> None:
    assert complete("status", "-n", "team") == ["team-a", "team-b", ":4"]


@pytest.mark.parametrize(
    "words",
    [
        ("status", "--kubeconfig", ""),
        ("status", "--kubeconfig=/et"),
        ("lint", ""),
        ("explain-launch", "a.yaml", "b"),
        ("chaos", "run", ""),
    ],
)
def test_files_are_the_shells_to_offer(words: tuple[str, ...], complete: Complete) -> None:
    assert complete(*words) == [":0"]


def test_what_may_not_be_read_is_not_offered_and_nothing_is_said(cluster: PlainCluster, complete: Complete) -> None:
    cluster.denied = {("list", "trainjobs"), ("list", "namespaces")}
    assert complete("explain", "") == [":4"]
    assert complete("explain", "-n", "") == [":4"]


@pytest.mark.parametrize(
    "arguments",
    ["['recovery', '--help']", "['recovery', 'restart', '--help']", "['kubectl_complete-recovery', 'st']"],
)
def test_help_and_completion_load_nothing_that_takes_long(arguments: str) -> None:
    program = (
        f"import sys; sys.argv = {arguments}\n"
        "from recovery.cli.plugin import complete, main\n"
        "try:\n    complete() if 'complete' in sys.argv[0] else main()\nexcept SystemExit: pass\n"
        "print(sorted({'kubernetes_asyncio', 'kopf', 'aiohttp', 'msgspec'} & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stderr == "[]\n"
    assert ended.stdout
