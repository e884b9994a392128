"""Runs the lines of docs/joined-probe.md as they are written there: one script for each rank, with a fake torch.

The fake barrier ends when the test says so. Torch promises that its own barrier ends when all ranks have entered it.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from recovery.agent._trainjob_recovery import joined_file
from recovery.core.model.annotations import JOINED_PROBE_ANNOTATION
from recovery.kube.projections.pods import decode_pod
from tests.held_port import held_port
from tests.unit.patience import GUARD_SECONDS

REPOSITORY = Path(__file__).resolve().parents[3]
GUIDE = (REPOSITORY / "docs" / "joined-probe.md").read_text()
BY_FILE, BY_PORT = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
FILE, PORT = "/tmp/recovery-joined", 29510
STRAW = """
class cuda:
    set_device = staticmethod(lambda local_rank: None)
"""
STRAW_DISTRIBUTED = """
import sys
def init_process_group(backend):
    print("init", flush=True)
    sys.stdin.readline()
def barrier(device_ids):
    print("barrier", flush=True)
    sys.stdin.readline()
"""
THEN_TRAIN = "\nimport sys\nprint('trains', flush=True)\nsys.stdin.readline()\n"


class Script:
    """A rank that runs the lines and then trains."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def says(self) -> str:
        """What the rank is doing. It continues when `go` is called."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


@contextmanager
def rank(lines: str, folder: Path, local_rank: int) -> Iterator[Script]:
    (folder / "torch").mkdir(exist_ok=True)
    (folder / "torch" / "__init__.py").write_text(STRAW)
    (folder / "torch" / "distributed.py").write_text(STRAW_DISTRIBUTED)
    (folder / "train.py").write_text(lines + THEN_TRAIN)
    process = subprocess.Popen(
        [sys.executable, str(folder / "train.py")],
        env={**os.environ, "LOCAL_RANK": str(local_rank)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Script(process)
        finally:
            process.kill()


def test_the_first_rank_of_a_pod_writes_the_file_once_all_have_met_and_takes_away_an_old_one_before(
    tmp_path: Path,
) -> None:
    joined = tmp_path / "joined"
    joined.touch()
    with rank(BY_FILE.replace(FILE, str(joined)), tmp_path, 0) as script:
        assert (script.says(), joined.exists()) == ("init", False)
        script.go()
        assert (script.says(), joined.exists()) == ("barrier", False)
        script.go()
        assert (script.says(), joined.exists()) == ("trains", True)


@pytest.mark.parametrize("there", [True, False])
def test_the_other_ranks_of_a_pod_leave_the_file_alone(there: bool, tmp_path: Path) -> None:
    joined = tmp_path / "joined"
    if there:
        joined.touch()
    with rank(BY_FILE.replace(FILE, str(joined)), tmp_path, 1) as script:
        for does in ("init", "barrier", "trains"):
            assert (script.says(), joined.exists()) == (does, there)
            script.go()


def test_the_port_is_open_from_when_all_have_met_until_the_process_dies_however_often_it_is_probed(
    tmp_path: Path,
) -> None:
    with held_port() as port:
        with rank(BY_PORT.replace(f'("", {PORT})', f'("127.0.0.1", {port})'), tmp_path, 0) as script:
            assert (script.says(), is_open(port)) == ("init", False)
            script.go()
            assert (script.says(), is_open(port)) == ("barrier", False)
            script.go()
            assert script.says() == "trains"
            assert all(is_open(port) for _ in range(400)), "more often than connections fit into the backlog"
        assert not is_open(port)


def test_only_the_first_rank_of_a_pod_opens_the_port(tmp_path: Path) -> None:
    with (
        held_port() as port,
        rank(BY_PORT.replace(f'("", {PORT})', f'("127.0.0.1", {port})'), tmp_path, 1) as script,
    ):
        for does in ("init", "barrier", "trains"):
            assert (script.says(), is_open(port)) == (does, False)
            script.go()


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=GUARD_SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


def test_the_probes_ask_for_what_the_lines_write_and_the_controller_knows_the_runtime_by_its_annotation() -> None:
    assert (BY_FILE.count(FILE), BY_PORT.count(f'("", {PORT})')) == (1, 1)
    by_agent, by_file, by_port = (
        yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)
    )
    assert by_agent["env"] == [{"name": joined_file.VARIABLE, "value": FILE}]
    assert by_file["readinessProbe"]["exec"]["command"] == ["test", "-f", FILE]
    assert by_port["readinessProbe"]["tcpSocket"]["port"] == PORT
    template = prepared_pod_template()
    assert template["spec"]["containers"][0]["readinessProbe"] == by_file["readinessProbe"]
    identity = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"}
    meta = identity | {"creationTimestamp": "2026-11-02T08:00:00Z"}
    made = msgspec.json.encode({"metadata": {**meta, **template["metadata"]}, "spec": template["spec"]})
    assert decode_pod(made).value.facts.joined_probe
    assert f"{JOINED_PROBE_ANNOTATION}: readiness" in GUIDE


def prepared_pod_template() -> dict[str, Any]:
    runtime = yaml.safe_load((REPOSITORY / "policies" / "runtime-joined-probe.yaml").read_text())
    [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    template: dict[str, Any] = job["template"]["spec"]["template"]
    return template
