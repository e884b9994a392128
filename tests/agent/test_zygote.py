"""A forked rank equals an executed one, and where it would not, it is executed."""

import json
import os
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from recovery.agent._trainjob_recovery import zygote_host
from tests.agent.launches import Launch, Pod

STATE = """
import gc, json, os, pickle, random, resource, signal, sys, threading, time, multiprocessing
class Mine:
    pass
def state():
    import __main__
    KEPT = ("SigBlk", "SigIgn", "SigCgt", "Cpus_allowed:", "NoNewPrivs")
    status = [line for line in open("/proc/self/status") if line.startswith(KEPT)]
    streams = [
        [each.line_buffering, each.write_through, each.isatty(), each.encoding, each.errors, each.name]
        for each in (sys.stdout, sys.stderr)
    ]
    return {
        "environ": dict(os.environ), "argv": sys.argv, "orig_argv": sys.orig_argv, "flags": str(sys.flags),
        "path": sys.path, "cwd": os.getcwd(), "executable": sys.executable, "warnings": sys.warnoptions,
        "leads": os.getsid(0) == os.getpgrp() == os.getpid(), "parent is": os.getppid() == int(os.environ["AGENT"]),
        "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))), "status": status, "streams": streams,
        "signals": {n: str(signal.getsignal(n)) for n in range(1, 32)}, "policy": os.sched_getscheduler(0),
        "nice": os.nice(0), "affinity": sorted(os.sched_getaffinity(0)), "umask": os.umask(0o22),
        "limits": [resource.getrlimit(each) for each in range(16)], "files": sorted(os.listdir("/proc/self/fd")),
        "main": sorted(vars(__main__)), "file": __file__, "builtins": str(__builtins__), "name": __name__,
        "spec": __spec__ and [__spec__.name, __spec__.origin, __spec__.cached], "package": __package__,
        "loader": type(__loader__).__name__, "is main": sys.modules["__main__"] is __main__,
        "pickled": pickle.loads(pickle.dumps(Mine())).__class__ is Mine, "hook": sys.excepthook.__name__,
        "ours": [name for name in sys.modules if "_trainjob" in name or "customize" in name],
        "trace": [sys.gettrace(), sys.getprofile()], "threads": threading.active_count(),
        "main thread": threading.current_thread() is threading.main_thread(),
        "ident": threading.main_thread().native_id == os.getpid(),
    }
"""
TWICE = """
os.environ["AGENT"] = str(os.getppid())
print("STATE", json.dumps(state()), flush=True)
print("FORKED", "torch" in sys.modules, random.random(), multiprocessing.current_process().authkey.hex(), flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(1)
"""


def forked(launch: Launch) -> list[bool]:
    return [found == "True" for found in re.findall(r"FORKED (\w+)", launch.said)]


def states(launch: Launch) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("STATE ")) for line in launch.said.splitlines() if line.startswith("STATE ")]


def varying(environ: dict[str, str]) -> dict[str, str]:
    """Without what differs from one epoch to the next, in stock torchrun too."""
    return {
        k: v for k, v in environ.items() if k not in {"TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_ERROR_FILE", "AGENT"}
    }


@pytest.mark.parametrize("way", ["file", "relative file", "module"])
def test_a_forked_rank_equals_an_executed_one(pod: Pod, way: str) -> None:
    (pod.work / "sub").mkdir()
    name = {"file": "train.py", "relative file": "sub/../train.py", "module": "train.py"}[way]
    pod.script(STATE + TWICE)
    words = ["-m", "train"] if way == "module" else [name]
    with pod.launched(*words, "--gpu=${local_rank}", "", RESTARTS="1", PYTHONHASHSEED="7") as launch:
        assert launch.ends() == 0, launch.complained
    assert forked(launch) == [False, True]
    executed, from_zygote = states(launch)
    for each in (executed, from_zygote):
        each["environ"] = varying(each["environ"])
    assert {key: (executed[key], from_zygote[key]) for key in executed if executed[key] != from_zygote[key]} == {}


def test_each_forked_rank_draws_and_signs_on_its_own(pod: Pod) -> None:
    (pod.packages / "numpy").mkdir()
    (pod.packages / "numpy" / "__init__.py").write_text("from . import random")
    (pod.packages / "numpy" / "random.py").write_text("seeded = 0\ndef seed():\n    global seeded\n    seeded += 1\n")
    script = pod.script(STATE + "import numpy\n" + TWICE + "print('SEEDED', numpy.random.seeded)\n")
    with pod.launched(script, ranks=2, RESTARTS="1", RECOVERY_PREIMPORT="numpy,multiprocessing") as launch:
        assert launch.ends() == 0, launch.complained
    lines = re.findall(r"FORKED True (\S+) (\w+)", launch.said)
    assert len(lines) == 2, launch.said + launch.complained
    assert len({draw for draw, _ in lines}) == 2
    assert len({key for _, key in lines}) == 2
    assert launch.said.count("SEEDED 1\n") == 2


