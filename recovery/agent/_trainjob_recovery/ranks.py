"""The ranks of one node: starts those of an epoch, says how they end, and leaves none of them behind."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import failure_summary, file_limit
from .console import say_on_stderr, write_line
from .failure_summary import TERMINATION_LOG, RankFailure
from .flags import LaunchOptions
from .logs import LogFolders, RankLogs, TailedFile, tailed_files
from .pages import Page, new_page
from .processes import ProcessTree, signal_group
from .rank_environment import rank_environment, sets_one_thread, with_hook, with_page, without_agent
from .slot_progress import RankProgress
from .store import StoreHost
from .zygote import NotForkedError, Zygote, reason_against_zygote

_MESSAGE_MAX = 300
_POLL_SECONDS = 0.02
_AFTER_KILL_SECONDS = 10
"""What no SIGKILL ends within it waits in the kernel."""


@dataclass(frozen=True, kw_only=True)
class RankExit:
    """The end of one rank that the agent did not ask for."""

    epoch: int
    local_rank: int
    rank: int
    exit_code: int | None
    """None: a signal ended it."""
    signal: int | None
    """None: it exited."""
    message: str
    """The exception that ended it, in one line. Empty: none was recorded."""
    step: int | None
    """The last training step. None: the rank has reported none."""

    @property
    def failed(self) -> bool:
        return self.exit_code != 0


@dataclass(frozen=True, kw_only=True)
class _RunningRank:
    epoch: int
    local_rank: int
    rank: int
    error_file: str


class Ranks:
    """All that runs in this container besides the agent. It needs a running event loop."""

    def __init__(
        self,
        options: LaunchOptions,
        environ: Mapping[str, str] | None = None,
        *,
        say: Callable[[str], None] = say_on_stderr,
        termination_log: Path = TERMINATION_LOG,
    ) -> None:
        """`environ` is the environment of the agent. None: that of this process."""
        self._options = options
        self._environ = dict(os.environ if environ is None else environ)
        self._say = say
        self._termination_log = termination_log
        self._directory = os.getcwd()
        self._file_limit = file_limit.present()
        """That of the container, which all ranks have."""
        self._folders = LogFolders(options)
        self._tree = ProcessTree(self._on_end)
        # torchrun handles these, so a rank does not inherit that one of them is ignored, as `nohup` has it.
        for number in options.ending_signals:
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        self._running: dict[int, _RunningRank] = {}
        self._pages: list[Page | None] = []
        """Of the ranks of the present epoch. None: the kernel refuses."""
        self._early: dict[int, int] = {}
        """What ended while a rank was being forked: the rank itself may, before its process id is known."""
        self._forking = False
        self._failures: list[RankFailure] = []
        self._tails: list[TailedFile] = []
        self._stopping = False
        self._epoch = 1
        self._store: StoreHost | None = None
        """None: another node hosts the store, or it is not started yet."""
        self._zygote: Zygote | None = None
        self.exits: asyncio.Queue[RankExit] = asyncio.Queue()
        """Every rank that ends by itself, with exit code 0 too."""

    async def start(self, epoch: int, fork: bool) -> None:
        """Start all ranks of an epoch. Nothing of an earlier one may be left.

        `fork`: fork them from the zygote, where that is possible; else they are executed.
        """
        self._epoch, self._pages = epoch, []
        self._open_store()
        if epoch == 1 and sets_one_thread(self._options, without_agent(self._environ)):
            self._say("OMP_NUM_THREADS is not set: each rank gets 1, as from torchrun. Tune it for your application.")
        self._stopping = False
        self._failures.clear()
        self._pages = [new_page() for _ in range(self._options.ranks_per_node)]
        try:
            await self._start_ranks(epoch, fork)
        finally:
            for page in self._pages:
                if page is not None:
                    page.close_file()

    async def _start_ranks(self, epoch: int, fork: bool) -> None:
        logs = self._folders.of_epoch(epoch)
        for local_rank, files in enumerate(logs):
            await self._start_rank(epoch, local_rank, files, fork)
        self._tails = tailed_files(self._options, logs)

    @property
    def progress(self) -> tuple[int, Sequence[RankProgress]]:
        """The epoch, and what each of its ranks shows."""
        return self._epoch, [RankProgress() if page is None else page.read() for page in self._pages]

    async def stop(self, *, grace_seconds: float, signal_number: int = signal.SIGTERM) -> bool:
        """End all ranks and everything they have started. False: something waits in the kernel and cannot be ended.

        The ranks get the signal first, and SIGKILL after `grace_seconds`.
        """
        self._stopping = True
        for pid in list(self._running):
            self._say(f"sends {signal.Signals(signal_number).name} to process {pid}")
            signal_group(pid, signal_number)
        deadline = time.monotonic() + grace_seconds
        while self._running and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
        if self._store is not None:
            await self._store.close_store()
        left = await self._tree.end_all(within_seconds=_AFTER_KILL_SECONDS)
        for process in left:
            self._say(
                f"process {process.pid} (state {process.state}) is still there {_AFTER_KILL_SECONDS} s after SIGKILL"
            )
        for tail in self._tails:
            await asyncio.to_thread(tail.finish)
        self._tails = []
        return not left

    async def begin_zygote(self) -> None:
        """Begin to import torch in a process of its own, from which later epochs are forked. Does not wait for it."""
        if self._zygote is not None:
            return
        reason = reason_against_zygote(self._options)
        if reason is not None:
            self._say(f"ranks are always executed: {reason}")
            return
        self._zygote = Zygote(self._options, self._environ, self._directory)
        self._tree.add_helper(self._zygote.pid)
        file_limit.give(self._zygote.pid, self._file_limit)

    async def close(self) -> None:
        """End the agent's own processes. The ranks must have been stopped."""
        if self._zygote is not None:
            self._zygote.close()
        if self._store is not None:
            self._store.close()
        self._zygote = self._store = None
        await self._tree.end_helpers(within_seconds=_AFTER_KILL_SECONDS)
        self._tree.close()

    def report_failure(self) -> None:
        """Print torchrun's table of the failed ranks, and leave a termination message. Without a failure, nothing."""
        if not self._failures:
            return
        name = self._options.script if self._options.python == sys.executable else self._options.python
        write_line(sys.stderr, failure_summary.failure_table(name, self._failures))
        first = failure_summary.first_failure(self._failures)
        failure_summary.write_termination_message(first, self._termination_log)
        failure_summary.pass_error_on(first, self._environ.get("TORCHELASTIC_ERROR_FILE"))

    async def _start_rank(self, epoch: int, local_rank: int, files: RankLogs, fork: bool) -> None:
        environ = rank_environment(
            self._options, self._environ, epoch=epoch, local_rank=local_rank, error_file=files.error_file
        )
        rank = _RunningRank(epoch=epoch, local_rank=local_rank, rank=int(environ["RANK"]), error_file=files.error_file)
        page = self._pages[local_rank]
        shown = None if page is None else page.file
        with _opened(files.stdout) as stdout, _opened(files.stderr) as stderr:
            pid = await self._forked(local_rank, environ, stdout, stderr, shown) if fork else None
            if pid is None:
                pid = self._executed(local_rank, environ, stdout, stderr, shown)
        self._running[pid] = rank
        if pid in self._early:
            self._on_end(pid, self._early[pid])
        self._early.clear()

    async def _forked(
        self, local_rank: int, environ: Mapping[str, str], stdout: int | None, stderr: int | None, page: int | None
    ) -> int | None:
        """The process id of a rank that the zygote forked. None: it is to be executed."""
        if self._zygote is None:
            return None
        files = [0, 1 if stdout is None else stdout, 2 if stderr is None else stderr]
        self._forking = True
        try:
            return await self._zygote.fork(local_rank, environ, files, page)
        except NotForkedError as error:
            self._say(f"local rank {local_rank} is executed and not forked from the zygote: {error}")
            return None
        finally:
            self._forking = False

    def _executed(
        self, local_rank: int, environ: Mapping[str, str], stdout: int | None, stderr: int | None, page: int | None
    ) -> int:
        process = subprocess.Popen(
            self._options.command(local_rank),
            env=with_page(with_hook(environ), page),
            stdout=stdout,
            stderr=stderr,
            pass_fds=() if page is None else (page,),
            start_new_session=True,
        )
        # ProcessTree reaps it. Popen would warn of a process that it believes to be running.
        process.returncode = 0
        file_limit.give(process.pid, self._file_limit)
        return process.pid

    def _open_store(self) -> None:
        if self._options.node_rank != 0:
            return
        if self._store is None:
            self._store = StoreHost(self._options.master_port, self._environ)
            self._tree.add_helper(self._store.pid)
        self._store.open()

    def _on_end(self, pid: int, code: int) -> None:
        """A child of the agent has ended."""
        rank = self._running.pop(pid, None)
        if rank is not None:
            self._on_rank_end(pid, rank, code)
        elif self._store is not None and pid == self._store.pid:
            self._on_store_end(self._store, code)
        elif self._zygote is not None and pid == self._zygote.pid:
            self._zygote.ended()
            self._say("the zygote has ended; further ranks are executed")
        elif self._forking:
            self._early[pid] = code

    def _on_rank_end(self, pid: int, rank: _RunningRank, code: int) -> None:
        failure = RankFailure(
            rank=rank.rank,
            local_rank=rank.local_rank,
            pid=pid,
            exit_code=code,
            error_file=rank.error_file,
            ended_at=time.time(),
        )
        if code != 0:
            self._failures.append(failure)
        if self._stopping:
            return
        if code != 0:
            self._say(f"local rank {rank.local_rank} (process {pid}) failed with exit code {code}")
        self.exits.put_nowait(
            RankExit(
                epoch=rank.epoch,
                local_rank=rank.local_rank,
                rank=rank.rank,
                exit_code=code if code >= 0 else None,
                signal=-code if code < 0 else None,
                message=failure_summary.last_line(failure)[:_MESSAGE_MAX],
                step=self._step_of(rank),
            )
        )

    def _step_of(self, rank: _RunningRank) -> int | None:
        page = self._pages[rank.local_rank] if rank.epoch == self._epoch and self._pages else None
        shown = RankProgress() if page is None else page.read()
        return None if shown.step_at is None else shown.step

    def _on_store_end(self, store: StoreHost, code: int) -> None:
        """The next epoch starts another one. Where the port is taken, the ranks would wait for minutes, so that it
        counts as a failure of the first rank: torchrun, which hosts the store itself, ends with such an error."""
        refused = store.ended()
        self._store = None
        why = f"the process of the store on port {self._options.master_port} ended with code {code}"
        self._say(why)
        if not refused or self._stopping or not self._running:
            return
        exit_code, number = (code or 1, None) if code >= 0 else (None, -code)
        self.exits.put_nowait(
            RankExit(
                epoch=self._epoch, local_rank=0, rank=0, exit_code=exit_code, signal=number, message=why, step=None
            )
        )


@contextlib.contextmanager
def _opened(path: str | None) -> Iterator[int | None]:
    """The file to write to. None: the agent's own."""
    if path is None:
        yield None
        return
    with open(path, "w", encoding="utf-8") as file:
        yield file.fileno()
