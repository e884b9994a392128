"""The evidence of a trial besides the server's state. The checkers judge by it, and the timeline shows it."""

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
    """Number of the replica's process, from 0."""
    number: int
    """Counts the replica's requests over all its processes, from 0."""
    request: ApiRequest
    code: int | None
    """As the sender received it. None: it received no response."""
    applied: bool
    """The request was a write that changed the server's state, or found it already as it should be."""
    revision: int
    """The server's newest resourceVersion after the request."""
    fault: TrialFault | None = None
    """The fault that affected the request. None: no fault did."""


@dataclass(frozen=True)
class Happening:
    """A fault that took place."""

    fault: TrialFault
    at: datetime
    until: datetime | None
    """None: it has no duration."""
    sentence: str
    """What the timeline says, as in `pod team-a/llm-node-0-3 was deleted`."""
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
    """One process of a replica. `ended_at` None: it still runs."""

    actor: str
    process: int
    started_at: datetime
    ended_at: datetime | None = None
    how: str = ""
    """How it ended: killed, stopped, or the exception. Empty: it still runs."""


@dataclass
class TrialEvidence:
    """The evidence, which grows while the trial runs. Lists are in the order in which things happened."""

    plan: TrialPlan
    server: ApiServer
    trace: Trace
    """What really happened to the training."""
    jobs: Mapping[GroupKey, JobPlan]
    began_at: datetime
    healing_from: datetime
    """All faults have ended by then, and none begins later."""
    ends_at: datetime
    changes: list[ObjectChange] = field(default_factory=list)
    change_times: list[datetime] = field(default_factory=list)
    """When each of `changes` was made."""
    requests: list[RequestRecord] = field(default_factory=list)
    """Requests of controller processes, including reads and those for Leases, without watches."""
    happenings: list[Happening] = field(default_factory=list)
    remarks: list[tuple[datetime, str]] = field(default_factory=list)
    """What a visitor of the trial has said, and when."""
    failed_reconciles: list[FailedReconcile] = field(default_factory=list)
    processes: list[ProcessLife] = field(default_factory=list)
    rounds: Callable[[str], Sequence[Round]] = lambda training: ()
    """The rounds of a training by its name, oldest first: when all ranks met, and when they stopped."""
    lost_seconds: dict[str, float] = field(default_factory=dict)
    """Set at the end: seconds in which trainings were stopped, and others that incidents book, by account."""
    metrics: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Set at the end, by replica: samples of its /metrics, as `name{label="value",…}`."""
    indexes: dict[type, object] = field(default_factory=dict, repr=False)
    """Indexes that several checkers share, by class. Each one is created and updated once for all of them."""


@dataclass(frozen=True)
class Violation:
    """An invariant that did not hold."""

    invariant: str
    at: datetime
    sentence: str
    """What should have held and what was found instead, with names, numbers and moments."""
    group: GroupKey | None = None


class Checker(Protocol):
    """Checks one invariant. Each trial makes its own with the evidence, and reports each event to it when recorded."""

    name: str
    """The name of the invariant in a counterexample, such as `OneIncarnation`."""

    def changed(self, change: ObjectChange, at: datetime) -> Iterable[Violation]:
        """After each revision."""
        ...

    def requested(self, record: RequestRecord) -> Iterable[Violation]:
        """After each request of a controller process."""
        ...

    def ended(self) -> Iterable[Violation]:
        """When the trial is over."""
        ...
