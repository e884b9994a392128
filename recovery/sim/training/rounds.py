"""The ranks of a training, and the rounds in which they train together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from recovery.scenario.modelled_job import TrainingKind
from recovery.sim.kubelets.processes import ContainerProcess, Exit
from recovery.sim.timers import Timer, Timers

NCCL_TIMEOUT = Exit(134, message="Watchdog caught collective operation timeout")
JOIN_TIMEOUT = Exit(1, message="rendezvous timed out: not all ranks joined")


ABORT = Exit(1, message="mpirun: a process has lost its connection to a worker")


@dataclass(frozen=True)
class Saving:
    """What a process that trains does when it gets SIGTERM: it trains on for `seconds` while it saves, and exits."""

    seconds: float
    code: int


LAUNCHER_MEMBER = "launcher-0"
"""The Job of the launcher, in a training of that kind (`Group.member`)."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How every training behaves."""

    step_seconds: float = 0.1
    checkpoint_every_steps: int = 100
    total_steps: int | None = None
    """None: a training runs until it is stopped."""
    total_steps_of: Mapping[str, int] = field(default_factory=dict)
    """`total_steps` of single trainings, by `namespace/name`."""
    nccl_timeout_seconds: float = 600.0
    """From the loss of a rank until the surviving ranks die of it."""
    nccl_jitter_seconds: float = 5.0
    """Each survivor's maximum deviation from that, in either direction."""
    join_timeout_seconds: float = 600.0
    """A rank that waited this long for the others exits with 1."""
    term_seconds: float = 0.2
    """From SIGTERM to the exit of a process that handles it."""
    reports_every_seconds_of: Mapping[str, float] = field(default_factory=dict)
    """By `namespace/name` of the training: how often rank 0 reports progress, as transformers does if Trainer's feature
    gate TrainJobStatus is on. Trainings that are not listed do not report."""
    kinds_of: Mapping[str, TrainingKind] = field(default_factory=dict)
    """By `namespace/name` of the training. Those that are not listed are Required."""
    savings_of: Mapping[str, Saving] = field(default_factory=dict)
    """By `namespace/name` of the training. The ranks of those that are not listed exit within `term_seconds`."""
    abort_seconds: float = 1.0
    """From the loss of a worker to the exit of its launcher."""
    initializer_seconds: float = 1.0
    """How long an initializer runs before it exits with 0."""


class RankState(StrEnum):
    WAITING = "Waiting"
    TRAINING = "Training"
    HUNG = "Hung"
    LEAVING = "Leaving"
    """The rank got SIGTERM and will exit."""


@dataclass(eq=False)
class Rank:
    """The process of one completion index in one incarnation."""

    process: ContainerProcess
    group: "Group"
    index: int
    state: RankState = RankState.WAITING
    round: "Round | None" = None
    """None: the rank has not met the others."""
    death: Timer | None = None
    """The timer that will end the process, if one is set."""

    @property
    def launches(self) -> bool:
        """It is the launcher of its training, if that is of the kind."""
        return self.group.member == LAUNCHER_MEMBER

    def die_after(self, timers: Timers, seconds: float, how: Exit) -> None:
        """End the process after that time, instead of at the earlier set time."""
        if self.death:
            self.death.cancel()
        self.death = timers.after(seconds, lambda: self.process.end(how))


class TrainingOutcome(StrEnum):
    BROKEN = "Broken"
    """A rank was lost before the last step."""
    FINISHED = "Finished"


@dataclass(eq=False)
class Round:
    """A training from one meeting of all its ranks until it loses one or ends."""

    training: str
    job_uids: tuple[str, ...]
    """The UIDs of the JobSet's member Jobs, which identify the incarnation that formed the round."""
    size: int
    formed_at: datetime
    from_step: int
    step_seconds: float
    total_steps: int | None
    ended_at: datetime | None = None
    """When its steps stopped. None: they continue."""
    ranks: list[Rank] = field(default_factory=list, repr=False)
    """Empty once the round has an outcome: rounds are kept in memory, their processes and pods need not be."""
    outcome: "TrainingOutcome | None" = None
    """None: the round continues, or one of its ranks got SIGTERM and still lives."""
    next_checkpoint: Timer | None = field(default=None, repr=False)
    finish: Timer | None = field(default=None, repr=False)
    next_report: Timer | None = field(default=None, repr=False)

    @property
    def job_uid(self) -> str:
        """The UID of the first member. Only trainings with several Jobs have more than one."""
        return self.job_uids[0]

    def step_at(self, at: datetime) -> int:
        """Steps done at that moment, including those of earlier rounds."""
        elapsed = (min(at, self.ended_at) if self.ended_at else at) - self.formed_at
        # A thousandth of a step compensates for the rounding to microseconds.
        step = self.from_step + int(max(elapsed, timedelta()).total_seconds() / self.step_seconds + 0.001)
        return step if self.total_steps is None else min(step, max(self.total_steps, self.from_step))


@dataclass(eq=False)
class Group:
    """The ranks of one Job UID."""

    job_uid: str
    job_name: str
    namespace: str
    training: str
    member: str
    """Which Job of the JobSet it is: the ReplicatedJob and the index, as in `node-0`."""
    members: tuple[str, ...] | None
    """All Jobs of the JobSet that must meet, including this one. None: not known yet."""
    size: int | None
    """How many ranks of this Job must meet. None: not known yet."""
    size_is_literal: bool
    """The size comes from the pods. Otherwise it comes from the Job, which may change it."""
    ranks: dict[ContainerProcess, Rank] = field(default_factory=dict)
    waiting: dict[int, Rank] = field(default_factory=dict)
    """The newest waiting rank of each index."""

    @property
    def complete(self) -> bool:
        """All ranks of this Job are waiting."""
        size = self.size or 0
        return 0 < size <= len(self.waiting) and all(index in self.waiting for index in range(size))

    @property
    def asks(self) -> bool:
        """Its ranks wait, and only the API server knows how many must meet."""
        return bool(self.waiting) and (self.members is None or not self.size_is_literal)
