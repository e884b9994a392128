"""A rank under the agent sees what it sees under stock torchrun, with real torch, on one and on two nodes."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.launches import free_master_port, mounted_agent
from tests.examples.torchrun import torchrun

GUARD_SECONDS = 180

SCRIPT = """
import json, os, resource, signal, sys, time
rank = os.environ["RANK"]
KEPT = ("SigBlk", "SigIgn", "SigCgt", "Cpus_allowed:", "NoNewPrivs")
status = [line for line in open("/proc/self/status") if line.startswith(KEPT)]
found = {
    "environ": dict(os.environ), "argv": sys.argv, "orig_argv": sys.orig_argv, "flags": str(sys.flags),
    "path": sys.path, "cwd": os.getcwd(), "executable": sys.executable, "file": __file__,
    "warnoptions": sys.warnoptions, "mask": sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "status": status, "leads": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
    "files": sorted(os.listdir("/proc/self/fd")),
    "limits": [resource.getrlimit(each) for each in range(16)], "umask": os.umask(0o22), "nice": os.nice(0),
    "policy": os.sched_getscheduler(0), "affinity": sorted(os.sched_getaffinity(0)), "modules": sorted(sys.modules),
    "excepthook": sys.excepthook is sys.__excepthook__, "stdout": [sys.stdout.line_buffering, sys.stdout.write_through],
}
with open(os.path.join(os.environ["DUMPS"], rank + ".partial"), "w") as file:
    json.dump(found, file)
os.rename(file.name, os.path.join(os.environ["DUMPS"], rank))
print("out of", rank)
end = os.environ["END"]
if end in ("raise", "kill", "exit"):
    if rank != os.environ["LAST"]:
        end = "wait"
    # Its end is that of the other ranks on its node, which may be slower.
    while len([name for name in os.listdir(os.environ["DUMPS"]) if name.isdigit()]) <= int(os.environ["LAST"]):
        time.sleep(0.01)
if end == "raise":
    raise TypeError("bad")
elif end == "kill":
    os.kill(os.getpid(), 9)
elif end == "exit":
    sys.exit(7)
elif end == "wait":
    time.sleep(600)
elif end == "collective":
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()
"""

EXPLAINED: dict[str, tuple[object, object]] = {
    # The hook records the exception that ends the rank. It calls the one that was there.
    "excepthook": (True, False),
}
"""For each name what differs: under stock torchrun, and under the agent. Nothing else may."""


@contextmanager
def launched(
    folder: Path, agent: Path | None, nodes: int, ranks: int, end: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One torchrun for each node. `agent` is the agent's folder. None: stock torchrun."""
    folder.mkdir()
    (folder / "dumps").mkdir()
    work = folder.parent / "work"
    work.mkdir(exist_ok=True)
    (work / "train.py").write_text(SCRIPT)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder.parent),
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(ranks),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(free_master_port()),
        "DUMPS": str(folder / "dumps"),
        "LAST": str(nodes * ranks - 1),
        "END": end,
    }
    if agent is not None:
        environ |= {"PYTHONPATH": str(agent), "RECOVERY_AGENT_JOB_UID": "uid", "RECOVERY_AGENT_URL": "https://nowhere"}
    with ExitStack() as stack:
        processes = []
        for node in range(nodes):
            output = stack.enter_context((folder / f"output-{node}").open("wb"))
            command = [str(torchrun()), f"--log-dir={folder}/logs-{node}", "train.py", "--lr", "${local_rank}"]
            process = subprocess.Popen(
                command,
                cwd=work,
                env=environ | {"PET_NODE_RANK": str(node)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process)
        yield processes


def seen(folder: Path, world: int) -> list[dict[str, Any]]:
    """What each rank saw, without what names the folder or the port of this launch."""
    found = []
    for rank in range(world):
        dump = json.loads((folder / "dumps" / str(rank)).read_text())
        error_file = Path(dump["environ"].pop("TORCHELASTIC_ERROR_FILE"))
        dump["error file"] = [error_file.name, *(parent.name for parent in list(error_file.parents)[:2])]
        dump["run folder"] = error_file.parents[2].name[: -len("_random12")]
        for name in ("DUMPS", "PET_MASTER_PORT", "MASTER_PORT"):
            del dump["environ"][name]
        found.append(dump)
    return found


def outcome(
    folder: Path, agent: Path | None, nodes: int, ranks: int, end: str
) -> tuple[list[int], list[dict[str, Any]]]:
    with launched(folder, agent, nodes, ranks, end) as processes:
        if end in {"raise", "kill", "exit"}:
            # Only the node of the failed rank ends by itself: without a barrier, the others do not know.
            codes = [processes[-1].wait(GUARD_SECONDS)]
        elif end == "wait":
            until_all_have_dumped(folder, nodes * ranks)
            for process in processes:
                process.send_signal(signal.SIGTERM)
            codes = [process.wait(GUARD_SECONDS) for process in processes]
        else:
            codes = [process.wait(GUARD_SECONDS) for process in processes]
        until_all_have_dumped(folder, nodes * ranks)
    return codes, seen(folder, nodes * ranks)


def until_all_have_dumped(folder: Path, world: int) -> None:
    deadline = time.monotonic() + GUARD_SECONDS
    while not all((folder / "dumps" / str(rank)).exists() for rank in range(world)):
        said = "".join(path.read_text() for path in folder.glob("output-*"))
        assert time.monotonic() < deadline, said
        time.sleep(0.05)


@pytest.mark.parametrize("end", ["", "collective", "raise", "kill", "exit", "wait"])
@pytest.mark.parametrize(("nodes", "ranks"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_a_rank_sees_what_it_sees_under_stock_torchrun(tmp_path: Path, nodes: int, ranks: int, end: str) -> None:
    stock_codes, stock = outcome(tmp_path / "stock", None, nodes, ranks, end)
    agent_codes, agent = outcome(tmp_path / "agent", mounted_agent(tmp_path), nodes, ranks, end)
    assert agent_codes == stock_codes
    for before, now in zip(stock, agent, strict=True):
        assert now.keys() == before.keys()
        differences = {name: (before[name], now[name]) for name in before if before[name] != now[name]}
        assert differences == EXPLAINED
