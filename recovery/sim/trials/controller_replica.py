"""A replica of the controller: it runs one process after the other, like a pod of a Deployment."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from recovery.ports import ApiClient, Clock
from recovery.sim.trials.controller_process import ControllerProcess
from recovery.sim.trials.trial_evidence import ProcessLife, TrialEvidence


class Replica:
    """Starts a process, waits for its end, starts the next."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        evidence: TrialEvidence,
        connect: Callable[["Replica", ControllerProcess], ApiClient],
        *,
        lease_namespace: str = "recovery-system",
    ) -> None:
        self.name = name
        self._lease_namespace = lease_namespace
        self.requests = 0
        """How many requests its processes have begun."""
        self.lines = 0
        """How many lines their watches have received."""
        self.process: ControllerProcess | None = None
        """The process that runs. None: none does."""
        self._clock = clock
        self._evidence = evidence
        self._connect = connect
        self._stopping = False
        self._place = 0
        """Index of its newest process among the processes of the evidence."""

    async def run(self) -> None:
        """Runs until `stop` is called and the process that runs then has ended."""
        number = 0
        while not self._stopping:
            process = self.process = ControllerProcess(
                self.name, number, self._clock, self._evidence, lease_namespace=self._lease_namespace
            )
            life = ProcessLife(self.name, number, self._clock.now())
            self._place = len(self._evidence.processes)
            self._evidence.processes.append(life)
            await process.run(self._connect(self, process))
            self._evidence.processes[self._place] = replace(life, ended_at=self._clock.now(), how=process.how)
            self.process = None
            number += 1
            if not self._stopping:
                await self._clock.sleep(process.restart_seconds)

    def abandon(self, how: str) -> None:
        """Records how the trial ended its process, which still ran after a request to stop."""
        last = self._evidence.processes[self._place]
        self._evidence.processes[self._place] = replace(last, ended_at=self._clock.now(), how=how)

    def stop(self) -> None:
        """Sends SIGTERM to the process. No process starts after it."""
        self._stopping = True
        if self.process is not None:
            self.process.stop()


async def never() -> None:
    """Never returns: what a dead process waits for."""
    await asyncio.get_running_loop().create_future()
