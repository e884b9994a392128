"""The scene of the demo: the cluster, the controller in it, and four incidents one after the other.

The scene causes the failures of the job and waits for the result. It takes no part in the recovery. The audience gets
sentences (`Narrator`) and can see the state at any time (`moment`).
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from string import ascii_lowercase
from typing import Protocol

import msgspec

from recovery.core.model.ledger import Closing, Incident, Ledger, Phase
from recovery.ports import RECOVERY_GROUPS, RECOVERY_INCIDENTS, Clock, Entropy
from recovery.sim.api.kinds.kind import Body
from recovery.sim.demo.objects import BUDGET_LIMIT, BUDGET_WINDOW, NAMESPACE, TRAINING, Restarter
from recovery.sim.demo.rank_board import RankBoard, RankLetter
from recovery.sim.demo.stage import (
    GPUS_PER_RANK,
    INDEX_LABEL,
    MANAGER_REQUESTS_PER_SECOND,
    NODE_GRACE_SECONDS,
    RANKS,
    SPARES,
    Stage,
    StageFailure,
)
from recovery.sim.demo.verdict import LOOP, RECOVERIES, Course

CALM_SECONDS = 4.0
"""The shortest time of training between two incidents. It is longer than the policy's resetAfter, so the backoff starts
again with each incident."""
ANNOUNCED_SECONDS = 1.0
"""From the announcement of an incident until it happens."""
CRASH_AFTER_SECONDS = 1.0
"""From when all pods are Ready until the looping rank crashes. The recovery before it is over by then."""
WAIT_SECONDS = 30.0
"""How long the play waits for each expected event. Then it ends."""
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class ReportedIncident:
    """An incident as the controller records it."""

    label: str
    """The number of the incident in the play, with a letter if it led to several incidents of the controller."""
    incident: Incident
    closing: Closing | None
    """None: the incident is open."""


@dataclass(frozen=True)
class SceneMoment:
    ranks: list[RankLetter]
    phase: Phase
    sentence: str
    """The controller's current message. Empty: it has written none yet."""
    idle_gpus: int
    idle_gpu_seconds: float
    """All idle GPU-seconds by the ledger, up to now."""
    restarts: int
    budget_left: int
    budget_limit: int


class Narrator(Protocol):
    def say(self, text: str) -> None: ...

    def announce(self, text: str) -> None:
        """An incident that is about to happen."""
        ...

    def incident(self, reported: ReportedIncident) -> None:
        """The incident has closed, or is held."""
        ...


class _StuckError(Exception):
    """Something did not happen in time. The message says what."""


