"""Runs in a rank: an exception that ends it is recorded where torch's own `record` would put it.

The start of every rank imports this module, so it imports the rest only when an exception ends the rank.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # types is not loaded at the start
    from types import TracebackType


def install() -> None:
    """Record the exception that ends this process, and no process that it forks."""
    owner = os.getpid()
    before = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
        if os.getpid() == owner and isinstance(error, Exception):
            record(error, trace)
        before(kind, error, trace)

    sys.excepthook = excepthook


def record(error: Exception, trace: "TracebackType | None") -> None:
    """Write the error file in torch's format. A file that the script has written stays as it is."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    import json
    import time
    import traceback

    callstack = "".join(traceback.format_exception(type(error), error, trace))
    extra = {"py_callstack": callstack, "timestamp": str(int(time.time()))}
    try:
        text = json.dumps({"message": {"message": f"{type(error).__name__}: {error}", "extraInfo": extra}})
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except Exception:  # noqa: BLE001, S110 - the traceback on stderr matters more
        pass
