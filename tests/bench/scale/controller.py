"""`recovery run` in a process of its own, and what can be seen of it from outside."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

_LEADING = '"leading"'
ALONE = ("--no-leader-election",)
_START_SECONDS_MAX = 300.0
_STOP_SECONDS_MAX = 30.0
_QUIET_LOAD = 0.05
"""Share of a processor below which the controller counts as idle."""
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Controller:
    """One running controller. All times are monotonic seconds."""

    def __init__(self, process: subprocess.Popen[bytes], probe: Path, log: Path) -> None:
        self._began_at = time.monotonic()
        self.leading_after_seconds = 0.0
        self.leading_cpu_seconds = 0.0
        self.probe: subprocess.Popen[bytes] | None = None
        self._process = process
        self._answers = probe
        self._log = log

    @classmethod
    @asynccontextmanager
    async def running(
        cls, server_port: int, source: Path, folder: Path, options: Sequence[str] = ALONE, ready: str = _LEADING
    ) -> AsyncIterator["Controller"]:
        """A controller of the code in `source`, once its log has the words `ready`: those of a leader by default."""
        kubeconfig, log, answers = folder / "kubeconfig", folder / "controller.log", folder / "answers"
        kubeconfig.write_text(_KUBECONFIG % server_port)
        port = _free_port()
        address = ["--metrics-address", f"127.0.0.1:{port}", "--kubeconfig", str(kubeconfig)]
        start = "from recovery.cli.entry import main; main()"
        with log.open("wb") as output, answers.open("wb") as found:
            process = subprocess.Popen(
                [sys.executable, "-c", start, "run", *options, *address],
                cwd=source,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            controller = cls(process, answers, log)
            try:
                await controller.until_logged(ready)
                controller.leading_after_seconds = time.monotonic() - controller._began_at
                controller.leading_cpu_seconds = controller.cpu_seconds()
                probe = [sys.executable, "-m", "tests.bench.scale.probe", str(port)]
                controller.probe = subprocess.Popen(probe, stdout=found)
                yield controller
            finally:
                controller._stop()

    async def end(self) -> None:
        """Ask it to end, and wait for that. The event loop goes on, and so does a fake API server in it."""
        self._process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(self._process.wait, _STOP_SECONDS_MAX)

    def _stop(self) -> None:
        for process in (self.probe, self._process):
            if process is None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def until_logged(self, words: str) -> str:
        """The first line of its log with these words."""
        while not (found := [line for line in self._log.read_text().splitlines() if words in line]):
            if self._process.poll() is not None or time.monotonic() - self._began_at > _START_SECONDS_MAX:
                raise RuntimeError(f"the controller does not say {words}: {self._log.read_text()[-3000:]}")
            await asyncio.sleep(0.05)
        return found[0]

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """What all of its threads have used."""
        nanoseconds = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text().split()[0])
        return nanoseconds / 1e9

    def waited_seconds(self) -> float:
        """How long its threads were ready to run and had no processor: what the machine adds to each figure."""
        nanoseconds = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text().split()[1])
        return nanoseconds / 1e9

    def resident_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    async def quiet(self, seconds_max: float = 60.0) -> None:
        """Wait until it is idle for a second."""
        end = time.monotonic() + seconds_max
        while time.monotonic() < end:
            used, began = self.cpu_seconds(), time.monotonic()
            await asyncio.sleep(1)
            if (self.cpu_seconds() - used) / (time.monotonic() - began) < _QUIET_LOAD:
                return

    def longest_answer_seconds(self, since: float) -> float:
        """The longest time that /healthz took since then."""
        slowest = 0.0
        for line in self._answers.read_text().splitlines():
            at, _, took = line.partition(" ")
            if float(at) >= since and took:
                slowest = max(slowest, float(took))
        return slowest

    def warnings(self) -> list[str]:
        """Log lines that say that something went wrong: a benchmark should have none."""
        lines = self._log.read_text().splitlines()
        return [line for line in lines if '"level": "warning"' in line or '"level": "error"' in line]


def source_of_this() -> Path:
    return Path(__file__).parents[3]
