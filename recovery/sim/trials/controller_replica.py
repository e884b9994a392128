"""A replica of the controller: one process after the other, as a Deployment's pod has them."""

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
    ) -> None:
        self.name = name
        self.requests = 0
        """How many requests its processes have begun."""
        self.lines = 0
        """How many lines their watches have got."""
        self.process: ControllerProcess | None = None
        """The one that runs. None: none does."""
        self._clock = clock
        self._evidence = evidence
        self._connect = connect
        self._stopping = False
        self._place = 0
        """Of its newest process among all of the evidence."""

    async def run(self) -> None:
        """Until `stop`, and the end of the process that runs then."""
        number = 0
        while not self._stopping:
            process = self.process = ControllerProcess(self.name, number, self._clock, self._evidence)
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
        """Its process runs on after a request to stop: note how that ended."""
        last = self._evidence.processes[self._place]
        self._evidence.processes[self._place] = replace(last, ended_at=self._clock.now(), how=how)

    def stop(self) -> None:
        """SIGTERM, and no process after that."""
        self._stopping = True
        if self.process is not None:
            self.process.stop()


async def never() -> None:
    """What a dead process waits for."""
    await asyncio.get_running_loop().create_future()
