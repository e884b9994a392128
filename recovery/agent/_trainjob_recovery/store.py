"""The agent's side of the store: one process on slot 0, and a new store for each epoch."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from .rank_environment import with_folder, without_agent
from .store_host import CLOSE, OPEN, REFUSED

_HOST = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; import runpy; "
    "runpy.run_module('_trainjob_recovery.store_host', run_name='__main__', alter_sys=True)"
)
_CLOSE_SECONDS = 5
_POLL_SECONDS = 0.01


class StoreHost:
    """One host process. It is usable until it ends."""

    def __init__(self, port: int, environ: Mapping[str, str]) -> None:
        theirs_in, self._commands = os.pipe()
        self._answers, theirs_out = os.pipe()
        os.set_blocking(self._answers, False)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOST, str(port), str(theirs_in), str(theirs_out)],
            env=with_folder(without_agent(environ)),
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs_in, theirs_out],
            start_new_session=True,
        )
        self._process.returncode = 0  # ProcessTree reaps it
        self.pid = self._process.pid
        os.close(theirs_in)
        os.close(theirs_out)
        self.alive = True
        self._refused = False
        """It cannot listen, because the port is taken."""

    def open(self) -> None:
        """Begin to listen, as soon as torch is imported. Does not wait for it: the ranks try until it does."""
        with suppress(BrokenPipeError):
            os.write(self._commands, OPEN)

    async def close_store(self) -> None:
        """Stop to listen, so that no rank of a later epoch meets this store. A host that does not answer is killed."""
        with suppress(BrokenPipeError):
            os.write(self._commands, CLOSE)
        deadline = time.monotonic() + _CLOSE_SECONDS
        while self.alive and not self._has_answered(CLOSE):
            if time.monotonic() >= deadline:
                os.kill(self.pid, signal.SIGKILL)
                deadline += _CLOSE_SECONDS
            await asyncio.sleep(_POLL_SECONDS)

    def ended(self) -> bool:
        """It has been reaped. Returns whether it ended because it could not listen."""
        self._has_answered(REFUSED)
        self.alive = False
        self.close()
        return self._refused

    def close(self) -> None:
        """The host ends when its commands do."""
        for file in (self._commands, self._answers):
            with suppress(OSError):
                os.close(file)
        self._commands = self._answers = -1

    def _has_answered(self, command: bytes) -> bool:
        try:
            answers = os.read(self._answers, 64)
        except OSError:
            return False
        self._refused = self._refused or REFUSED in answers
        return command in answers
