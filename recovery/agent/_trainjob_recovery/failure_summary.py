"""What is said of a failed launch: torchrun's table on stderr, and one line as the container's termination message."""

import json
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

TERMINATION_LOG = Path("/dev/termination-log")
_TERMINATION_BYTES_MAX = 1024
_WIDTH_MAX = 60
_NO_FILE = "<N/A>"
_NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """A rank that ended with another code than 0."""

    rank: int
    local_rank: int
    pid: int
    exit_code: int
    """Negative: the number of the signal that ended it."""
    error_file: str
    """Where the rank may have recorded its exception. Empty: nowhere."""
    ended_at: float
    """Seconds since 1970."""


@dataclass(frozen=True)
class RecordedError:
    """What an error file says."""

    message: str
    callstack: str | None
    """None: the file has only the message."""
    recorded_at: int
    """Seconds since 1970."""


def recorded_error(path: str) -> RecordedError | None:
    """Read an error file in torch's format. None: there is none, or it is not understood."""
    if not path or not os.path.isfile(path):
        return None
    try:
        data: Any = json.loads(Path(path).read_text(encoding="utf-8", errors="replace"))
        message = data["message"]
        if isinstance(message, str):
            return RecordedError(message, None, _dated(data.get("timestamp", 0)))
        extra = message["extraInfo"]
        text = str(message.get("message", _NO_FILE))
        return RecordedError(text, str(extra.get("py_callstack", text)), _dated(extra["timestamp"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None  # the script may have written anything


def _dated(seconds: Any) -> int:
    """Raises OverflowError, ValueError or OSError for what is no date."""
    datetime.fromtimestamp(int(seconds))
    return int(seconds)


def last_line(failure: RankFailure) -> str:
    """The exception that ended the rank, in one line. Empty where none was recorded."""
    error = recorded_error(failure.error_file)
    return " ".join(error.message.split()) if error else ""


def signal_name(exit_code: int) -> str | None:
    """None: no signal, or one without a name."""
    with suppress(ValueError):
        return signal.Signals(-exit_code).name if exit_code < 0 else None
    return None


def first_failure(failures: Sequence[RankFailure]) -> RankFailure:
    """The root cause, as torchrun has it: the earliest second, and of one second the first that was observed."""
    return min(failures, key=lambda failure: _second(failure, recorded_error(failure.error_file)))


def _second(failure: RankFailure, error: RecordedError | None) -> int:
    return error.recorded_at if error else int(failure.ended_at)


def failure_table(name: str, failures: Sequence[RankFailure]) -> str:
    """All failures of a launch, the root cause last."""
    root = first_failure(failures)
    entries = {failure: _entry(index, failure) for index, failure in enumerate(failures)}
    title = f"{name} FAILED"
    lines = [title, *(line for entry in entries.values() for line in entry.split("\n"))]
    width = min(max(map(len, lines)), _WIDTH_MAX)
    others = [entry for failure, entry in entries.items() if failure is not root] or ["  <NO_OTHER_FAILURES>"]
    above = ["", "=" * width, title, "-" * width, "Failures:", *others]
    below = ["-" * width, "Root Cause (first observed failure):", entries[root], "=" * width]
    return "\n".join([*above, *below])


def _entry(index: int, failure: RankFailure) -> str:
    error = recorded_error(failure.error_file)
    name = signal_name(failure.exit_code)
    if error:
        said = (error.callstack or error.message).replace("\n", "\n  ")
    elif failure.exit_code < 0:
        said = f"Signal {-failure.exit_code} ({name or _NO_FILE}) received by PID {failure.pid}"
    else:
        said = _NO_TRACEBACK
    fields = {
        "time": datetime.fromtimestamp(_second(failure, error)).isoformat(sep="_"),  # the local time, as in the logs
        "host": socket.getfqdn(),
        "rank": f"{failure.rank} (local_rank: {failure.local_rank})",
        "exitcode": f"{failure.exit_code} (pid: {failure.pid}) " + (f" ({name})" if name else ""),
        "error_file": failure.error_file if error else _NO_FILE,
        "traceback": said,
    }
    return "\n".join([f"[{index}]:", *(f"  {name:<10}: {value}" for name, value in fields.items())])


def termination_message(failure: RankFailure) -> str:
    """The rank, how it ended, and why, in one line of at most 1 KiB."""
    if failure.exit_code < 0:
        how = f"was ended by signal {-failure.exit_code}"
        how += f" ({signal_name(failure.exit_code)})" if signal_name(failure.exit_code) else ""
    else:
        how = f"exited with code {failure.exit_code}"
    why = last_line(failure)
    text = f"rank {failure.rank} {how}" + (f": {why}" if why else "")
    return text.encode("utf-8", "replace")[:_TERMINATION_BYTES_MAX].decode("utf-8", "ignore")


def write_termination_message(failure: RankFailure, path: Path) -> None:
    """Write it, unless the script has written a message of its own or the file cannot be written."""
    with suppress(OSError):
        if path.stat().st_size == 0:
            path.write_text(termination_message(failure), encoding="utf-8")


def pass_error_on(failure: RankFailure, environ_error_file: str | None) -> None:
    """Copy the error file to the one that the launch itself was given, as torchrun does. None: it was given none."""
    if not environ_error_file or recorded_error(failure.error_file) is None:
        return
    with suppress(OSError, ValueError):
        data = json.loads(Path(failure.error_file).read_text(encoding="utf-8", errors="replace"))
        if isinstance(data["message"], dict) and failure.exit_code:
            data["message"]["errorCode"] = failure.exit_code
        Path(environ_error_file).write_text(json.dumps(data), encoding="utf-8")
