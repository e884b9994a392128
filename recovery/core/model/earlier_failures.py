"""What a ledger remembers of earlier failures, so that the same failure is recognised and none counts twice."""

from datetime import datetime

import msgspec


class FailureMark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How the root of a failure showed, so that the same failure is recognised when it comes back after a restart."""

    incident: str
    attempt: int
    """How many attempts the incident had had before it."""
    at: datetime
    exit_code: int
    message: str
    """The last line of the termination message, numbers that change from run to run taken out."""
    node: str = ""
    ran_seconds: float | None = None
    """How long the process had run; None: not known."""
    step: int | None = None
    """The training step that the message names; None: it names none."""


class Handled(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Evidence that an earlier incident has dealt with, or that is a baseline; it never opens an incident again."""

    keys: tuple[str, ...] = ()
    """Evidence keys, only of what can still be seen."""
    earlier: int = 0
    """So many of the keys, from the front, are of earlier incidents: no verdict is passed on those again."""
    until: datetime | None = None
    """When the last incident closed. Losses that are only inferred (a replacement pod) and older are dealt with."""
    terminal_jobset_uid: str = msgspec.field(name="terminalJobSetUID", default="")
    """A JobSet whose end has been reported."""
