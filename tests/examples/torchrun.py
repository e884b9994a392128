"""A training of some ranks under torchrun, as a user starts it, and what the tests do to it.

torchrun starts each rank in its own session, so no process group covers them all: they are found and ended by their
process ids.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.controlplane.processes import die_with_parent

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = REPOSITORY / "examples" / "training"
GUARD_SECONDS = 180
"""More than any step of a test needs on a busy machine. Importing torch takes most of it."""
POLL_SECONDS = 0.05


def torchrun() -> Path:
    path = REPOSITORY / os.environ.get("EXAMPLES_VENV", ".venv-examples") / "bin" / "torchrun"
    assert path.exists(), f"{path} is not there: `make examples` installs it"
    return path


@dataclass
class Launch:
    """One torchrun with its ranks, from start to end."""

    process: subprocess.Popen[bytes]
    output: Path
    lines: Callable[[], list[dict[str, Any]]]
    """What rank 0 has logged in this launch."""

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def ranks(self) -> dict[int, int]:
        """The process id of each running rank."""
        found: dict[int, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):  # it has ended meanwhile
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                state, parent = status[0], int(status[1])
                if parent == self.process.pid and state != "Z":
                    environment = (folder / "environ").read_bytes().split(b"\0")
                    [rank] = [each[len(b"RANK=") :] for each in environment if each.startswith(b"RANK=")]
                    found[int(rank)] = int(folder.name)
        return found

    def until(self, what: str, holds: Callable[[], bool], poll_seconds: float = POLL_SECONDS) -> None:
        deadline = time.monotonic() + GUARD_SECONDS
        while not holds():
            assert self.process.poll() is None, f"the training ended before {what}:\n{self.said[-4000:]}"
            assert time.monotonic() < deadline, f"within {GUARD_SECONDS} s: not {what}:\n{self.said[-4000:]}"
            time.sleep(poll_seconds)

    def until_step(self, step: int) -> None:
        self.until(f"step {step}", lambda: any(line.get("step") == step for line in self.lines() if "loss" in line))

    def kill_rank(self, rank: int) -> None:
        os.kill(self.ranks()[rank], signal.SIGKILL)

    def kill(self) -> None:
        """Kill torchrun and all ranks at once, as the loss of their nodes would."""
        left = self.ranks()
        for pid in (self.process.pid, *left.values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def exit_code(self) -> int:
        return self.process.wait(GUARD_SECONDS)


@dataclass
class Training:
    """One command in one folder, run as often as a test likes."""

    script: str
    folder: Path
    steps: int
    checkpoint_every: int
    launches: int = field(default=0)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def joined(self) -> Path:
        return self.folder / "joined"

    def command(self, ranks: int, *options: str) -> list[str]:
        return [
            *(str(torchrun()), "--standalone", f"--nproc-per-node={ranks}", "--max-restarts=0"),
            *(str(SCRIPTS / self.script), f"--steps={self.steps}", f"--checkpoint-every={self.checkpoint_every}"),
            *(f"--checkpoint-dir={self.checkpoints}", f"--loss-log={self.folder / 'losses'}"),
            *(f"--joined-file={self.joined}", *options),
        ]

    @contextmanager
    def launched(self, *options: str, ranks: int = 2) -> Iterator[Launch]:
        self.folder.mkdir(exist_ok=True)
        self.launches += 1
        output = self.folder / f"output-{self.launches}"
        before = len(self.lines())
        with output.open("wb") as file:
            process = subprocess.Popen(
                self.command(ranks, *options),
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it makes two system calls
            )
        launch = Launch(process, output, lambda: self.lines()[before:])
        try:
            yield launch
        finally:
            launch.kill()

    def runs_to_its_end(self, *options: str, ranks: int = 2) -> Launch:
        """Run it until it ends by itself, with any exit code."""
        with self.launched(*options, ranks=ranks) as launch:
            launch.exit_code()
        return launch

    def lines(self) -> list[dict[str, Any]]:
        """The log lines of all launches. A line counts only once its newline is written."""
        log = self.folder / "losses"
        text = log.read_text() if log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def curve(self) -> dict[int, float]:
        """The loss of each step. A step trained twice, from a checkpoint, must have the same loss both times."""
        losses: dict[int, float] = {}
        for line in self.lines():
            if "loss" in line:
                assert losses.setdefault(line["step"], line["loss"]) == line["loss"], f"step {line['step']} differs"
        return losses
