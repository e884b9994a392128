"""Starts and ends a program: handles Ctrl-C, a closed output pipe and a full disk.

This module is small because it loads before everything else, so that a Ctrl-C during the imports ends a program like
any other. Python itself raises KeyboardInterrupt wherever the program is. That prints a traceback if no code catches
it, as during an import, and Python ignores it in a destructor.
"""

import _thread
import atexit
import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn, TextIO

EXIT_NO_OUTPUT = 1
"""The output cannot be written, for example because the disk is full."""
EXIT_INTERRUPTED = 130
"""128 plus the number of SIGINT: what a shell expects of a command that Ctrl-C ended."""
EXIT_BROKEN_PIPE = 141
"""128 plus the number of SIGPIPE: what a shell expects of a command whose reader has exited, as in `| head`."""
UNWIND_SECONDS_MAX = 1.0
"""How long a program may take after Ctrl-C to close what it has opened. Then it is ended."""

_LOST_OUTPUT = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_ERASE_LINE_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"


class _Interrupt:
    """The handler of SIGINT. The first signal unwinds the program, the second one ends it at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        """Empty: no line is written."""
        self.came = False
        self.unwound: BaseException | None = None
        """Keeps the frames that it went through, and their objects, alive. None: the program is not over."""
        self._stderr: int | None = None
        """A copy of the original stderr. None: stderr is not discarded yet, or the program was started without it."""
        self._ending = _thread.allocate_lock()

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        if self.came:
            return self.end()
        self.came = True
        self._silence()
        try:
            _thread.start_new_thread(self._end_after_all, ())
        except RuntimeError:  # no thread can be started
            self.end()
        raise KeyboardInterrupt

    def end(self) -> None:
        """The last exit hook. Freeing the objects of an interrupted program takes time, so it exits without that."""
        if not self.came or not self._ending.acquire(blocking=False):
            return
        with suppress(OSError):
            self._write_the_line()
        os._exit(EXIT_INTERRUPTED)

    def _silence(self) -> None:
        """Discard stderr: what destructors, asyncio and warnings print during the unwinding does not help."""
        with suppress(OSError):
            if sys.stderr is not None:
                self._stderr = os.dup(2)
                _discard(2)

    def _write_the_line(self) -> None:
        """Write the final line. It comes last, so that nothing is drawn over it."""
        if self._stderr is None:
            return
        line = f"{self._name}: interrupted\n" if self._name else ""
        if os.isatty(self._stderr):
            # A terminal shows ^C in the cursor's line. A progress bar hides the cursor, and remains on the screen.
            line = (_ERASE_LINE_SHOW_CURSOR if "rich.progress" in sys.modules else "\n") + line
        os.write(self._stderr, line.encode())

    def _end_after_all(self) -> None:
        """End a program that lost the KeyboardInterrupt, or that waits for something that never happens."""
        time.sleep(UNWIND_SECONDS_MAX)
        self.end()


def run_program(work: Callable[[], object], *, name: str) -> NoReturn:
    """Do the work and exit with the code of its SystemExit, or else with 0. A bug keeps its traceback.

    `name` begins the line that Ctrl-C writes to stderr; empty: it writes none. If SIGINT was ignored from the start, as
    in a background job of a script, it stays ignored.
    """
    interrupt = _Interrupt(name)
    atexit.register(interrupt.end)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    stdout, stderr = sys.stdout, sys.stderr
    code: object = 0
    lost: OSError | None = None
    try:
        try:
            work()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the work is over, and the exit code says how
    except SystemExit as error:
        code, interrupt.unwound = error.code, error
    except KeyboardInterrupt as error:
        code, interrupt.unwound = EXIT_INTERRUPTED, error
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in _LOST_OUTPUT:
            lost = error
        elif not interrupt.came:
            raise
        interrupt.unwound = error
    if sys.stdout is not stdout:  # typer replaces stdout on a broken pipe
        code = EXIT_BROKEN_PIPE
    lost = _flushed(stdout) or _flushed(stderr) or lost
    if lost is not None:
        code = _without_output(lost, name)
    sys.exit(EXIT_INTERRUPTED if interrupt.came else code)  # type: ignore[arg-type]


def _flushed(stream: TextIO | None) -> OSError | None:
    """Flush the stream. Returns why that failed. The stream is then discarded, because Python flushes it again."""
    if stream is None or stream.closed:
        return None
    try:
        stream.flush()
    except OSError as error:
        _discard(stream.fileno())
        return error
    return None


def _without_output(error: OSError, name: str) -> int:
    """The exit code. If the reader has exited, no message is written either."""
    if error.errno == errno.EPIPE:
        return EXIT_BROKEN_PIPE
    with suppress(OSError):  # stderr itself is full
        os.write(2, f"{name}: the output cannot be written: {error.strerror}\n".encode())
    return EXIT_NO_OUTPUT


def _discard(descriptor: int) -> None:
    """Redirect the descriptor to the null device."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
