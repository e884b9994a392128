"""What the suspect of an incident last wrote: evidence for people. No signature, rule or decision reads it."""

from enum import StrEnum

import msgspec

LOG_LINES_MAX = 64
LOG_BYTES_MAX = 4096
"""Of what is kept, in UTF-8. The kubelet cuts a termination message there as well."""
LOG_READ_BYTES_MAX = 262_144
"""Of what is read. `limitBytes` cuts at the end: a limit of what is kept would drop the last lines, which matter most.
A line of 4 KiB on average is more than training writes."""

_KEPT = frozenset("\n\t")


class LogAbsence(StrEnum):
    """Why an incident has no log of its suspect."""

    FORBIDDEN = "Forbidden"
    """The API server refuses it: the right to read logs was taken back after the controller started."""
    TIMED_OUT = "TimedOut"
    """It did not come within the deadline, as from a node that is silent."""
    UNREACHABLE = "Unreachable"
    """The API server could not get it from the node."""
    NOT_FOUND = "NotFound"
    """The pod is gone."""
    NO_LOGS = "NoLogs"
    """The container has written nothing, has not started, or its log is not there any more."""
    NO_TRAINING_CONTAINER = "NoTrainingContainer"
    """Nothing says which container of the pod trains."""


class SuspectLog(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The end of the log of the first suspect's training container, read once, beside the trigger."""

    pod: str
    container: str = ""
    """Empty: the training container is not known, or the pod was gone."""
    previous: bool = False
    """It is the log of the instance before the one that runs now: the container had restarted in place."""
    termination_message: str = ""
    """Of the exit, as the kubelet has it: at most 4 KiB. Empty: the container wrote none."""
    tail: str = ""
    """The last 64 lines, at most 4 KiB in UTF-8. Control characters are replaced."""
    incomplete: bool = False
    """More than 256 KiB stood in the last 64 lines, and what came after these was not read."""
    absent: LogAbsence | None = None
    """Why there is no `tail`. None: there is one."""


def tail_of(raw: bytes) -> str:
    """The last lines of a log, at most LOG_LINES_MAX and LOG_BYTES_MAX. Empty: it holds nothing.

    It begins with a whole line, unless the last line alone is longer. A carriage return ends a line, because a progress
    bar writes one line for hours.
    """
    lines = plain_text(raw.decode(errors="replace")).strip("\n").split("\n")[-LOG_LINES_MAX:]
    return last_bytes("\n".join(lines))


def last_bytes(text: str) -> str:
    """The last LOG_BYTES_MAX of the text, from the beginning of a line, or of a character in a line that is longer."""
    encoded = text.encode()
    if len(encoded) <= LOG_BYTES_MAX:
        return text
    cut = encoded[-LOG_BYTES_MAX:]
    if encoded[-LOG_BYTES_MAX - 1 : -LOG_BYTES_MAX] == b"\n":
        return cut.decode()
    _, newline, whole = cut.partition(b"\n")
    # Bytes of a character whose beginning was cut off are dropped; there are no others that are no UTF-8.
    return whole.decode() if newline else cut.decode(errors="ignore")


def plain_text(text: str) -> str:
    """Lines without control characters, so that no terminal obeys what a tenant has written. A lone surrogate, which no
    UTF-8 can hold, becomes a space like them."""
    unix = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(each if each in _KEPT or each.isprintable() else " " for each in unix)
