"""Controller processes as a trial runs them: the production program, which restarts after something ends it.

A killed process writes nothing more, no matter what its code still does during its shutdown, because its transport
never answers again. A frozen process stops at the next point where it waits, and later continues as if nothing had
happened.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from recovery.controller.leadership import Elector
from recovery.core.model.facts import GroupKey
from recovery.kube.client import KubeApiClient
from recovery.manager import Manager
from recovery.ports import ApiClient, Clock
from recovery.sim.trials.trial_evidence import FailedReconcile, TrialEvidence
from recovery.telemetry.observer import Telemetry

RESTART_SECONDS = 2.0
"""From the end of a process that was not killed until its pod starts the next one."""


class ProcessTelemetry(Telemetry):
    """Counts failed reconciles, and also reports them to the trial."""

    def __init__(self, clock: Clock, failed: Callable[[GroupKey, str], None]) -> None:
        super().__init__(clock=clock, version="trial")
        self._failed = failed

    def reconcile_finished(self, key: GroupKey, seconds: float, error: str | None) -> None:
        super().reconcile_finished(key, seconds, error)
        if error is not None:
            self._failed(key, error)

    def samples(self) -> Mapping[str, float]:
        """The samples that /metrics shows."""
        return {
            _series(sample.name, sample.labels): sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
        }


def _series(name: str, labels: Mapping[str, str]) -> str:
    of_labels = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{of_labels}}}" if of_labels else name


class ProcessClock:
    """`ports.Clock` of one process. Its time of day may be wrong, and no sleep ends while the process is frozen."""

    def __init__(self, clock: Clock, right_from: Callable[[], datetime]) -> None:
        """`right_from`: when the healing begins, as far as that is known. The time of day is right from then on."""
        self._clock = clock
        self._right_from = right_from
        self._frozen_until_seconds = 0.0
        self.off_seconds = 0.0
        """How far the wall clock is ahead, until the healing."""

    def now(self) -> datetime:
        now = self._clock.now()
        return now + timedelta(seconds=self.off_seconds) if now < self._right_from() else now

    def monotonic_seconds(self) -> float:
        return self._clock.monotonic_seconds()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self.thawed()

    def freeze(self, seconds: float) -> None:
        self._frozen_until_seconds = max(self._frozen_until_seconds, self.monotonic_seconds() + seconds)

    async def thawed(self) -> None:
        """Returns at once, unless the process is frozen."""
        while (left_seconds := self._frozen_until_seconds - self.monotonic_seconds()) > 0:
            await self._clock.sleep(left_seconds)


class ControllerProcess:
    """One process of a replica. It runs once."""

    def __init__(
        self,
        actor: str,
        number: int,
        clock: Clock,
        evidence: TrialEvidence,
        *,
        lease_namespace: str = "recovery-system",
    ) -> None:
        self._lease_namespace = lease_namespace
        self.actor = actor
        """The replica's name."""
        self.number = number
        """Number of the replica's process."""
        self.clock = ProcessClock(clock, lambda: evidence.healing_from)
        self.restart_seconds = RESTART_SECONDS
        """From its end until the next one starts."""
        self.how = ""
        """Why it ended: killed, stopped, or the exception. Empty: it runs."""
        self.telemetry = ProcessTelemetry(self.clock, self._reconcile_failed)
        self._trial_clock = clock
        self._evidence = evidence
        self._stop = asyncio.Event()
        self._killed = asyncio.Event()

    def kill(self, restart_seconds: float) -> None:
        """Ends the process immediately, in the middle of its work."""
        if not self.how:
            self.how = "killed"
            self.restart_seconds = restart_seconds
            self._killed.set()

    def stop(self) -> None:
        """SIGTERM: the process ends when its work is done."""
        self._stop.set()

    async def run(self, transport: ApiClient) -> None:
        """Runs until the process is killed, stops or fails. `how` says which."""
        seed, lease_seconds = self._evidence.plan.seed, self._evidence.plan.lease_seconds
        entropy = random.Random(f"{seed}/{self.actor}/{self.number}")
        client = KubeApiClient(transport, clock=self.clock, entropy=entropy)
        elector = Elector(
            api=client,
            clock=self.clock,
            entropy=entropy,
            namespace=self._lease_namespace,
            identity=f"{self.actor}_{self.number}",
            lease_seconds=lease_seconds,
        )
        program = Manager(
            client,
            clock=self.clock,
            entropy=entropy,
            telemetry=self.telemetry,
            leadership=elector,
            drills=self._evidence.plan.drills,
        )
        running = asyncio.create_task(program.run(self._stop))
        killed = asyncio.create_task(self._killed.wait())
        try:
            await asyncio.wait({running, killed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Do not wait for the rest of a killed process: some of it waits for responses that never come.
            running.cancel()
            killed.cancel()
        if not self.how:
            error = asyncio.CancelledError() if running.cancelled() else running.exception()
            ended = "stopped" if self._stop.is_set() else "ended, though nothing had stopped it"
            self.how = ended if error is None else f"{type(error).__name__}: {error}"

    def _reconcile_failed(self, key: GroupKey, error: str) -> None:
        if not self.how:
            self._evidence.failed_reconciles.append(FailedReconcile(self._trial_clock.now(), self.actor, key, error))
