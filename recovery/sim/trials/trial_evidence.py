"""What is known of a trial besides the server's state: what the checkers judge by, and the timeline shows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from recovery.core.model.facts import GroupKey
from recovery.ports import ApiRequest
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.rounds import Round
from recovery.sim.training.trace import Trace
from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.plan import JobPlan, TrialPlan


@dataclass(frozen=True)
class RequestRecord:
    """One request of a controller process, recorded when it was applied, refused, or lost."""

    at: datetime
    actor: str
    """The replica: `controller-0`."""
    process: int
    """Which of its processes, from 0."""
    number: int
    """Counts the replica's requests over all its processes, from 0."""
    request: ApiRequest
    code: int | None
    """As the sender heard it. None: it heard nothing."""
    applied: bool
    """It was a write and changed the server's state, or found it as it was to be."""
    revision: int
    """The server's newest resourceVersion after it."""
    fault: TrialFault | None = None
    """What was done to it. None: nothing."""


@dataclass(frozen=True)
class Happening:
    """A fault that took place."""

    fault: TrialFault
    at: datetime
    until: datetime | None
    """None: it has no duration."""
    sentence: str
    """`pod team-a/llm-node-0-3 was deleted`: what the timeline says."""
    pod_uids: tuple[str, ...] = ()
    """The pods that it affected."""
    node: str = ""


@dataclass(frozen=True)
class FailedReconcile:
    """A reconcile of a group that ended in an error."""

    at: datetime
    actor: str
    group: GroupKey
    error: str
    """Name of the exception's class."""


@dataclass(frozen=True)
class ProcessLife:
    """One process of a replica. `ended_at` None: it runs."""

    actor: str
    process: int
    started_at: datetime
    ended_at: datetime | None = None
    how: str = ""
    """killed, stopped, or the exception that ended it."""


@dataclass
class TrialEvidence:
    """Grows while the trial runs. Lists are in the order in which things happened."""

    plan: TrialPlan
    server: ApiServer
    trace: Trace
    """What really happened to the training."""
    jobs: Mapping[GroupKey, JobPlan]
    began_at: datetime
    healing_from: datetime
    """No fault begins or lasts after it."""
    ends_at: datetime
    changes: list[ObjectChange] = field(default_factory=list)
    change_times: list[datetime] = field(default_factory=list)
    """When each of `changes` was made."""
    requests: list[RequestRecord] = field(default_factory=list)
    """Of controller processes, leases and reads included, watches not."""
    happenings: list[Happening] = field(default_factory=list)
    failed_reconciles: list[FailedReconcile] = field(default_factory=list)
    processes: list[ProcessLife] = field(default_factory=list)
    rounds: Callable[[str], Sequence[Round]] = lambda training: ()
    """Of a training by its name, oldest first: when it stopped, and when all ranks met again."""
    lost_seconds: dict[str, float] = field(default_factory=dict)
    """At the end: seconds in which trainings stood still, and those that incidents book besides, by account."""
    metrics: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """At the end, by replica: samples of its /metrics, as `name{label="value",…}`."""
    indexes: dict[type, object] = field(default_factory=dict, repr=False)
    """What several checkers look up, by the class of the index: made and fed once for all of them."""


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold."""

    invariant: str
    at: datetime
    sentence: str
    """What should have held, what was found instead: names, numbers, moments."""
    group: GroupKey | None = None


class Checker(Protocol):
    """One invariant. Made for each trial with the evidence that grows; hears each event as it is recorded."""

    name: str
    """As in `OneIncarnation`: what a counterexample is called."""

    def changed(self, change: ObjectChange, at: datetime) -> Iterable[Violation]:
        """After each revision."""
        ...

    def requested(self, record: RequestRecord) -> Iterable[Violation]:
        """After each request of a controller process."""
        ...

    def ended(self) -> Iterable[Violation]:
        """When the trial is over."""
        ...
