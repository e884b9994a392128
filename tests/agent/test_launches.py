"""A launch in real processes: exit codes, signals, output, and that nothing of it survives."""

import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.agent.launches import Launch, Pod, free_master_port

FAILING = """
import os, sys, time
if os.environ["RANK"] == "1":
    {failure}
time.sleep(600)
"""
BESIDE_A_CHILD_IN_ITS_OWN_SESSION = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
print("CHILD", child.pid, flush=True)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(launch: Launch) -> list[int]:
    return [int(pid) for pid in re.findall(r"CHILD (\d+)", launch.said)]


def test_a_launch_whose_ranks_end_well_exits_with_0(pod: Pod) -> None:
    with pod.launched(pod.script("import os; print('rank', os.environ['RANK'])"), ranks=2) as launch:
        assert launch.ends() == 0
    assert {"rank 0", "rank 1"} <= set(launch.said.splitlines())
    assert launch.complained == ""


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("sys.exit(7)", "rank 1 exited with code 7"),
        ("os.kill(os.getpid(), 9)", "rank 1 was ended by signal 9 (SIGKILL)"),
        ("raise TypeError('bad')", "rank 1 exited with code 1: TypeError: bad"),
        ("raise SystemExit('text')", "rank 1 exited with code 1"),
    ],
)
def test_a_failed_rank_ends_the_others_and_the_launch_with_1(pod: Pod, failure: str, message: str) -> None:
    log = pod.folder / "termination-log"
    log.touch()
    script = pod.script(FAILING.format(failure=failure))
    with pod.launched(script, ranks=2, TERMINATION_LOG=str(log)) as launch:
        assert launch.ends() == 1
    assert log.read_text() == message
    assert "train.py FAILED" in launch.complained
    assert "rank      : 0 (local_rank: 0)\n  exitcode  : -15" in launch.complained


def test_an_exception_is_recorded_where_torch_would(pod: Pod) -> None:
    script = pod.script("def f():\n    raise ValueError('worse')\nf()")
    with pod.launched(f"--log-dir={pod.folder}/logs", "--rdzv-id=run", script) as launch:
        assert launch.ends() == 1
    [path] = (pod.folder / "logs").glob("run_*/attempt_0/0/error.json")
    message = json.loads(path.read_text())["message"]
    assert message["message"] == "ValueError: worse"
    assert "in f\n" in message["extraInfo"]["py_callstack"]
    assert int(message["extraInfo"]["timestamp"]) > 0


def test_an_error_file_of_the_script_itself_stays(pod: Pod) -> None:
    script = pod.script("import os; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('mine'); raise ValueError")
    with pod.launched(f"--log-dir={pod.folder}/logs", script) as launch:
        assert launch.ends() == 1
    [path] = (pod.folder / "logs").glob("none_*/attempt_0/0/error.json")
    assert path.read_text() == "mine"


def test_a_process_that_a_rank_forks_records_nothing(pod: Pod) -> None:
    text = "import os, sys\nif os.fork() == 0:\n    raise ValueError('of the child')\nos.wait()\n"
    with pod.launched(f"--log-dir={pod.folder}/logs", pod.script(text)) as launch:
        assert launch.ends() == 0
    assert "of the child" in launch.complained
    assert list((pod.folder / "logs").rglob("error.json")) == []


def test_streams_go_to_files_and_to_the_console_as_asked(pod: Pod) -> None:
    text = "import sys, os\nprint('out', os.environ['RANK'])\nprint('err', os.environ['RANK'], file=sys.stderr)\n"
    logs = pod.folder / "logs"
    with pod.launched(f"--log-dir={logs}", "--tee=0:1", "--redirects=1:2", pod.script(text), ranks=2) as launch:
        assert launch.ends() == 0
    [attempt] = logs.glob("none_*/attempt_0")
    found = {str(path.relative_to(attempt)): path.read_text() for path in attempt.rglob("*.log")}
    assert found == {"0/stdout.log": "out 0\n", "1/stderr.log": "err 1\n"}
    assert {"[default0]:out 0", "out 1"} <= set(launch.said.splitlines())
    assert launch.complained == "err 0\n"


