"""What the engine knows of the job, of the cluster and of other drills, as read at one moment."""

from datetime import datetime
from typing import Protocol

import msgspec

from recovery.core.model.drill import DrilledWorkload, DrillFacts
from recovery.core.model.facts import GroupKey
from recovery.core.model.protection import Protection
from recovery.core.model.standing import Standing


class JobMember(msgspec.Struct, frozen=True):
    """A pod of the group that is on a node and has not ended."""

    pod: str
    uid: str
    node: str
    index: int | None
    """Completion index. None: its Job is not Indexed."""
    gpus: int
    container: str
    """The training container. Empty: not known."""
    going: bool = False
    """It is being deleted."""


class ReportedCheckpoint(msgspec.Struct, frozen=True):
    """The last checkpoint, as the training reports it in `status.trainerStatus.metrics` of the TrainJob."""

    at: datetime | None = None
    """Metric `checkpoint_timestamp_seconds`. None: not reported."""
    step: int | None = None
    """Metric `checkpoint_step`. None: not reported."""


class JobState(msgspec.Struct, frozen=True):
    """Everything that the preconditions of a drill depend on."""

    key: GroupKey
    at: datetime
    """When it was read."""
    workload: DrilledWorkload | None
    """None: there is no such job."""
    absence: str
    """Why there is no such job. Empty: it exists."""
    drills_allowed: bool | None
    """The label of the Namespace allows drills. None: the Namespace cannot be read."""
    members: tuple[JobMember, ...]
    standing: Standing | None
    """As `recovery status` shows it. None: the job is not meant to run."""
    protection: Protection
    protection_words: str
    """Why the job is not protected, and what to do about that."""
    budget_left: int | None
    """None: no policy applies."""
    leads: bool | None
    """A controller leads. None: the Leases cannot be read."""
    leader_words: str
    incident: str = ""
    """Id of the open incident of the job. Empty: none is open."""
    paused: bool = False
    """The annotation of the job pauses it."""
    stop_words: str = ""
    """Why the RecoveryConfig lets nothing be enforced: the pause, or the open circuit breaker. Empty: it does not."""
    storm: str = ""
    """The storm of node losses that goes on, in words. Empty: none."""
    drills: tuple[DrillFacts, ...] = ()
    """The RecoveryDrills of the workload."""
    checkpoint: ReportedCheckpoint = ReportedCheckpoint()
    highest_step: int | None = None
    """The training step of the fastest rank, as its agent reported it. None: not known."""
    unreadable: tuple[str, ...] = ()
    """What could not be read, and what that means."""


class JobProbe(Protocol):
    """Reads the job as `recovery status` does. All methods raise ApiError."""

    async def state(self) -> JobState: ...

    async def members(self) -> tuple[JobMember, ...]:
        """The pods alone, which takes less time."""
        ...
