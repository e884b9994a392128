"""`recovery run` forked from a process that has imported it. Each of several hundred starts saves a second of CPU.

Otherwise it is like a separate process, with its own session, log, signals and exit code. The import itself is tested
where the program starts as users start it: in the image, on real nodes and in the tests of the command line.
"""

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from recovery.cli.entry import main
from tests.cluster.controlplane.processes import die_with

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["recovery.cli.main", "recovery.cli.run", __name__])


class ForkedProcess:
    """The part of `asyncio.subprocess.Process` that the tests use."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        """Starts it. The fork server starts with the first one and ends with this process."""
        log.touch()  # so that a reader finds it at once
        self._process = _FORKING.Process(target=_run, args=(tuple(arguments), log), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None: it still runs. Negative: the signal that ended it."""
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        while self.returncode is None:
            await asyncio.sleep(0.01)
        return self.returncode


def _run(arguments: Sequence[str], log: Path) -> None:
    os.setsid()
    die_with(os.getppid())
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)
    sys.argv = ["recovery", *arguments]
    main()
