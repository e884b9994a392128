"""What a ledger remembers of earlier failures, so that the same failure is recognised and none counts twice."""

from datetime import datetime

import msgspec

NO_PROCESS = -1
"""In place of an exit code: the kubelet refused the pod, so none of its processes began."""


class FailureMark(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How the root of a failure looked, so that the same failure is recognised after a restart."""

    incident: str
    attempt: int
    """How many attempts the incident had before this failure."""
    at: datetime
    exit_code: int
    """-1: the kubelet refused the pod at admission."""
    message: str
    """The last line of the termination message, without the numbers that change from run to run."""
    node: str = ""
    ran_seconds: float | None = None
    """How long the process had run, in seconds. None: not known."""
    step: int | None = None
    """The training step that the message names. None: the message names no step."""


class Handled(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Evidence that belongs to an earlier incident or is a baseline. It never opens an incident again."""

    keys: tuple[str, ...] = ()
    """Keys of the evidence, only as long as it can still be seen."""
    earlier: int = 0
    """How many of the first `keys` belong to earlier incidents, which are not judged again."""
    until: datetime | None = None
    """When the last incident closed. An older loss that is only inferred, from a replacement pod, opens no incident."""
    terminal_jobset_uid: str = msgspec.field(name="terminalJobSetUID", default="")
    """UID of a JobSet whose failure has been reported."""
