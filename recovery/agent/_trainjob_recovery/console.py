"""What the agent itself prints. A console that takes nothing changes nothing else that the agent does."""

import sys
from contextlib import suppress
from typing import TextIO


def say_on_stderr(text: str) -> None:
    write_line(sys.stderr, f"recovery-agent: {text}")


def write_line(stream: TextIO | None, text: str) -> None:
    """Write it, if it can be written: the disk below the stream may be full, and a pipe may have no reader any more.

    `stream` None: it was closed before this interpreter began.
    """
    if stream is not None:
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            stream.write(f"{text}\n")
            stream.flush()


def flush_all() -> None:
    """Write what the streams still hold, if it can be written."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