class Scene:
    """Plays once, within the context of `running`."""

    def __init__(self, clock: Clock, entropy: Entropy, *, ranks: int = RANKS) -> None:
        self._clock = clock
        self._ranks = ranks
        self._stage = Stage(clock, entropy, Restarter.CONTROLLER, ranks=ranks)
        self.cluster = self._stage.cluster
        self.course = Course(training=TRAINING, ranks=ranks, restarts_allowed=BUDGET_LIMIT - RECOVERIES)
        self.reported: list[ReportedIncident] = []
        """The incidents so far, in order."""
        self._board = RankBoard(self.cluster.trace, TRAINING, ranks)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the cluster and the controller in it. Raises, as an exception group, what fails in either."""
        async with self._stage.running():
            yield

    # What the audience sees.

    def moment(self) -> SceneMoment:
        ledger = self._ledger()
        idle_gpu_seconds = sum(ledger.totals.idle_gpu_seconds.values())
        incident = ledger.incident
        if incident is not None and ledger.holds_gpus_idle and incident.phases[-1].ended_at is None:
            lasting = self._clock.now() - incident.phases[-1].started_at
            idle_gpu_seconds += lasting.total_seconds() * incident.gpus
        budget = ledger.budget
        pending = (pod["metadata"] for pod in self._stage.pods() if pod["status"]["phase"] == "Pending")
        starting = {int(metadata["labels"][INDEX_LABEL]) for metadata in pending}
        return SceneMoment(
            ranks=self._board.states(starting),
            phase=ledger.phase,
            sentence=ledger.message,
            idle_gpus=ledger.idle_gpus,
            idle_gpu_seconds=idle_gpu_seconds,
            restarts=ledger.totals.restarts,
            budget_left=budget.remaining if budget.limit else BUDGET_LIMIT,
            budget_limit=BUDGET_LIMIT,
        )

    def held(self) -> bool:
        """The ledger says that the group is Held."""
        return self._ledger().phase is Phase.HELD

    def _ledger(self) -> Ledger:
        """The ledger of the job; an empty one before the first incident."""
        for group in self.cluster.server.objects(RECOVERY_GROUPS, NAMESPACE):
            return msgspec.convert(group.get("status") or {}, Ledger)
        return Ledger()

    # The play.

    async def play(self, narrator: Narrator) -> None:
        """Plays to the end, or until something does not happen in time. `course` says which."""
        try:
            await self._open(narrator)
            for number, failure in enumerate(StageFailure, start=1):
                await self._recover(narrator, number, failure)
            await self._crash_again_and_again(narrator)
        except _StuckError as stuck:
            self.course.stuck = str(stuck)

    async def _open(self, narrator: Narrator) -> None:
        narrator.say(
            "in this one process: a modelled cluster (API server, controller-manager, scheduler, JobSet, Trainer,"
            f" {self._ranks + SPARES} nodes of {GPUS_PER_RANK} GPUs), and the production controller, unchanged"
        )
        narrator.say(
            f"faster than stock: {MANAGER_REQUESTS_PER_SECOND:,} requests a second, not 20; silent nodes are given up"
            f" after {NODE_GRACE_SECONDS:g} s, not 50; pods start within 1 s"
        )
        narrator.say(
            f"TrainJob {TRAINING}: {self._ranks} pods x {GPUS_PER_RANK} GPUs = {self._stage.gpus:,} GPUs; policy:"
            f" Enforce, {BUDGET_LIMIT} recoveries in {BUDGET_WINDOW}"
        )
        await self._stage.set_up()
        await self._whole("after the job was made", rounds=1)
        narrator.say(f"all {self._ranks} ranks train")
        await self._clock.sleep(CALM_SECONDS / 2)

    async def _recover(self, narrator: Narrator, number: int, failure: StageFailure) -> None:
        await self._announced(narrator, f"incident {number}: {self._stage.about(failure)}")
        self.course.failures.append(self._clock.now())
        self._stage.strike(failure)
        await self._whole(f"after incident {number}", rounds=number + 1)
        await self._closed(narrator, str(number))

    async def _crash_again_and_again(self, narrator: Narrator) -> None:
        index = self._ranks - 1
        await self._announced(
            narrator,
            f"incident {LOOP}: rank {index} exits with code 1 soon after each start: a crash loop",
        )
        self.course.loop_at = self._clock.now()
        rounds = len(self._stage.rounds())
        # One crash more than the budget has restarts, and one more if the budget does not hold; the verdict reports it.
        for crash in range(self.course.restarts_allowed + 2):
            if crash:
                await self._clock.sleep(CRASH_AFTER_SECONDS)
            label = f"{LOOP}{ascii_lowercase[crash]}"
            self.course.crashes.append(self._clock.now())
            self._stage.exit([index])
            await self._until(
                partial(self._answered, rounds=rounds + crash + 1),
                f"after its crash {label} the group neither met again nor was it held",
            )
            if self.held():
                break
            await self._closed(narrator, label)
        if self.held():
            ledger = self._ledger()
            assert ledger.incident is not None, "Held is a phase of an incident"
            self._report(narrator, ReportedIncident(label, ledger.incident, None))
            narrator.say(f"held: watching for {CALM_SECONDS:g} s that nothing is restarted")
            await self._clock.sleep(CALM_SECONDS)

    async def _announced(self, narrator: Narrator, text: str) -> None:
        narrator.announce(text)
        await self._clock.sleep(ANNOUNCED_SECONDS)

    async def _closed(self, narrator: Narrator, label: str) -> None:
        """Waits for the record of the incident, reports it, and then lets the group train for a moment."""
        number = len(self.reported)
        await self._until(
            lambda: len(self._records()) > number, f"incident {label}: the controller did not close it in its record"
        )
        spec = self._records()[number]["spec"]
        self._report(narrator, ReportedIncident(label, msgspec.convert(spec, Incident), msgspec.convert(spec, Closing)))
        if not label.startswith(str(LOOP)):
            await self._clock.sleep(CALM_SECONDS - ANNOUNCED_SECONDS)

    def _report(self, narrator: Narrator, reported: ReportedIncident) -> None:
        self.reported.append(reported)
        narrator.incident(reported)

    async def _whole(self, when: str, *, rounds: int) -> None:
        await self._until(
            lambda: self._trains(rounds=rounds), f"{when} the {self._ranks} ranks did not all train together"
        )

    async def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        """Raises _StuckError with `otherwise` after `WAIT_SECONDS`."""
        no_later_than_seconds = self._clock.monotonic_seconds() + WAIT_SECONDS
        while not holds():
            if self._clock.monotonic_seconds() >= no_later_than_seconds:
                raise _StuckError(f"{otherwise} within {WAIT_SECONDS:g} s")
            await self._clock.sleep(POLL_SECONDS)

    # What it reads.

    def _trains(self, *, rounds: int) -> bool:
        """The ranks have met that many times and train, and all their pods are Ready."""
        formed = self._stage.rounds()
        if len(formed) < rounds or formed[-1].ended_at is not None:
            return False
        return sum(_ready(pod) for pod in self._stage.pods()) == self._ranks

    def _answered(self, *, rounds: int) -> bool:
        """The group has dealt with the crash: it trains again, or is held."""
        return self.held() or self._trains(rounds=rounds)

    def _records(self) -> list[Body]:
        """The records of closed incidents, in order."""
        return list(self.cluster.server.objects(RECOVERY_INCIDENTS, NAMESPACE))


def _ready(pod: Body) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