ENDS = {
    "exception": "def f():\n    raise ValueError('worse')\nf()",
    "exit": "sys.exit(7)",
    "exit with a text": "sys.exit('text')",
    "interrupt": "import atexit; atexit.register(print, 'cleaned'); raise KeyboardInterrupt",
    "signal": "os.kill(os.getpid(), 9)",
    "syntax error": "exec('1 +')",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_forked_rank_ends_as_an_executed_one(pod: Pod, end: str) -> None:
    script = pod.script("import os, sys\nprint('FORKED', 'torch' in sys.modules, flush=True)\n" + ENDS[end])
    with pod.launched(f"--log-dir={pod.folder}/logs", "--redirects=3", script, RESTARTS="1") as launch:
        assert launch.ends() == 1
    [run] = (pod.folder / "logs").iterdir()
    for name in ("stdout.log", "stderr.log"):
        executed, from_zygote = ((run / f"attempt_{each}/0" / name).read_text() for each in (0, 1))
        assert from_zygote == executed.replace("FORKED False", "FORKED True")
    codes = re.findall(r"failed with exit code (\S+)", launch.complained)
    assert len(codes) == 2
    assert codes[0] == codes[1]
    errors = [(run / f"attempt_{each}/0/error.json").exists() for each in (0, 1)]
    assert errors[0] == errors[1]


def test_a_forked_rank_spawns_processes_of_its_own(pod: Pod) -> None:
    text = """
import multiprocessing, os, sys
def child(queue):
    queue.put([__name__, os.getppid(), "RANK" in os.environ, sys.argv])
if __name__ == "__main__":
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit(1)
    for method in ("spawn", "fork", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        name, parent, rank, argv = queue.get()
        process.join()
        print("SPAWNED", method, name, rank, argv, process.exitcode, flush=True)
"""
    with pod.launched(pod.script(text), RESTARTS="1") as launch:
        assert launch.ends() == 0, launch.complained
    assert re.findall("SPAWNED .*", launch.said) == [
        "SPAWNED spawn __mp_main__ True ['train.py'] 0",
        "SPAWNED fork __main__ True ['train.py'] 0",
        "SPAWNED forkserver __mp_main__ True ['train.py'] 0",
    ]


@pytest.mark.parametrize(
    ("init", "why"),
    [
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
            "2 threads run",
        ),
        (
            "import ctypes, os\nos.environ['OMP_NUM_THREADS']\nraise RuntimeError('no library')",
            "torch cannot be imported",
        ),
        ("import os\nif 'RANK' not in os.environ and 'GROUP_RANK' in os.environ:\n    os._exit(3)", "it has ended"),
        (
            "import sys, types\nsys.modules['torch.cuda'] = types.SimpleNamespace(is_initialized=lambda: True)",
            "CUDA is initialised",
        ),
    ],
)
def test_where_a_fork_would_differ_the_rank_is_executed(tmp_path: Path, init: str, why: str) -> None:
    pod = Pod(tmp_path, torch_init=init)
    with pod.launched(pod.script(STATE + TWICE), RESTARTS="1") as launch:
        assert launch.ends() == 0, launch.complained
    assert forked(launch) == [False, False]
    assert f"local rank 0 is executed and not forked from the zygote: {why}" in launch.complained


def test_a_zygote_that_was_killed_forks_nothing(pod: Pod) -> None:
    text = """
import os, sys, time
print("FORKED", "torch" in sys.modules, flush=True)
if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
    sys.exit(0)
while not os.path.exists("fail"):
    time.sleep(0.02)
sys.exit(1)
"""
    with pod.launched(pod.script(text), RESTARTS="1") as launch:
        launch.until("imported", lambda: zygote_of(launch) is not None)
        zygote = zygote_of(launch)
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        launch.until("said", lambda: "the zygote has ended" in launch.complained)
        (pod.work / "fail").touch()
        assert launch.ends() == 0, launch.complained
    assert forked(launch) == [False, False]


def test_an_agent_that_ends_without_reading_the_answer_is_no_error_of_the_zygote() -> None:
    ours, agents = socket.socketpair()
    with ours:
        ours.sendall(b"an answer")
        agents.close()
        assert zygote_host.receive(ours) is None


def zygote_of(launch: Launch) -> int | None:
    """The process that forks ranks. None: it has not imported torch yet."""
    for pid in map(int, re.findall(r"torch imported by (\d+)", launch.said)):
        try:
            if b"zygote_host" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        except OSError:
            continue
    return None


def test_only_a_python_file_or_a_module_is_forked(pod: Pod) -> None:
    pod.script(STATE + TWICE, "train")
    with pod.launched("train", RESTARTS="1") as launch:
        assert launch.ends() == 0, launch.complained
    assert forked(launch) == [False, False]
    assert "ranks are always executed: train is not a Python file" in launch.complained
