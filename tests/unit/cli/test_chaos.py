"""`recovery chaos`: nothing is done before the cluster is named, and every refusal says what to do about it."""

import json
import os
import pty
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from recovery.chaos.marked_nodes import LeftOver
from recovery.cli.chaos import names_of_cluster
from recovery.cli.chaos_probe import reported_checkpoint
from recovery.cli.connection import Connection
from recovery.cli.job_lookup import NAMESPACES
from recovery.cli.main import app
from recovery.core.model.drill import NODE_MARK_ANNOTATION
from recovery.ports import NODES, RECOVERY_DRILLS
from recovery.sim.api.client import ModelClient
from recovery.sim.virtual_time import run_in_virtual_time
from tests.unit.chaos.world import FILE, POD_KILL, ChaosWorld
from tests.unit.cli.cluster import PlainCluster, connect_to, metadata
from tests.unit.fake_api import Object

EXPERIMENT = POD_KILL.replace("research/llm", "team-a/llm")
MARK = {
    "namespace": "team-a",
    "drill": "lose-a-rank-x7k2p",
    "uid": "uid-drill",
    "expiresAt": "2026-11-02T10:00:00Z",
    "cordon": True,
}


def chaos(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["chaos", *arguments])


@pytest.fixture(autouse=True)
def _context(monkeypatch: pytest.MonkeyPatch) -> None:
    async def named(_kubeconfig: object, _context: object) -> str:
        return "prod"

    monkeypatch.setattr("recovery.cli.chaos.context_name", named)
    monkeypatch.setattr("recovery.cli.chaos.context_user", named)


@pytest.fixture
def cluster(cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch) -> PlainCluster:
    """Its job llm may be drilled."""

    async def chosen_namespace(_server: object, namespace: str | None) -> str:
        return namespace or "team-a"

    monkeypatch.setattr("recovery.cli.chaos.connect", connect_to(cluster))
    monkeypatch.setattr("recovery.cli.chaos.chosen_namespace", chosen_namespace)
    labels = {"recovery.trainjob.dev/drills": "allowed"}
    cluster.put(NAMESPACES, {"metadata": metadata("team-a", "", "team-a", labels=labels)})
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    return cluster


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "lose-a-rank.yaml"
    path.write_text(EXPERIMENT)
    return str(path)


def add_drill(cluster: PlainCluster, name: str = "lose-a-rank-x7k2p", **status: Any) -> Object:
    drill: Object = {
        "metadata": metadata(name, "team-a", "uid-drill"),
        "spec": {
            "workloadRef": {"kind": "TrainJob", "name": "llm", "uid": "uid-team-a-llm"},
            "experiment": "lose-a-rank",
            "expiresAt": "2026-11-02T11:00:00Z",
            "startedBy": "jane",
            "repeat": 3,
        },
        "status": status,
    }
    cluster.put(RECOVERY_DRILLS, drill)
    return drill


# Before anything is done.


def test_a_file_with_mistakes_is_refused_with_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(EXPERIMENT.replace("pod-kill", "pod-kil") + "repeat: 99\n")
    result = chaos("run", str(path))
    assert result.exit_code == 2
    assert "did you mean 'pod-kill'?" in result.stderr
    assert "repeat: 99 is not 1 to 16" in result.stderr
    assert f"{path}:" in result.stderr


