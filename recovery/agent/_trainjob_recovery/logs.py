"""Where the output of the ranks goes: --log-dir, --redirects, --tee and --local-ranks-filter, as torchrun has them."""

import os
import shutil
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TextIO

from .flags import ERR, OUT, LaunchOptions

_POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class RankLogs:
    """The files of one rank in one epoch."""

    error_file: str
    """Empty where --log-dir is /dev/null."""
    stdout: str | None
    """None: the console."""
    stderr: str | None
    tee_stdout: str | None
    """The file whose lines are copied to the console. None: no lines are."""
    tee_stderr: str | None


class LogFolders:
    """`<log-dir>/<run id>_<random>/attempt_<restart>/<local rank>/`."""

    def __init__(self, options: LaunchOptions) -> None:
        self._options = options
        if options.log_dir and Path(options.log_dir).is_file():
            raise NotADirectoryError(f"log_dir: {options.log_dir} is a file")
        self._run: str | None = None
        """The folder of this launch. None: it is not created yet, or --log-dir is /dev/null."""

    def of_epoch(self, epoch: int) -> list[RankLogs]:
        """Create the folders of one epoch, a folder for each local rank."""
        if self._options.log_dir == os.devnull:
            nowhere = RankLogs(error_file="", stdout=None, stderr=None, tee_stdout=None, tee_stderr=None)
            return [nowhere] * self._options.ranks_per_node
        if self._run is None:
            base = self._options.log_dir or tempfile.mkdtemp(prefix="torchelastic_")
            os.makedirs(base, exist_ok=True)
            self._run = tempfile.mkdtemp(prefix=f"{self._options.run_id}_", dir=base)
        attempt = os.path.join(self._run, f"attempt_{epoch - 1}")
        shutil.rmtree(attempt, ignore_errors=True)
        return [self._of_rank(attempt, local_rank) for local_rank in range(self._options.ranks_per_node)]

    def _of_rank(self, attempt: str, local_rank: int) -> RankLogs:
        folder = os.path.join(attempt, str(local_rank))
        os.makedirs(folder)
        tee = self._options.tee[local_rank]
        to_file = self._options.redirects[local_rank] | tee
        shown = self._options.local_ranks_shown is None or local_rank in self._options.local_ranks_shown
        console = None if shown else os.devnull
        stdout, stderr = (os.path.join(folder, name) for name in ("stdout.log", "stderr.log"))
        return RankLogs(
            error_file=os.path.join(folder, "error.json"),
            stdout=stdout if to_file & OUT else console,
            stderr=stderr if to_file & ERR else console,
            tee_stdout=stdout if shown and tee & OUT else None,
            tee_stderr=stderr if shown and tee & ERR else None,
        )


def line_prefix(options: LaunchOptions, local_rank: int) -> str:
    """What stands before each line of a rank on the console."""
    if options.line_prefix is None:
        return f"[{options.role}{local_rank}]:"
    rank = options.node_rank * options.ranks_per_node + local_rank
    return Template(options.line_prefix).safe_substitute(role_name=options.role, rank=rank, local_rank=local_rank)


class TailedFile(threading.Thread):
    """Copies the lines of a file to the console while a rank writes it.

    It is a thread, because a console that takes nothing for a while must not hold up the agent.
    """

    def __init__(self, path: str, console: TextIO, prefix: str) -> None:
        super().__init__(daemon=True)
        self._path, self._console, self._prefix = path, console, prefix
        self._finished = threading.Event()

    def run(self) -> None:
        with open(self._path, errors="replace") as file:
            while True:
                last_look = self._finished.is_set()
                for line in file:
                    self._console.write(f"{self._prefix}{line}")
                self._console.flush()
                if last_look:
                    return
                self._finished.wait(_POLL_SECONDS)

    def finish(self) -> None:
        """Copy what is there by now, and end."""
        self._finished.set()
        self.join()


def tailed_files(options: LaunchOptions, logs: list[RankLogs]) -> list[TailedFile]:
    """Begin to copy what --tee asks for. The files must exist."""
    tails = []
    for local_rank, files in enumerate(logs):
        for path, console in ((files.tee_stdout, sys.stdout), (files.tee_stderr, sys.stderr)):
            if path is not None:
                tails.append(TailedFile(path, console, line_prefix(options, local_rank)))
    for tail in tails:
        tail.start()
    return tails
