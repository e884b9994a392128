"""One job of 128 nodes under one strategy, from event to event: where its GPU-hours go.

The group trains, is torn down, waits for nodes, and comes up. Each stretch of time is charged once, when it ends: the
nodes of the group to the account of what the group did, the rest of the 128 to the reduced size. So the accounts add up
to the GPU-hours bought.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.bench.gpu_hours.failures import DAY_SECONDS, GPUS_PER_NODE, Failure

NODES = 128
DAYS = 30.0
NEVER = float("inf")


class Account(StrEnum):
    """Where a GPU-hour went."""

    USEFUL = "useful"
    """Training steps that are kept."""
    REWORK = "rework"
    """Steps since the last checkpoint, lost to a failure."""
    RESTART = "restart"
    """The failure is detected, and the group is torn down and brought up again."""
    WAITING = "waiting"
    """The group is down and has too few nodes."""
    RESIZE = "resize"
    """The cost of changing the size: the rework and the restart of a growth, and the second teardown of a shrink."""
    REDUCED = "reduced"
    """Nodes that a smaller group does not use: the broken one, and healthy ones beyond the largest allowed size."""
    SPARES = "spares"
    """Nodes beyond 128, whichever machines they are: that many are always idle or broken."""


@dataclass(frozen=True)
class Costs:
    """How long the parts of a coordinated restart take: the upper ends of what docs/benchmarks.md has for real nodes.

    That run has three ranks on two busy cores, and nearly all of its rendezvous time is the import of torch. For 128
    pods the README has a fresh start at stock limits, used here for the scheduling.
    """

    decided_seconds: float = 0.6
    tearing_down_seconds: float = 5.2
    scheduling_seconds: float = 5.9
    starting_seconds: float = 3.9
    rendezvous_seconds: float = 27.0
    resume_seconds: float = 300.0
    """Until the first new step: the checkpoint is read, kernels are compiled, the data is found again. An assumption.

    Llama 3 had an interruption every 3.1 h and an effective training time above 90 %. So one costs less than 18.6 min,
    rework included: the order of magnitude fits.
    """
    checkpoint_seconds: float = 1800.0
    """Between two checkpoints. By Young's formula, sqrt(2 x stall x MTBF), it is the best interval for a stall of 9 s,
    as the MTBF of 1,024 GPUs at Llama 3's rate is 49.5 h. The stalls are not counted: they are the same for all
    strategies."""
    growth_saves: bool = False
    """The training writes a checkpoint when a growth ends it, so no step is lost."""

    @property
    def down_seconds(self) -> float:
        return self.decided_seconds + self.tearing_down_seconds

    @property
    def up_seconds(self) -> float:
        return self.scheduling_seconds + self.starting_seconds + self.rendezvous_seconds + self.resume_seconds


@dataclass(frozen=True)
class Elastic:
    """A policy's `spec.elastic`. `recovery/core/incident/sizes.py` defines what it means."""

    min_nodes: int = 96
    multiple_of: int = 1
    shrink_after_seconds: float = 120.0
    grow_back_after_seconds: float = 300.0

    def largest(self, at_most: int) -> int | None:
        """The largest allowed size that needs no more than this many nodes. The full size is always allowed."""
        if at_most >= NODES:
            return NODES
        nodes = at_most - at_most % self.multiple_of
        return nodes if nodes >= self.min_nodes else None


@dataclass(frozen=True)
class Strategy:
    """The response to a lost node."""

    name: str
    spares: int = 0
    elastic: Elastic | None = None
    """None: the group waits for all of its nodes."""


@dataclass(frozen=True)
class World:
    """What the strategies of one comparison share, besides the failures."""

    repair_seconds: float
    """Mean time from the failure of a machine until it can be used again."""
    costs: Costs = Costs()
    idle_machines_fail: bool = True
    """Machines also fail while the group is down or they are spares. False: only those that a running group uses."""
    days: float = DAYS


@dataclass(frozen=True)
class Outcome:
    """The result of one job."""

    gpu_hours: dict[Account, float]
    sizes: frozenset[int]
    """The sizes at which it trained, in nodes."""
    failures: int
    """Failures that hit the group."""
    resizes: int

    @property
    def bought(self) -> float:
        return sum(self.gpu_hours.values())

    @property
    def useful_share(self) -> float:
        """Useful GPU-hours as a share of all that were bought."""
        return self.gpu_hours[Account.USEFUL] / self.bought


class _Phase(StrEnum):
    TRAINING = "training"
    GOING_DOWN = "going down"
    WAITING = "waiting"
    COMING_UP = "coming up"


_PLACED_IN_SECONDS = 5.0
"""The controller gives the scheduler this long before it considers a node missing."""


