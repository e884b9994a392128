"""Our agents: light members, and the real barrier in a process of its own."""

import asyncio
import random
import resource
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from recovery.agent._trainjob_recovery.file_limit import RESERVED_FILES
from recovery.agent._trainjob_recovery.server import SPARE_CONNECTIONS
from tests.agent.fake_controller import fake_controller
from tests.bench.child import Child, Event

KEY = "the-uid-of-the-job"
REFORMS = 3
PATIENCE_SECONDS = 300.0
PAUSE_SECONDS = 2.0
"""Between what is measured, so that nothing of the one is left in the other."""


@dataclass(frozen=True)
class Figures:
    """Of one number of agents. Seconds and megabytes depend on the machine."""

    form_seconds: float
    """From the first dial until every member has started epoch 1."""
    reform_seconds: float
    """From the failure of a rank until every member has started the next epoch: the median of some."""
    reform_barrier_cpu_seconds: float
    """What the barrier's process used of it."""
    reconnect_seconds: float
    """From the cut of all links until the last member is welcomed again."""
    rest_mb: float
    peak_mb: float
    """Resident memory of the barrier's process: at the end, and at most."""


def agents_possible(wanted: int) -> int:
    """As many as the hard limit of open files allows the barrier's process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard - RESERVED_FILES - SPARE_CONNECTIONS)


async def measure(agents: int, pause_seconds: float = PAUSE_SECONDS) -> Figures:
    module = "tests.bench.rendezvous"
    with tempfile.TemporaryDirectory(prefix="recovery-bench-") as name:
        folder = Path(name)
        async with fake_controller(folder) as fake:
            (folder / "ca.pem").write_text(fake.controller.ca_pem)
            about = (str(agents), KEY)
            barrier_command = (sys.executable, "-m", f"{module}.barrier_process", *about)
            async with (
                Child.running(*barrier_command, str(fake.controller.port), name) as barrier,
                Child.running(sys.executable, "-m", f"{module}.members_process", *about) as members,
            ):
                return await _Run(agents, barrier, members, pause_seconds).figures()


class _Run:
    def __init__(self, agents: int, barrier: Child, members: Child, pause_seconds: float) -> None:
        self._agents = agents
        self._barrier = barrier
        self._members = members
        self._pause_seconds = pause_seconds

    async def figures(self) -> Figures:
        listening = await self._barrier.said(lambda event: "port" in event, PATIENCE_SECONDS)
        self._members.tell(do="dial", port=listening["port"])
        dialling = await self._said_by_members("dialling", 1)
        formed = await self._runs(1)
        await self._said_by_members("permitted", 1)
        reforms = [await self._reform(number) for number in range(1, REFORMS + 1)]
        reconnect_seconds = await self._reconnect()
        return Figures(
            form_seconds=formed["at"] - dialling["at"],
            reform_seconds=statistics.median(seconds for seconds, _ in reforms),
            reform_barrier_cpu_seconds=statistics.median(cpu_seconds for _, cpu_seconds in reforms),
            reconnect_seconds=reconnect_seconds,
            rest_mb=self._barrier.resident_mb(),
            peak_mb=self._barrier.peak_mb(),
        )

    async def _reform(self, number: int) -> tuple[float, float]:
        """Seconds, and what the barrier's process used of a processor meanwhile."""
        await asyncio.sleep(self._pause_seconds)
        used = self._barrier.cpu_seconds()
        self._members.tell(do="fail", slot=random.Random(number).randrange(self._agents))
        failed = await self._said_by_members("failed", number)
        running = await self._runs(number + 1)
        return running["at"] - failed["at"], self._barrier.cpu_seconds() - used

    async def _reconnect(self) -> float:
        await asyncio.sleep(self._pause_seconds)
        self._members.tell(do="cut")
        cut = await self._said_by_members("cut", 1)
        welcomed = await self._said_by_members("welcomed", 2)
        seconds: float = welcomed["at"] - cut["at"]
        return seconds

    async def _runs(self, epoch: int) -> Event:
        def runs(event: Event) -> bool:
            return (event.get("epoch"), event.get("state")) == (epoch, "running")

        return await self._barrier.said(runs, PATIENCE_SECONDS)

    async def _said_by_members(self, what: str, times: int) -> Event:
        """The event that is said for the so-manieth time."""

        def found(events: object) -> Event | None:
            of_kind = [event for event in self._members.events if event["event"] == what]
            return of_kind[times - 1] if len(of_kind) >= times else None

        event = await self._members.all_said(found, PATIENCE_SECONDS)
        assert isinstance(event, dict)
        return event
