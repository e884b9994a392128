"""The ranks of a training, and the rounds in which they train together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from recovery.sim.kubelets.processes import ContainerProcess, Exit
from recovery.sim.timers import Timer, Timers

NCCL_TIMEOUT = Exit(134, message="Watchdog caught collective operation timeout")
JOIN_TIMEOUT = Exit(1, message="rendezvous timed out: not all ranks joined")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How every training behaves."""

    step_seconds: float = 0.1
    checkpoint_every_steps: int = 100
    total_steps: int | None = None
    """None: it trains until it is stopped."""
    total_steps_of: Mapping[str, int] = field(default_factory=dict)
    """Of single trainings, by namespace and name joined by a slash."""
    nccl_timeout_seconds: float = 600.0
    """From the loss of a rank until a survivor dies of it."""
    nccl_jitter_seconds: float = 5.0
    """Each survivor's own deviation from that, at most, either way."""
    join_timeout_seconds: float = 600.0
    """A rank that waited this long for the others exits with 1."""
    term_seconds: float = 0.2
    """From SIGTERM to the exit, in a process that heeds it."""
    reports_every_seconds_of: Mapping[str, float] = field(default_factory=dict)
    """Of single trainings, by namespace and name joined by a slash: how often rank 0 reports progress, as transformers
    does where the gate TrainJobStatus of Trainer is on. One that is not here reports none."""
    initializer_seconds: float = 1.0
    """What an initializer takes before it exits with 0."""


class RankState(StrEnum):
    WAITING = "Waiting"
    TRAINING = "Training"
    HUNG = "Hung"
    LEAVING = "Leaving"
    """It has got SIGTERM and will exit."""


@dataclass(eq=False)
class Rank:
    """The process of one completion index in one incarnation."""

    process: ContainerProcess
    group: "Group"
    index: int
    state: RankState = RankState.WAITING
    round: "Round | None" = None
    """None: it has not met the others."""
    death: Timer | None = None
    """The timer that ends it, if one runs."""

    def die_after(self, timers: Timers, seconds: float, how: Exit) -> None:
        """Set its end, in place of one that was set before."""
        if self.death:
            self.death.cancel()
        self.death = timers.after(seconds, lambda: self.process.end(how))


class TrainingOutcome(StrEnum):
    BROKEN = "Broken"
    """A rank was lost before the last step."""
    FINISHED = "Finished"


@dataclass(eq=False)
class Round:
    """What a training does from one meeting of all its ranks until it loses one or ends."""

    training: str
    job_uids: tuple[str, ...]
    """One of each member Job of the JobSet: the identity of what formed it."""
    size: int
    formed_at: datetime
    from_step: int
    step_seconds: float
    total_steps: int | None
    ended_at: datetime | None = None
    """When it made its last step. None: it goes on."""
    ranks: list[Rank] = field(default_factory=list, repr=False)
    """None once it has an outcome: rounds are remembered, and processes with their pods need not be."""
    outcome: "TrainingOutcome | None" = None
    """None: it goes on, or a rank of it got SIGTERM and lives yet."""
    next_checkpoint: Timer | None = field(default=None, repr=False)
    finish: Timer | None = field(default=None, repr=False)
    next_report: Timer | None = field(default=None, repr=False)

    @property
    def job_uid(self) -> str:
        """Of the first member: the only one, but in trainings of several Jobs."""
        return self.job_uids[0]

    def step_at(self, at: datetime) -> int:
        """Steps done at that moment, those of the rounds before included."""
        elapsed = (min(at, self.ended_at) if self.ended_at else at) - self.formed_at
        # A thousandth of a step forgives what rounding to microseconds takes away.
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
    """Which of the JobSet's Jobs it is: the ReplicatedJob and the index, as in `node-0`."""
    members: tuple[str, ...] | None
    """All Jobs of the JobSet that have to meet, itself included. None: not known yet."""
    size: int | None
    """How many ranks of this Job have to meet. None: not known yet."""
    size_is_literal: bool
    """The pods name it; otherwise the Job does, and may change it."""
    ranks: dict[ContainerProcess, Rank] = field(default_factory=dict)
    waiting: dict[int, Rank] = field(default_factory=dict)
    """The newest waiting rank of each index."""

    @property
    def complete(self) -> bool:
        """All ranks of this Job wait."""
        size = self.size or 0
        return 0 < size <= len(self.waiting) and all(index in self.waiting for index in range(size))

    @property
    def asks(self) -> bool:
        """Only the API server knows whom it waits for."""
        return bool(self.waiting) and (self.members is None or not self.size_is_literal)