def test_only_the_chosen_ranks_reach_the_console(pod: Pod) -> None:
    logs = pod.folder / "logs"
    text = "import os; print('out', os.environ['RANK'])"
    chosen = ("--local-ranks-filter=1", "--tee=1:1", "--role=trainer")
    with pod.launched(f"--log-dir={logs}", *chosen, pod.script(text), ranks=2) as launch:
        assert launch.ends() == 0
    assert [line for line in launch.said.splitlines() if "out" in line] == ["[trainer1]:out 1"]


def test_the_prefix_of_lines_may_have_a_template(pod: Pod) -> None:
    template = "<${role_name} ${rank} ${local_rank}> "
    with pod.launched("--tee=3", pod.script("print('out')"), TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=template) as launch:
        assert launch.ends() == 0
    assert "<default 0 0> out" in launch.said


def test_without_log_files_there_is_no_error_file(pod: Pod) -> None:
    script = pod.script("import os; print(repr(os.environ['TORCHELASTIC_ERROR_FILE'])); raise ValueError")
    with pod.launched("--log-dir=/dev/null", "--tee=3", script) as launch:
        assert launch.ends() == 1
    assert "''\n" in launch.said


def test_a_launch_ends_only_when_the_children_of_its_ranks_have(pod: Pod) -> None:
    """Such as workers of a DataLoader, which outlive a killed rank."""
    script = pod.script(BESIDE_A_CHILD_IN_ITS_OWN_SESSION + "os.kill(os.getpid(), 9)")
    with pod.launched(script) as launch:
        assert launch.ends() == 1
    [child] = children_of(launch)
    assert not alive(child)


