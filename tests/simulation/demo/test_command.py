"""`python -m recovery.sim.demo` as a process: its usage, and how it stops when it is interrupted."""

import signal
import subprocess
import sys
from pathlib import Path

from recovery.sim.virtual_time import BEGIN

COMMAND = (sys.executable, "-m", "recovery.sim.demo")
REPOSITORY = Path(__file__).parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=50, check=False
    )


def begun() -> subprocess.Popen[str]:
    """The demo is running and has reported the cluster, at the beginning of virtual time."""
    process = subprocess.Popen(
        COMMAND, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"{BEGIN:%H:%M:%S}  in this one process")
    return process


def test_help_says_what_it_plays_and_what_its_exit_code_means() -> None:
    helped = run("--help")

    assert helped.returncode == 0
    assert "1,024 GPUs" in helped.stdout
    assert "Exit code 0 only if" in helped.stdout


def test_an_unknown_flag_is_refused_by_name() -> None:
    refused = run("--nodes", "4")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "unrecognized arguments: --nodes 4" in refused.stderr


def test_ctrl_c_ends_it_with_one_line() -> None:
    process = begun()

    process.send_signal(signal.SIGINT)

    _, errors = process.communicate(timeout=50)
    assert (process.returncode, errors) == (130, "demo: interrupted\n")


def test_sigterm_ends_it_without_a_word_and_leaves_no_process() -> None:
    process = begun()
    others = [Path(f"/proc/{pid}") for pid in _children(process.pid)]
    assert len(others) == 1

    process.send_signal(signal.SIGTERM)

    _, errors = process.communicate(timeout=50)
    assert (process.returncode, errors) == (143, "")
    assert not any(other.exists() for other in others)


def test_a_reader_that_goes_away_ends_it_without_a_word() -> None:
    process = begun()
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.close()

    assert process.wait(timeout=50) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
