"""A small training on four nodes of one rank each, all on loopback. Each node runs an agent, or stock torchrun."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.agent.fake_controller import FakeController, answer_response, fake_controller
from tests.cluster.controlplane.processes import die_with_parent
from tests.examples.torchrun import torchrun

GUARD_SECONDS = 180
NODES = 4
SCRIPT = """
import json, os, time
import torch
import torch.distributed as dist
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel

folder = Path(os.environ["FOLDER"])
last, pause = int(os.environ["LAST_STEP"]), float(os.environ["STEP_SECONDS"])
epoch = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
calls_at = time.monotonic()
dist.init_process_group("gloo")
rank = dist.get_rank()
with (folder / f"joins-{rank}").open("a") as log:
    log.write(json.dumps({"epoch": epoch, "calls_at": calls_at, "joined_at": time.monotonic()}) + "\\n")
torch.manual_seed(1)
plain = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1))
model = DistributedDataParallel(plain)
optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
checkpoint = folder / "checkpoint.pt"
box = [torch.load(checkpoint) if rank == 0 and checkpoint.exists() else None]
dist.broadcast_object_list(box, src=0)
done = 0
if box[0] is not None:
    plain.load_state_dict(box[0]["model"])
    optimizer.load_state_dict(box[0]["optimizer"])
    done = box[0]["step"]
log = (folder / f"steps-{rank}").open("a")
for step in range(done + 1, last + 1):
    torch.manual_seed(1000 * step + rank)
    batch = torch.randn(16, 64)
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    seen = {"epoch": epoch, "step": step, "loss": loss.item().hex(), "at": time.monotonic(), "pid": os.getpid()}
    log.write(json.dumps(seen) + "\\n")
    log.flush()
    if rank == 0 and step % 5 == 0:
        state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, folder / "partial.pt")
        os.replace(folder / "partial.pt", checkpoint)
    time.sleep(pause)
dist.barrier()
dist.destroy_process_group()
"""


def restarts(report: dict[str, Any]) -> bytes:
    """Permit three restarts, and decide for a restart whenever the agents ask."""
    action = {"barrier": report["barrier"], "epoch": report["epoch"], "do": "Restart"}
    return answer_response(alone=3, action=action if report["state"] == "asking" else None)


@contextmanager
def controller_of_the_test(folder: Path) -> Iterator[FakeController]:
    """A controller that permits, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    serving = fake_controller(folder)
    fake = asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result(GUARD_SECONDS)
    fake.respond = restarts
    try:
        yield fake
    finally:
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result(GUARD_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass(frozen=True)
class Step:
    """A training step that a rank has done."""

    rank: int
    epoch: int
    step: int
    loss: str
    at: float
    pid: int


@dataclass
class Group:
    """One training. Its nodes write into `folder`."""

    folder: Path
    port: int
    last_step: int
    step_seconds: float = 0.0
    options: tuple[str, ...] = ()
    """More options of torchrun."""
    environ: dict[str, str] = field(default_factory=dict)
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @contextmanager
    def launched(self) -> Iterator["Group"]:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "train.py").write_text(SCRIPT)
        try:
            self.nodes = [self.start(node) for node in range(NODES)]
            yield self
        finally:
            for node in self.nodes:
                if node.poll() is None:
                    node.terminate()
            for node in self.nodes:
                with suppress(subprocess.TimeoutExpired):
                    node.wait(GUARD_SECONDS)
                node.kill()
                node.wait()

    def start(self, node: int) -> subprocess.Popen[bytes]:
        """Start the container of that node."""
        command = [str(torchrun()), f"--nnodes={NODES}", "--nproc-per-node=1", *self.options]
        with (self.folder / f"output-{node}").open("ab") as output:
            return subprocess.Popen(
                [*command, "train.py"],
                cwd=self.folder,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.folder),
                    "OMP_NUM_THREADS": "1",
                    "PET_NODE_RANK": str(node),
                    "PET_MASTER_ADDR": "127.0.0.1",
                    "PET_MASTER_PORT": str(self.port),
                    "FOLDER": str(self.folder),
                    "LAST_STEP": str(self.last_step),
                    "STEP_SECONDS": str(self.step_seconds),
                    **self.environ,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it makes two system calls
            )

    @property
    def said(self) -> str:
        return "".join(
            f"--- node {node}\n{(self.folder / f'output-{node}').read_text(errors='replace')[-3000:]}"
            for node in range(NODES)
        )

    def steps(self, rank: int) -> list[Step]:
        log = self.folder / f"steps-{rank}"
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return [Step(rank, **json.loads(line)) for line in lines if line.endswith("\n")]

    def rendezvous_seconds(self, epoch: int) -> float:
        """From the first call of `init_process_group` until it has returned in all ranks, as these have logged it."""
        lines = [line for rank in range(NODES) for line in (self.folder / f"joins-{rank}").read_text().splitlines()]
        logged = [each for each in map(json.loads, lines) if each["epoch"] == epoch]
        assert len(logged) == NODES
        return float(max(each["joined_at"] for each in logged) - min(each["calls_at"] for each in logged))

    def all_steps(self) -> list[Step]:
        return [step for rank in range(NODES) for step in self.steps(rank)]

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + GUARD_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"within {GUARD_SECONDS} s: not {what}:\n{self.said}"
            time.sleep(0.02)

    def until_new_steps(self, known: dict[int, int]) -> None:
        """Wait until every rank has done 3 steps in processes that are not those of `known`."""
        self.until(
            "3 new steps of all ranks",
            lambda: all(
                len([step for step in self.steps(rank)[-3:] if step.pid != known.get(rank)]) == 3
                for rank in range(NODES)
            ),
        )

    def pids(self) -> dict[int, int]:
        """The process that has done the latest step of each rank."""
        return {rank: steps[-1].pid for rank in range(NODES) if (steps := self.steps(rank))}

    def kill(self, rank: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pids()[rank], signal.SIGKILL)

    def exit_codes(self) -> list[int]:
        return [node.wait(GUARD_SECONDS) for node in self.nodes]


def with_agent(mounted: Path, fake: FakeController) -> dict[str, str]:
    """What admission adds to the environment of a container. `mounted`: the agent's folder."""
    return {
        "PYTHONPATH": str(mounted),
        "RECOVERY_AGENT_JOB_UID": "the-uid-of-the-job",
        "RECOVERY_AGENT_URL": f"https://127.0.0.1:{fake.controller.port}",
        "RECOVERY_AGENT_CA": fake.controller.ca_pem,
        "RECOVERY_AGENT_TOKEN_FILE": fake.controller.token_file,
    }
