"""Ctrl-C ends every command with one line, even during its imports. A reader that closes the pipe causes no line."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.bad_servers import BadServer, kubeconfig

REPOSITORY = Path(__file__).parents[3]
SHIPPED = str(REPOSITORY / "examples" / "first-recovery.yaml")
INTERRUPTED = (130, "", "recovery: interrupted\n")

AT_IMPORT = """
class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, AtImport())
"""
AT_TIMER = """
from recovery.sim.virtual_time import VirtualTimeLoop
timers, select = iter(range(2000)), VirtualTimeLoop.select
def select_or_interrupt(loop, seconds):
    if next(timers, None) is None:
        os.kill(os.getpid(), signal.SIGINT)
    return select(loop, seconds)
VirtualTimeLoop.select = select_or_interrupt
"""


def ended(arguments: str, setting: str, script: str = "main") -> tuple[int, str, str]:
    """Run a console script after the code of `setting`; returns exit code, stdout and stderr."""
    program = (
        f"import os, signal, sys\n{setting}\n"
        f"sys.argv = {['recovery', *arguments.split()]}\n"
        f"from recovery.cli.entry import {script}\n{script}()\n"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    return process.returncode, process.stdout, process.stderr


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        ("--help", "typer"),
        ("--help", "recovery.cli.main"),
        ("status", "recovery.cli.status"),
        ("status", "kubernetes_asyncio"),
        ("explain llm", "msgspec"),
        ("report llm", "recovery.cli.report"),
        ("pause llm", "aiohttp"),
        ("resume llm", "recovery.cli.pause"),
        ("restart llm --reason x", "recovery.cli.requests"),
        ("retry llm", "recovery.core.decision.decide"),
        ("reset-budget llm", "yaml"),
        ("quarantine gpu-7 --reason x", "recovery.cli.quarantine"),
        ("release gpu-7", "asyncio"),
        ("reset-breaker", "tenacity"),
        ("chaos list", "recovery.cli.chaos"),
        (f"lint {SHIPPED}", "recovery.launch.documents"),
        (f"explain-launch {SHIPPED}", "recovery.cli.explain_launch"),
        ("simulate --seed 3", "recovery.sim.trials.trial"),
        ("run", "prometheus_client"),
    ],
)
def test_ctrl_c_while_a_command_loads_is_one_line_and_130(arguments: str, module: str) -> None:
    assert ended(arguments, AT_IMPORT.format(module=module)) == INTERRUPTED


def test_the_plugin_is_interrupted_as_the_command_is() -> None:
    assert ended("status", AT_IMPORT.format(module="typer"), "main_of_plugin") == INTERRUPTED


def test_an_interrupted_completion_has_nothing_to_say() -> None:
    assert ended("__complete st", AT_IMPORT.format(module="typer"), "complete_plugin") == (130, "", "")
    asked = "os.environ['_RECOVERY_COMPLETE'] = 'complete_bash'"
    assert ended("st", AT_IMPORT.format(module="typer") + asked) == (130, "", "")


@pytest.mark.parametrize("asked", ["--seed 3", "--seeds 3-4 --workers 1", "--scenario examples/scenarios/storm.yaml"])
def test_ctrl_c_in_the_middle_of_a_trial_is_one_line_and_130(asked: str) -> None:
    assert ended(f"simulate {asked}", f"os.chdir({str(REPOSITORY)!r})\n{AT_TIMER}") == INTERRUPTED


@pytest.mark.parametrize("arguments", ["status", "pause llm", f"lint {SHIPPED} --cluster"])
def test_ctrl_c_while_an_answer_is_waited_for_is_one_line_and_130(arguments: str, tmp_path: Path) -> None:
    server = BadServer(b"", holds=True)
    with server.serving() as address:
        file = kubeconfig(tmp_path, f"http://{address}")
        command = [sys.executable, "-m", "recovery.cli.entry", *arguments.split(), "--kubeconfig", file]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert server.asked.wait(50)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=50)
    assert (process.returncode, output, errors) == INTERRUPTED


def test_a_controller_that_waits_for_its_first_answer_stops_at_once(tmp_path: Path) -> None:
    server = BadServer(b"", holds=True)
    with server.serving() as address:
        file = kubeconfig(tmp_path, f"http://{address}")
        command = [sys.executable, "-m", "recovery.cli.entry", "run", "--kubeconfig", file]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert server.asked.wait(50)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=50)
    assert (process.returncode, output) == (130, "")
    [line] = errors.splitlines()
    assert json.loads(line)["msg"] == "stopping"


def test_ctrl_c_at_the_question_is_an_answer() -> None:
    program = (
        "from recovery.cli import requests\n"
        "from recovery.cli.connection import execute\n"
        "from recovery.program import run_program\n"
        "async def ask(): return int(requests._confirmed(()))\n"
        "run_program(lambda: execute(ask()), name='recovery')\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stdin=theirs, stderr=theirs) as process:
        os.close(theirs)
        assert os.read(ours, 100) == b"Go on? [y/N] "
        process.send_signal(signal.SIGINT)
        assert os.read(ours, 100) == b"\r\nrecovery: interrupted\r\n"
        assert process.wait(50) == 130
    os.close(ours)


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "--version",
        "status --help",
        f"lint {SHIPPED} --format json",
        f"explain-launch {SHIPPED}",
        "simulate --seed 3",
    ],
)
def test_a_reader_that_has_gone_away_is_141_without_a_word(arguments: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "recovery.cli.entry", *arguments.split()]
    process = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=50, check=False)
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, "")
