"""What the suspect of an incident last wrote: evidence for people. No signature, rule or decision reads it."""

from enum import StrEnum

import msgspec

LOG_LINES_MAX = 64
LOG_BYTES_MAX = 4096
"""How much of a log is kept, in UTF-8. The kubelet cuts a termination message at the same length."""
LOG_READ_BYTES_MAX = 262_144
"""How much of a log is read. `limitBytes` cuts off the end: with LOG_BYTES_MAX it would drop the last lines, which
matter most. This limit allows 4 KiB a line, which is more than training writes."""

_KEPT = frozenset("\n\t")


class LogAbsence(StrEnum):
    """Why an incident has no log of its suspect."""

    FORBIDDEN = "Forbidden"
    """The API server refuses the request: the permission to read logs was revoked after the controller started."""
    TIMED_OUT = "TimedOut"
    """The log did not arrive within the deadline, for example from a node that does not answer."""
    UNREACHABLE = "Unreachable"
    """The API server could not get the log from the node."""
    NOT_FOUND = "NotFound"
    """The pod does not exist any more."""
    NO_LOGS = "NoLogs"
    """The container has written nothing, has not started, or its log no longer exists."""
    NO_TRAINING_CONTAINER = "NoTrainingContainer"
    """Nothing says which container of the pod trains."""


class SuspectLog(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The end of the log of the first suspect's training container, read once when the group is restarted."""

    pod: str
    container: str = ""
    """Name of the training container. Empty: it is not known, or the pod was gone."""
    previous: bool = False
    """The log is from the previous instance of the container, which had restarted in place."""
    termination_message: str = ""
    """Termination message of the container, at most 4 KiB. Empty: the container wrote none."""
    tail: str = ""
    """The last 64 lines of the log, at most 4 KiB in UTF-8. Control characters are replaced."""
    incomplete: bool = False
    """The last 64 lines had more than 256 KiB, and the rest was not read."""
    absent: LogAbsence | None = None
    """Why there is no `tail`. None: there is a tail."""


def tail_of(raw: bytes) -> str:
    """The last lines of a log, at most LOG_LINES_MAX and LOG_BYTES_MAX. Empty: the log is empty.

    The tail begins with a whole line, unless the last line alone is longer. A carriage return ends a line, because a
    progress bar writes one line for hours.
    """
    lines = plain_text(raw.decode(errors="replace")).strip("\n").split("\n")[-LOG_LINES_MAX:]
    return last_bytes("\n".join(lines))


def last_bytes(text: str) -> str:
    """The last LOG_BYTES_MAX bytes of the text, from the start of a line, or of a character if the line is longer."""
    encoded = text.encode()
    if len(encoded) <= LOG_BYTES_MAX:
        return text
    cut = encoded[-LOG_BYTES_MAX:]
    if encoded[-LOG_BYTES_MAX - 1 : -LOG_BYTES_MAX] == b"\n":
        return cut.decode()
    _, newline, whole = cut.partition(b"\n")
    # Bytes of a character whose beginning was cut off are dropped. All other bytes are valid UTF-8.
    return whole.decode() if newline else cut.decode(errors="ignore")


def plain_text(text: str) -> str:
    """The lines with spaces for control characters, so that no terminal obeys what a tenant has written. A lone
    surrogate, which UTF-8 cannot encode, becomes a space as well."""
    unix = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(each if each in _KEPT or each.isprintable() else " " for each in unix)
