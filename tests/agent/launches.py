"""Launches of the agent's ranks in real processes, and the package that stands for torch."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from recovery.agent._trainjob_recovery.agent import BARRIER_PORT_OFFSET

AGENT = Path(__file__).resolve().parents[2] / "recovery" / "agent"
LAUNCHER = Path(__file__).with_name("launcher.py")
GUARD_SECONDS = 45
FAKE_TORCH = {
    "torch/__init__.py": "import os\nprint('torch imported by', os.getpid(), flush=True)\n",
    "torch/distributed/__init__.py": """
import socket
class TCPStore:
    def __init__(self, host, port, *_, **__):
        self.listener = socket.create_server(("", port))
        print("store opened", flush=True)
""",
    "torch/distributed/run.py": """
import json, os, sys
print("STOCK", json.dumps([sys.argv[1:], sorted(os.environ), os.environ.get("PYTHONPATH")]), flush=True)
def main():
    return 0
""",
}


def mounted_agent(folder: Path) -> Path:
    """The agent's folder as it is mounted into a pod."""
    mounted = folder / "mounted-agent"
    shutil.copytree(AGENT, mounted, ignore=shutil.ignore_patterns("__pycache__"))
    return mounted


def agent_folder(folder: Path) -> Path:
    """The same with the launcher of these tests as its `__main__`, which starts ranks without a barrier."""
    mounted = mounted_agent(folder)
    shutil.copy(LAUNCHER, mounted / "_trainjob_recovery" / "__main__.py")
    return mounted


def fake_torch(folder: Path, **replaced: str) -> Path:
    """A folder in which Python finds a package torch that does nothing. `replaced` adds to its `__init__`."""
    packages = folder / "packages"
    for name, text in FAKE_TORCH.items():
        path = packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + (replaced.get("init", "") if name == "torch/__init__.py" else ""))
    (packages / "torchrun").write_text("import sys\nfrom torch.distributed.run import main\nsys.exit(main())\n")
    return packages


def free_master_port() -> int:
    """A free port whose barrier's port is free too. Both are below those that the kernel gives to connections."""
    while True:
        port = random.randrange(15_000, 32_000)
        with (
            suppress(OSError),
            socket.create_server(("", port)),
            socket.create_server(("", port + BARRIER_PORT_OFFSET)),
        ):
            return port


@dataclass
class Launch:
    """One torchrun that the agent has taken over."""

    process: subprocess.Popen[bytes]
    output: Path
    errors: Path

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def complained(self) -> str:
        return self.errors.read_text(errors="replace")

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + GUARD_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"not {what}:\n{self.said}\n{self.complained}"
            time.sleep(0.02)

    def ends(self) -> int:
        return self.process.wait(GUARD_SECONDS)


@dataclass
class Pod:
    """A container in which torchrun is started with the agent's folder in PYTHONPATH."""

    folder: Path
    torch_init: str = ""
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mounted = agent_folder(self.folder)
        self.packages = fake_torch(self.folder, init=self.torch_init)
        self.work = self.folder / "work"
        self.work.mkdir()

    def script(self, text: str, name: str = "train.py") -> str:
        (self.work / name).write_text(text)
        return name

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{self.mounted}:{self.packages}",
            "RECOVERY_AGENT_JOB_UID": "uid",
            "RECOVERY_AGENT_URL": "https://nowhere",
            "OMP_NUM_THREADS": "1",
            **self.environ,
            **more,
        }

    @contextmanager
    def launched(
        self, *arguments: str, ranks: int = 1, flags: tuple[str, ...] = (), **environ: str
    ) -> Iterator[Launch]:
        options = ["--nnodes=1", "--node-rank=0", f"--nproc-per-node={ranks}", f"--master-port={free_master_port()}"]
        command = [sys.executable, *flags, "-m", "torch.distributed.run", *options, *arguments]
        with self.running(command, **environ) as launch:
            yield launch

    @contextmanager
    def running(self, command: list[str], **environ: str) -> Iterator[Launch]:
        output, errors = self.folder / "output", self.folder / "errors"
        with output.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                command,
                cwd=self.work,
                env=self.environment(**environ),
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
            )
        launch = Launch(process, output, errors)
        try:
            yield launch
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GUARD_SECONDS)
                process.kill()
                process.wait()