def test_a_rank_that_ends_well_leaves_no_process_behind(pod: Pod) -> None:
    with pod.launched(pod.script(BESIDE_A_CHILD_IN_ITS_OWN_SESSION)) as launch:
        assert launch.ends() == 0
    [child] = children_of(launch)
    assert not alive(child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_ranks_and_the_launch_exits_with_1(pod: Pod, number: signal.Signals) -> None:
    text = f"""
import signal, sys, time
def leave(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal({int(number)}, leave)
print("ready", flush=True)
time.sleep(600)
"""
    with pod.launched(pod.script(text)) as launch:
        launch.until("ready", lambda: "ready" in launch.said)
        launch.process.send_signal(number)
        assert launch.ends() == 1
    assert "saved" in launch.said


def test_a_rank_that_ignores_the_signal_is_killed_after_the_shutdown_timeout(pod: Pod) -> None:
    text = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(600)"
    log = pod.folder / "termination-log"
    log.touch()
    with pod.launched("--shutdown-timeout=1", pod.script(text), TERMINATION_LOG=str(log)) as launch:
        launch.until("ready", lambda: "ready" in launch.said)
        launch.process.send_signal(signal.SIGTERM)
        assert launch.ends() == 1
    assert log.read_text() == "rank 0 was ended by signal 9 (SIGKILL)"


def test_a_rank_leads_a_session_and_a_group_and_inherits_no_file(pod: Pod) -> None:
    text = "import os; print(os.getsid(0) == os.getpgrp() == os.getpid(), sorted(os.listdir('/proc/self/fd')))"
    with pod.launched(pod.script(text)) as launch:
        assert launch.ends() == 0
    assert "True ['0', '1', '2', '3']" in launch.said, "3 is the listing itself"


def test_a_signal_that_the_shell_ignores_is_not_ignored_in_a_rank(pod: Pod) -> None:
    """torchrun handles it, so the rank that it executes has the default again."""
    script = pod.script(
        "import signal; print('default', int(signal.getsignal(1)), 'ignored', int(signal.getsignal(10)))"
    )
    torchrun = f"{sys.executable} -m torch.distributed.run --nnodes=1 --node-rank=0 --master-port={free_master_port()}"
    with pod.running(["sh", "-c", f"trap '' HUP USR1; exec {torchrun} {script}"]) as launch:
        assert launch.ends() == 0
    assert "default 0 ignored 1" in launch.said


def test_one_thread_is_said_where_it_is_set(pod: Pod) -> None:
    script = pod.script("import os; print('threads', os.environ['OMP_NUM_THREADS'])")
    pod.environ["OMP_NUM_THREADS"] = "5"
    with pod.launched(script, ranks=2) as launch:
        assert launch.ends() == 0
    assert launch.complained == ""
    assert "threads 5" in launch.said


def test_the_number_of_ranks_may_be_torchs_to_say(pod: Pod) -> None:
    (pod.packages / "torch" / "distributed" / "run.py").write_text("def determine_local_world_size(wanted): return 3\n")
    script = pod.script("import os; print('of', os.environ['WORLD_SIZE'])")
    with pod.launched("--nproc-per-node=auto", script) as launch:
        assert launch.ends() == 0
    assert launch.said.count("of 3\n") == 3


def test_the_store_listens_before_any_rank_ends_and_is_gone_with_the_launch(pod: Pod) -> None:
    text = """
import os, socket, time
while True:
    try:
        socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"])), 1).close()
        break
    except OSError:
        time.sleep(0.02)
print("PORT", os.environ["MASTER_PORT"])
"""
    with pod.launched(pod.script(text)) as launch:
        assert launch.ends() == 0
    assert re.search(r"PORT (\d+)", launch.said)
    assert not any(alive(int(pid)) for pid in re.findall(r"torch imported by (\d+)", launch.said))


def test_each_epoch_has_a_store_of_its_own_on_the_same_port(pod: Pod) -> None:
    """torch separates the keys of two attempts by a new store only."""
    text = """
import os, socket, sys, time
while True:
    try:
        socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"])), 1).close()
        break
    except OSError:
        time.sleep(0.02)
sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] != "2")
"""
    with pod.launched(pod.script(text), RESTARTS="2", RECOVERY_PREIMPORT="nowhere") as launch:
        assert launch.ends() == 0, launch.complained
    assert launch.said.count("store opened") == 3
    assert len(set(re.findall(r"torch imported by (\d+)", launch.said))) == 2, "the store's host and the zygote"


def test_an_end_of_the_store_is_said(pod: Pod) -> None:
    (pod.packages / "torch" / "distributed" / "__init__.py").write_text("raise SystemExit(4)\n")
    with pod.launched(pod.script("import time; time.sleep(600)")) as launch:
        launch.until("said", lambda: "of the store on port" in launch.complained)
        os.kill(launch.process.pid, signal.SIGTERM)
        assert launch.ends() == 1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"message": {"message": "m", "extraInfo": {"py_callstack": "c", "timestamp": 1e999}}}',
        '{"message": {"message": "m", "extraInfo": {"py_callstack": "c", "timestamp": "99999999999999999"}}}',
    ],
)
def test_an_error_file_that_makes_no_sense_does_not_hide_the_failure(pod: Pod, text: str) -> None:
    (pod.work / "error").write_text(text)
    script = pod.script(
        "import os, shutil, sys\nshutil.copy('error', os.environ['TORCHELASTIC_ERROR_FILE'])\nsys.exit(3)\n"
    )
    with pod.launched(script) as launch:
        assert launch.ends() == 1
    assert "train.py FAILED" in launch.complained


def test_what_the_start_script_has_begun_outlives_a_restart(pod: Pod) -> None:
    """Such as a daemon that serves the data, before the script executes torchrun in its own place."""
    script = pod.script("import os, sys; sys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))")
    launch_options = ["--nnodes=1", "--node-rank=0", "--nproc-per-node=1", f"--master-port={free_master_port()}"]
    command = [sys.executable, "-m", "torch.distributed.run", *launch_options, script]
    start = 'sleep 600 & echo CHILD $!; exec "$0" "$@"'
    with pod.running(["/bin/sh", "-c", start, *command], RESTARTS="1") as launch:
        assert launch.ends() == 0
    [daemon] = children_of(launch)
    assert alive(daemon)
    os.kill(daemon, signal.SIGKILL)


def test_a_master_port_that_is_taken_ends_the_launch_as_torchrun_ends(pod: Pod) -> None:
    port = free_master_port()
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--node-rank=0", "--nproc-per-node=1"]
    script = pod.script("import time; time.sleep(600)")
    with socket.create_server(("", port)), pod.running([*command, f"--master-port={port}", script]) as launch:
        assert launch.ends() == 1
    assert f"the process of the store on port {port} ended with code 1" in launch.complained