class _Job:
    """The group, its machines, and its accounts."""

    def __init__(self, strategy: Strategy, world: World) -> None:
        self.strategy, self.world, self.costs = strategy, world, world.costs
        self.machines = NODES + strategy.spares
        self.broken: set[int] = set()
        self.repairs: list[tuple[float, int]] = []
        self.node_seconds = dict.fromkeys(Account, 0.0)
        self.now, self.since, self.due = 0.0, 0.0, NEVER
        self.phase = _Phase.TRAINING
        self.pays = Account.RESTART
        """The account charged for the teardown."""
        self.comes_up_for = Account.RESTART
        """The account charged for coming up."""
        self.size = NODES
        self.members = set(range(NODES))
        self.incident_at = 0.0
        self.room_since: float | None = None
        self.sizes = {NODES}
        self.failures = 0
        self.resizes = 0

    @property
    def healthy(self) -> int:
        return self.machines - len(self.broken)

    # --- accounts ----------------------------------------------------------------------------------------------------

    def _enter(self, phase: _Phase, due: float, *, rework: Account | None = None) -> None:
        """Charge the phase that ends. `rework`: account of the steps since the last checkpoint. None: they count."""
        seconds = self.now - self.since
        if self.phase is _Phase.TRAINING:
            lost = seconds % self.costs.checkpoint_seconds if rework is not None else 0.0
            self.node_seconds[Account.USEFUL] += (seconds - lost) * self.size
            self.node_seconds[rework or Account.REWORK] += lost * self.size
        else:
            account = {
                _Phase.GOING_DOWN: self.pays,
                _Phase.WAITING: Account.WAITING,
                _Phase.COMING_UP: self.comes_up_for,
            }[self.phase]
            self.node_seconds[account] += seconds * self.size
        self.node_seconds[Account.REDUCED] += seconds * (NODES - self.size)
        self.phase, self.since, self.due = phase, self.now, due

    def outcome(self) -> Outcome:
        self._enter(self.phase, NEVER)
        self.node_seconds[Account.SPARES] = self.strategy.spares * self.now
        hours = {each: self.node_seconds[each] * GPUS_PER_NODE / 3600 for each in Account}
        return Outcome(hours, frozenset(self.sizes), self.failures, self.resizes)

    # --- events ------------------------------------------------------------------------------------------------------

    def fails(self, failure: Failure) -> None:
        busy = self.phase in {_Phase.TRAINING, _Phase.COMING_UP}
        if not failure.cause.loses_node:
            if busy and failure.place < self.size:
                self._interrupted(failure)
            return
        machine = failure.place
        used = busy and machine in self.members
        if machine >= self.machines or machine in self.broken or not (used or self.world.idle_machines_fail):
            return
        self.broken.add(machine)
        heapq.heappush(self.repairs, (self.now + failure.repairs * self.world.repair_seconds, machine))
        if used:
            self._interrupted(failure)
        else:
            self._watch_room()

    def repaired(self, machine: int) -> None:
        self.broken.remove(machine)
        if self.phase is _Phase.WAITING:
            self._place()
        self._watch_room()

    def is_due(self) -> None:
        """The phase has ended, or a wait is over."""
        if self.phase is _Phase.GOING_DOWN:
            self._enter(_Phase.WAITING, NEVER)
            self._place()
        elif self.phase is _Phase.WAITING:
            self._place()
        elif self.phase is _Phase.COMING_UP:
            self._enter(_Phase.TRAINING, NEVER)
            self.sizes.add(self.size)
            self.room_since = None
            self._watch_room()
        else:
            self._grow()

    def _interrupted(self, failure: Failure) -> None:
        """The group goes down. A failure while it comes up extends the incident; during a growth it opens a new one."""
        self.failures += 1
        if self.phase is _Phase.TRAINING or self.comes_up_for is Account.RESIZE:
            self.incident_at = self.now
        due = self.now + failure.cause.detected_seconds + self.costs.down_seconds
        self._enter(_Phase.GOING_DOWN, due, rework=Account.REWORK)
        self.pays = self.comes_up_for = Account.RESTART

    def _place(self) -> None:
        """Come up if there are enough nodes; else shrink if it is time; else keep waiting."""
        elastic = self.strategy.elastic
        if self.healthy >= self.size:
            self._enter(_Phase.COMING_UP, self.now + self.costs.up_seconds)
            kept = sorted(set(range(self.machines)) - self.broken, key=lambda each: (each not in self.members, each))
            self.members = set(kept[: self.size])
            return
        if elastic is None:
            return
        shrinks_at = max(self.incident_at + elastic.shrink_after_seconds, self.since + _PLACED_IN_SECONDS)
        nodes = elastic.largest(self.healthy)
        if self.now < shrinks_at:
            self.due = shrinks_at
        elif nodes is None:
            self.due = NEVER
        else:
            self._resize(nodes)

    def _watch_room(self) -> None:
        """Track since when there have been enough nodes for a larger size, without a gap."""
        elastic = self.strategy.elastic
        if elastic is None or self.phase is not _Phase.TRAINING:
            return
        if (elastic.largest(self.healthy) or 0) <= self.size:
            self.room_since, self.due = None, NEVER
        elif self.room_since is None:
            self.room_since, self.due = self.now, self.now + elastic.grow_back_after_seconds

    def _grow(self) -> None:
        elastic = self.strategy.elastic
        nodes = elastic.largest(self.healthy) if elastic is not None else None
        assert nodes is not None, "there is room, or nothing would be due"
        self.incident_at = self.now
        self.comes_up_for = Account.RESIZE
        self._resize(nodes)

    def _resize(self, nodes: int) -> None:
        """Start another teardown. The group comes up with this many nodes afterwards."""
        self.resizes += 1
        rework = None if self.costs.growth_saves else Account.RESIZE
        self._enter(_Phase.GOING_DOWN, self.now + self.costs.down_seconds, rework=rework)
        self.pays, self.size = Account.RESIZE, nodes


def play(strategy: Strategy, world: World, failures: Sequence[Failure]) -> Outcome:
    """Play the job from its start, which is not charged, to the end of the last day."""
    job, position = _Job(strategy, world), 0
    end = world.days * DAY_SECONDS
    while True:
        fails_at = failures[position].at_seconds if position < len(failures) else NEVER
        repaired_at = job.repairs[0][0] if job.repairs else NEVER
        job.now = min(fails_at, repaired_at, job.due, end)
        if job.now == end:
            return job.outcome()
        if job.now == repaired_at:
            job.repaired(heapq.heappop(job.repairs)[1])
        elif job.now == job.due:
            job.is_due()
        else:
            job.fails(failures[position])
            position += 1
