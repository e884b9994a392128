"""The processes below the agent: whose end is noticed at once, and of which none survives its epoch.

The agent is a subreaper: a process whose parent ends becomes a child of the agent. So whatever the ranks start is found
below the agent, in any session or process group, and nothing else has to be remembered about it.
"""

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class ProcessEntry:
    """One line of the process table."""

    pid: int
    parent: int
    state: str
    """A letter, as in /proc: Z has ended, and D waits in the kernel where no signal reaches it."""


def become_subreaper() -> None:
    """From now on orphans below this process become its children."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def process_table(proc: Path = Path("/proc")) -> list[ProcessEntry]:
    """All processes that this container sees."""
    found = []
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                # The name of the program stands in brackets and may hold anything.
                fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                found.append(ProcessEntry(int(folder.name), int(fields[1]), fields[0].decode()))
    return found


def living_below(root: int, table: Collection[ProcessEntry], without: Collection[int] = ()) -> list[ProcessEntry]:
    """Every living descendant of `root`, except the processes of `without` and what is below those."""
    children: dict[int, list[ProcessEntry]] = {}
    for process in table:
        children.setdefault(process.parent, []).append(process)
    found: list[ProcessEntry] = []
    parents = [root]
    while parents:
        for process in children.get(parents.pop(), []):
            if process.pid not in without:
                parents.append(process.pid)
                found.append(process)
    return [process for process in found if process.state not in "ZX"]


def signal_group(leader: int, number: int) -> None:
    """Send a signal to the process group of a rank, as torchrun does."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        # Between fork and setsid the group does not exist yet.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(leader, number)


class ProcessTree:
    """Reaps every child of the agent, adopted ones too, and ends all that is left of an epoch."""

    def __init__(self, ended: Callable[[int, int], None]) -> None:
        """`ended` is called with each process that has ended, and its exit code: negative for a signal."""
        self._ended = ended
        self._helpers: set[int] = set()
        self._of_container = {each.pid for each in process_table() if each.parent == os.getpid()}
        """What a start script had begun before it executed torchrun in its own place. It is no part of an epoch."""
        self._loop = asyncio.get_running_loop()
        become_subreaper()
        self._loop.add_signal_handler(signal.SIGCHLD, self.reap)

    def add_helper(self, pid: int) -> None:
        """A process of the agent itself, which outlives an epoch."""
        self._helpers.add(pid)

    def close(self) -> None:
        self._loop.remove_signal_handler(signal.SIGCHLD)

    def reap(self) -> None:
        """Collect all children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._helpers.discard(pid)
            self._of_container.discard(pid)
            self._ended(pid, os.waitstatus_to_exitcode(status))

    def left(self) -> list[ProcessEntry]:
        """What lives of the ranks and of all that they have started."""
        return living_below(os.getpid(), process_table(), self._helpers | self._of_container)

    async def end_all(self, *, within_seconds: float) -> list[ProcessEntry]:
        """Kill what is left until nothing is. The answer is what no SIGKILL has ended in that time."""
        deadline = time.monotonic() + within_seconds
        while left := self.left():
            for process in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)
            if time.monotonic() >= deadline:
                return left
            await asyncio.sleep(_POLL_SECONDS)
        return []

    async def end_helpers(self, *, within_seconds: float) -> None:
        """Kill the agent's own processes, so that their ports are free once the agent has ended."""
        deadline = time.monotonic() + within_seconds
        for pid in self._helpers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self._helpers and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