def test_a_file_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    result = chaos("run", str(tmp_path / "no.yaml"))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_a_dry_run_shows_the_plan_and_changes_nothing(cluster: PlainCluster, file: str) -> None:
    result = chaos("run", file, "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "https://plain (context prod)" in result.stdout
    assert "TrainJob team-a/llm, 2 ranks" in result.stdout
    assert "pod-kill: llm-" in result.stdout
    assert cluster.writes == []


def test_all_that_speaks_against_a_run_is_reported_and_nothing_is_done(cluster: PlainCluster, file: str) -> None:
    cluster.put(NAMESPACES, {"metadata": metadata("team-a", "", "team-a")})
    cluster.add_policy(mode="Observe")
    result = chaos("run", file, "--yes", "prod")
    assert result.exit_code == 2
    assert "kubectl label namespace team-a" in result.stderr
    assert "the job is not protected" in result.stderr
    assert cluster.writes == []


def test_a_job_that_does_not_exist_is_one_line(cluster: PlainCluster, tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(EXPERIMENT.replace("team-a/llm", "team-a/lln"))
    result = chaos("run", str(path))
    assert result.exit_code == 2
    assert "did you mean llm?" in result.stderr


def test_a_permission_that_is_missing_is_named(cluster: PlainCluster, file: str) -> None:
    cluster.denied.add(("list", "recoverydrills"))
    result = chaos("run", file, "--yes", "prod")
    assert result.exit_code == 2
    assert "a permission is missing: list recoverydrills" in result.stderr


def test_without_a_terminal_the_cluster_has_to_be_named(cluster: PlainCluster, file: str) -> None:
    result = chaos("run", file)
    assert result.exit_code == 2
    assert "--yes prod" in result.stderr
    assert cluster.writes == []


@pytest.mark.parametrize("answer", ["dev", "yes", "y", ""])
def test_another_name_than_that_of_the_cluster_ends_the_command(cluster: PlainCluster, file: str, answer: str) -> None:
    result = chaos("run", file, "--yes", answer)
    assert result.exit_code == 2
    assert "nothing was done" in result.stderr
    assert cluster.writes == []


def test_a_namespace_beside_that_of_the_file_is_refused(cluster: PlainCluster, file: str) -> None:
    result = chaos("run", file, "-n", "team-b")
    assert result.exit_code == 2
    assert "leave -n out" in result.stderr


@pytest.mark.parametrize(
    ("server", "context", "names"),
    [
        ("https://10.0.0.1:6443", "prod", ("prod", "10.0.0.1", "10.0.0.1:6443", "https://10.0.0.1:6443")),
        (
            "https://10.96.0.1:443",
            "",
            ("kubernetes.default.svc", "10.96.0.1", "10.96.0.1:443", "https://10.96.0.1:443"),
        ),
    ],
)
def test_a_cluster_is_named_by_its_context_or_its_server(server: str, context: str, names: tuple[str, ...]) -> None:
    """A pod has no context, and a manifest cannot know the address of the server."""
    assert names_of_cluster(server, context) == names


QUESTION = b"Type the name of the cluster to go on (prod): "
ASKS = (
    "from recovery.cli import chaos\n"
    "from recovery.cli.connection import execute\n"
    "from recovery.program import run_program\n"
    "async def ask(): return 0 if chaos._agreed(None, ('prod', '10.0.0.1')) else 2\n"
    "run_program(lambda: execute(ask()), name='recovery')\n"
)


def answered(answer: bytes | signal.Signals) -> tuple[int, str]:
    """What becomes of the question at a terminal: the exit code, and what is printed after it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", ASKS], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        assert os.read(ours, 100) == QUESTION
        if isinstance(answer, bytes):
            os.write(ours, answer + b"\n")
        else:
            process.send_signal(answer)
        code = process.wait(50)
        printed = b""
        with suppress(OSError):  # the other end has closed
            while part := os.read(ours, 1000):
                printed += part
    os.close(ours)
    return code, printed.decode()


@pytest.mark.parametrize(("answer", "code"), [(b"prod", 0), (b"10.0.0.1", 0), (b"y", 2), (b"", 2)])
def test_a_person_has_to_type_the_name_of_the_cluster(answer: bytes, code: int) -> None:
    ended_with, printed = answered(answer)
    assert ended_with == code
    assert ("nothing was done" in printed) is (code == 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_question_is_an_answer(number: signal.Signals) -> None:
    ended_with, printed = answered(number)
    assert (ended_with, "recovery: interrupted" in printed) == (130, True)


# A run.


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ChaosWorld:
    """The cluster that `run` finds, in virtual time."""
    found = ChaosWorld.__new__(ChaosWorld)

    @asynccontextmanager
    async def connect(_server: object) -> AsyncIterator[Connection]:
        async with found.running():
            yield Connection(ModelClient(found.server, "jane"), "https://plain", found.clock, random.Random(4))

    async def within(work: Coroutine[Any, Any, int]) -> int:
        found.__init__()  # type: ignore[misc] # its clock is that of the running loop
        return await work

    monkeypatch.setattr("recovery.cli.chaos.connect", connect)
    monkeypatch.setattr("recovery.cli.chaos.execute", lambda work: sys.exit(run_in_virtual_time(within(work))))
    monkeypatch.setattr("recovery.cli.chaos.StatusProbe", lambda *_: found)
    monkeypatch.setattr("recovery.cli.chaos._interrupting", lambda *_: nullcontext())
    return found


@pytest.fixture
def researchs(tmp_path: Path) -> str:
    path = tmp_path / "lose-a-rank.yaml"
    path.write_text(POD_KILL)
    return str(path)


def test_a_run_prints_its_plan_its_events_and_a_table_of_its_repeats(world: ChaosWorld, researchs: str) -> None:
    result = chaos("run", researchs, "--yes", "prod")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("cluster")
    assert any("0.0s  RecoveryDrill lose-a-rank-" in line and line.endswith("created") for line in lines)
    assert any("pod-kill: llm-node-0-" in line and "s  " in line for line in lines)
    [row] = [line.split() for line in lines if line.startswith("1 ")]
    assert row[:6] == ["1", "Passed", "6.0", "96", "controller:", "RecreateGroup"]
    assert "Scheduling 6.0s" in result.stdout
    assert lines[-1] == "Passed: judged"


def test_data_is_printed_alone_and_events_go_to_stderr(world: ChaosWorld, researchs: str) -> None:
    result = chaos("run", researchs, "--yes", "prod", "-o", "json")
    found = json.loads(result.stdout)
    assert (found["verdict"], found["end"]["reason"], found["leftOver"]) == ("Passed", "DrillDone", [])
    assert found["cases"][0]["recoverySeconds"] == 6.0
    assert "RecoveryDrill" in result.stderr


def test_junit_is_xml_with_a_case_for_each_repeat(world: ChaosWorld, researchs: str) -> None:
    result = chaos("run", researchs, "--yes", "prod", "-o", "junit")
    suite = ElementTree.fromstring(result.stdout)
    assert [case.get("time") for case in suite] == ["6.000"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("", 0),
        ("hypothesis: {incidents: 2}\n", 1),
        ("hypothesis: {resumesPast: checkpoint}\n", 2),
        ("limits: {gpus: 4}\n", 2),
    ],
    ids=["Passed", "Failed", "Inconclusive", "refused"],
)
def test_the_exit_code_says_the_verdict(world: ChaosWorld, tmp_path: Path, more: str, code: int) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(POD_KILL + more)
    assert chaos("run", str(path), "--yes", "prod").exit_code == code


def test_a_node_that_stays_changed_is_named_with_the_command_that_frees_it(
    world: ChaosWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_api: object, _clock: object, name: str, _uid: str) -> Any:
        return LeftOver(name, "no")

    monkeypatch.setattr("recovery.chaos.chaos_run.undo_node", refused)
    path = tmp_path / "file.yaml"
    cordon = "chaos:\n- {kind: PhysicalMachineChaos, action: cordon, mode: one}\n"
    path.write_text(FILE + "hypothesis: {incidents: 0}\n" + cordon)
    result = chaos("run", str(path), "--yes", "prod")
    assert result.exit_code == 2
    assert "is not as it was: no; run recovery chaos abort lose-a-rank-" in result.stderr


INTERRUPTED = """
import asyncio, os, signal
from recovery.cli.chaos import _interrupting
async def work():
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("taken back", flush=True)
        {then}
        return 130
async def main():
    task = asyncio.create_task(work())
    asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.{first})
    with _interrupting(task, "recovery chaos abort x-1 -n team-a"):
        return await task
raise SystemExit(asyncio.run(main()))
"""


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
def test_the_first_signal_lets_the_run_take_everything_back(first: str) -> None:
    done = ended(INTERRUPTED.format(then="", first=first))
    assert (done.returncode, done.stdout) == (130, "taken back\n")
    assert "interrupted; taking back" in done.stderr


def test_a_second_signal_leaves_at_once_and_names_the_command_for_the_rest() -> None:
    then = "os.kill(os.getpid(), signal.SIGINT); await asyncio.sleep(60)"
    done = ended(INTERRUPTED.format(then=then, first="SIGINT"))
    assert done.returncode == 130
    assert "recovery chaos abort x-1 -n team-a" in done.stderr


def ended(program: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False, env=environment
    )


def test_the_signals_of_the_program_are_as_before_after_a_run() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# The other commands.


def test_drills_are_listed_with_their_verdicts(cluster: PlainCluster) -> None:
    add_drill(cluster, verdict="Failed")
    result = chaos("list")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].split() == ["NAME", "JOB", "VERDICT", "REPEATS", "STARTED", "BY", "AGE"]
    assert result.stdout.splitlines()[1].split() == ["lose-a-rank-x7k2p", "llm", "Failed", "0/3", "jane", "60m"]
    [found] = json.loads(chaos("list", "-o", "json").stdout)
    assert (found["name"], found["state"], found["spec"]["startedBy"]) == ("lose-a-rank-x7k2p", "Failed", "jane")
    assert chaos("list", "-A").stdout.splitlines()[1].startswith("team-a")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "Running"),
        ({"refusal": {"reason": "DrillOverlaps"}}, "refused: DrillOverlaps"),
        ({"verdict": "Passed", "named": 1}, "Passed"),
    ],
)
def test_a_drill_without_a_verdict_shows_what_it_does(cluster: PlainCluster, status: Object, state: str) -> None:
    add_drill(cluster, **status)
    assert state in chaos("list").stdout


def test_where_there_are_no_drills_that_is_said(cluster: PlainCluster) -> None:
    result = chaos("list")
    assert (result.exit_code, result.stderr) == (0, "recovery: no drills in namespace team-a\n")


def marked(cluster: PlainCluster) -> Object:
    node: Object = {"metadata": metadata("gpu-0", "", "gpu-0"), "spec": {"unschedulable": True}}
    node["metadata"]["annotations"] = {NODE_MARK_ANNOTATION: json.dumps(MARK)}
    cluster.put(NODES, node)
    return node


@pytest.mark.parametrize("arguments", [("lose-a-rank-x7k2p",), ("--all",), ("--all", "-n", "team-a")])
def test_abort_ends_the_drill_and_puts_its_nodes_back(cluster: PlainCluster, arguments: tuple[str, ...]) -> None:
    drill, node = add_drill(cluster), marked(cluster)
    result = chaos("abort", *arguments)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["drill team-a/lose-a-rank-x7k2p: ended", "node gpu-0: put back"]
    assert drill["spec"]["end"]["reason"] == "DrillInterrupted"
    assert "unschedulable" not in node["spec"]
    again = chaos("abort", *arguments)
    assert (again.exit_code, again.stdout) == (0, "nothing is left to take back\n")


def test_a_name_that_no_drill_and_no_mark_has_is_one_line(cluster: PlainCluster) -> None:
    result = chaos("abort", "other-x7k2p")
    assert result.exit_code == 1
    assert "there is no drill 'other-x7k2p' in namespace team-a" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("x", "--all")])
def test_abort_takes_a_name_or_all(cluster: PlainCluster, arguments: tuple[str, ...]) -> None:
    assert chaos("abort", *arguments).exit_code == 2


# What the job reports of its checkpoints.


def reports(*metrics: Object) -> bytes:
    return json.dumps({"status": {"trainerStatus": {"metrics": metrics}}}).encode()


@pytest.mark.parametrize("value", [1793610000, "1793610000", "1793610000.5"])
def test_the_last_checkpoint_comes_from_the_metrics_of_the_job(value: object) -> None:
    time = {"name": "checkpoint_timestamp_seconds", "value": value}
    found = reported_checkpoint(reports(time, {"name": "checkpoint_step", "value": "1200"}))
    assert found.at is not None
    assert (int(found.at.timestamp()), found.step) == (1793610000, 1200)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        reports({"name": "loss", "value": "0.3"}),
        reports({"name": "checkpoint_timestamp_seconds", "value": "soon"}),
        reports({"name": "checkpoint_timestamp_seconds", "value": "1e300"}),
        b'{"status": {"trainerStatus": {"metrics": 7}}}',
    ],
)
def test_a_job_that_reports_no_checkpoint_has_none(body: bytes) -> None:
    found = reported_checkpoint(body)
    assert (found.at, found.step) == (None, None)
