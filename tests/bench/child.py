"""A process that a bench drives: commands go in, and what happens comes out, as lines of JSON.

Times are those of CLOCK_MONOTONIC, which all processes of a machine share.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.cluster.controlplane.processes import die_with_parent

_END_SECONDS_MAX = 20.0

Event = dict[str, Any]


class ChildError(Exception):
    """The process has ended, or has not said in time what was waited for."""


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.events: list[Event] = []
        """All that it has said."""
        self._news = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def running(cls, *command: str, environ: Mapping[str, str] | None = None) -> AsyncIterator["Child"]:
        """It ends when its standard input does, and is killed if that takes too long."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=die_with_parent(),
        )
        child = cls(process)
        listening = asyncio.create_task(child._listen())
        try:
            yield child
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), _END_SECONDS_MAX)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            listening.cancel()
            await asyncio.wait({listening})

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, **command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def said(self, wanted: Callable[[Event], bool], patience_seconds: float) -> Event:
        """The first event of that kind since the start. Raises ChildError."""
        found = await self.all_said(lambda events: next(filter(wanted, events), None), patience_seconds)
        assert isinstance(found, dict)
        return found

    async def all_said(self, wanted: Callable[[Sequence[Event]], object], patience_seconds: float) -> object:
        """What `wanted` makes of all events, as soon as it is true. Raises ChildError."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                while not (found := wanted(self.events)):
                    if self._process.returncode is not None:
                        raise ChildError(f"the process has ended with {self._process.returncode}")
                    self._news.clear()
                    await self._news.wait()
                return found
        raise ChildError(f"nothing of that kind within {patience_seconds:.0f} s; last: {self.events[-3:]}")

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.events.append(json.loads(line))
            self._news.set()
        await self._process.wait()
        self._news.set()

    def cpu_seconds(self) -> float:
        """What its threads have used, without those that have ended."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def resident_mb(self) -> float:
        return self._status("VmRSS")

    def peak_mb(self) -> float:
        """The most memory that it has had."""
        return self._status("VmHWM")

    def _status(self, name: str) -> float:
        found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024
