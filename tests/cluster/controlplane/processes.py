"""Child processes that cannot outlive the test run, and an error that shows the log of the one that failed.

Every child asks the kernel to kill it when its parent dies, so even a SIGKILLed test run leaves nothing behind.
Children are ended by process id with SIGKILL and reaped, because a kube-apiserver that gets SIGTERM keeps its port for
a minute.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Loaded here, because it is not safe to load a library between fork and exec.
_LIBC = ctypes.CDLL(None, use_errno=True)


class ControlPlaneError(Exception):
    """The control plane, or a command sent to it, failed. The text has the last output of the failed process."""


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn` that ties the child to the thread that starts it.

    Such a function is unsafe beside threads if it takes locks. This one only makes two system calls.
    """
    if sys.platform != "linux":
        raise ControlPlaneError(
            "the control plane for tests needs Linux, whose prctl ties its processes to the test run"
        )
    return partial(die_with, os.getpid())


def die_with(parent: int) -> None:
    """Ties this process to the thread of its parent that started it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the line above, so no signal will come
        os._exit(1)


class ManagedProcess:
    """One program of the control plane, with its log."""

    def __init__(self, name: str, command: list[str], log_path: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.command = command
        self.log_path = log_path
        self._environment = environment
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen else None

    @property
    def exit_code(self) -> int | None:
        """None: it runs, or was never started."""
        return self._popen.poll() if self._popen else None

    def start(self) -> None:
        """Starts it, or restarts it after `end`, with the same command and the same log."""
        with self.log_path.open("ab") as log:
            try:
                self._popen = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    # Its own group: Ctrl-C at the terminal reaches only the test run, which ends them in order.
                    process_group=0,
                    preexec_fn=die_with_parent(),  # noqa: PLW1509 (see there)
                )
            except OSError as error:
                raise ControlPlaneError(f"{self.name} cannot be started: {error}") from error

    def kill(self) -> None:
        """Sends SIGKILL without waiting, so that several can die at the same time."""
        if self._popen and self._popen.poll() is None:
            self._popen.kill()

    def end(self) -> None:
        """Kills it and waits for its end. This takes milliseconds, so it may block the event loop. Not cancellable."""
        self.kill()
        if self._popen:
            self._popen.wait()

    def last_words(self, lines: int = 20) -> str:
        with self.log_path.open("rb") as log:
            # A log may grow to many megabytes, and this is also called repeatedly while waiting.
            log.seek(max(0, log.seek(0, os.SEEK_END) - 64 * 1024))
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:]) or "(its log is empty)"

    def failure(self, what: str) -> ControlPlaneError:
        return ControlPlaneError(
            f"{self.name} (process {self.pid}) {what}. Last lines of {self.log_path}:\n{self.last_words()}"
        )
