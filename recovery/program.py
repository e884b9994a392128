"""How a program begins and ends, whatever it does in between: Ctrl-C, a reader that has gone away, a full disk.

This module loads before everything else, and is therefore small: a Ctrl-C that comes while a program loads its modules
is an end like any other. Python alone would raise KeyboardInterrupt wherever the program is. That prints a traceback
where no code catches it, as in an import, and Python drops it where it comes up in a destructor.
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
"""What it prints cannot be written: a full disk."""
EXIT_INTERRUPTED = 130
"""128 and the number of SIGINT: what a shell expects of a command that ended by Ctrl-C."""
EXIT_BROKEN_PIPE = 141
"""128 and the number of SIGPIPE: what a shell expects of a command whose reader has gone away, as in `| head`."""
UNWIND_SECONDS_MAX = 1.0
"""How long a program may take after Ctrl-C to close what it has opened. Then it ends all the same."""

_LOST_OUTPUT = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_ERASE_LINE_SHOW_CURSOR = "\r\x1b[2K\x1b[?25h"


class _Interrupt:
    """The handler of SIGINT. The first one unwinds the program, the second one ends it as it is."""

    def __init__(self, name: str) -> None:
        self._name = name
        """Empty: no line is written."""
        self.came = False
        self.unwound: BaseException | None = None
        """Keeps the frames that it went through, and what was at work there. None: the program is not over."""
        self._stderr: int | None = None
        """What it was. None: the program was started without it."""
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
        """The last exit hook. What an interrupted program was at takes its time to fall apart, so it is left whole."""
        if not self.came or not self._ending.acquire(blocking=False):
            return
        with suppress(OSError):
            self._write_the_line()
        os._exit(EXIT_INTERRUPTED)

    def _silence(self) -> None:
        """Whatever unwinds may complain: destructors, asyncio, warnings. None of it helps, so stderr ends here."""
        with suppress(OSError):
            if sys.stderr is not None:
                self._stderr = os.dup(2)
                _discard(2)

    def _write_the_line(self) -> None:
        """At the end, so that nothing is drawn over it."""
        if self._stderr is None:
            return
        line = f"{self._name}: interrupted\n" if self._name else ""
        if os.isatty(self._stderr):
            # It shows ^C in the line that the cursor is in. A progress bar hides the cursor, and outlives stderr.
            line = (_ERASE_LINE_SHOW_CURSOR if "rich.progress" in sys.modules else "\n") + line
        os.write(self._stderr, line.encode())

    def _end_after_all(self) -> None:
        """Ends a program in which the KeyboardInterrupt was lost, or that waits for something that does not come."""
        time.sleep(UNWIND_SECONDS_MAX)
        self.end()


def run_program(work: Callable[[], object], *, name: str) -> NoReturn:
    """Do the work and exit: with the code that it raises SystemExit with, else with 0. A bug keeps its traceback.

    `name` begins the line that Ctrl-C writes to stderr; empty: it writes none. Where SIGINT was ignored from the start,
    as in a background job of a script, it stays ignored.
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
    if sys.stdout is not stdout:  # typer replaces it when it meets a broken pipe
        code = EXIT_BROKEN_PIPE
    lost = _flushed(stdout) or _flushed(stderr) or lost
    if lost is not None:
        code = _without_output(lost, name)
    sys.exit(EXIT_INTERRUPTED if interrupt.came else code)  # type: ignore[arg-type]


def _flushed(stream: TextIO | None) -> OSError | None:
    """Why the rest of it cannot be written. Such a stream is pointed elsewhere, as Python flushes it once more."""
    if stream is None or stream.closed:
        return None
    try:
        stream.flush()
    except OSError as error:
        _discard(stream.fileno())
        return error
    return None


def _without_output(error: OSError, name: str) -> int:
    """The exit code. A reader that has gone away wants no words either."""
    if error.errno == errno.EPIPE:
        return EXIT_BROKEN_PIPE
    with suppress(OSError):  # it is stderr that is full
        os.write(2, f"{name}: the output cannot be written: {error.strerror}\n".encode())
    return EXIT_NO_OUTPUT


def _discard(descriptor: int) -> None:
    """Whatever is written to it from now on is lost."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
