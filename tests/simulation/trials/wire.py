"""One controller process's connection to a server with few kinds, with faults on it. No program runs in the process."""

import asyncio
import functools
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from recovery import api_verbs
from recovery.kube.client import KubeApiClient
from recovery.kube.informer import Informer
from recovery.kube.observer import NoObserver
from recovery.kube.projections.metadata import Metadata, ObjectEntry
from recovery.ports import JOBS, PatchKind, WatchEnd
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.training.trace import Trace
from recovery.sim.trials.checkers.checker_set import CheckerSet
from recovery.sim.trials.controller_process import ControllerProcess
from recovery.sim.trials.controller_replica import Replica
from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.plan import FaultRates, TrialPlan
from recovery.sim.trials.request_faults import RequestFaults
from recovery.sim.trials.transport import TrialTransport
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence
from recovery.sim.trials.trial_log import TrialLog
from recovery.sim.virtual_time import VirtualClock
from tests.simulation.trials.small import at
from tests.unit.sim.api.servers import KINDS, TEAM, named

REPLICA = "controller-0"


class Wire:
    """The time for faults is 1,000 s."""

    def __init__(self, *faults: TrialFault, rates: FaultRates | None = None) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(KINDS, clock=self.clock, entropy=random.Random(7))
        self.evidence = TrialEvidence(
            plan=TrialPlan(seed=1, jobs=(), active_seconds=1000.0, healing_seconds=1000.0),
            server=self.server,
            trace=Trace(),
            jobs={},
            began_at=at(0),
            healing_from=at(1000),
            ends_at=at(2000),
        )
        self.log = TrialLog(self.evidence, CheckerSet(self.evidence, ()), self.clock)
        self.faults = RequestFaults(1, faults, rates or FaultRates(), lambda: 1000 - self.clock.monotonic_seconds())
        self.replica = Replica(REPLICA, self.clock, self.evidence, self._connect)
        self.process = ControllerProcess(REPLICA, 0, self.clock, self.evidence)
        self.client = KubeApiClient(
            self._connect(self.replica, self.process), clock=self.process.clock, entropy=random.Random(3)
        )

    def _connect(self, replica: Replica, process: ControllerProcess) -> TrialTransport:
        return TrialTransport(process, replica, self.server, self.clock, self.faults, self.log, seed=1)

    @property
    def seconds(self) -> float:
        return self.clock.monotonic_seconds()

    @property
    def requests(self) -> Sequence[RequestRecord]:
        return self.evidence.requests

    def names(self) -> list[str]:
        """Names of the Jobs on the server."""
        return [job["metadata"]["name"] for job in self.server.objects(JOBS)]

    def put(self, name: str, size: int = 1) -> Body:
        """Another client creates or changes the Job."""
        if self.server.find(JOBS, name, TEAM) is None:
            return self.server.create(JOBS, named(name), namespace=TEAM)
        return self.server.patch(JOBS, name, {"spec": {"size": size}}, kind=PatchKind.MERGE, namespace=TEAM)

    async def create(self, name: str = "a") -> None:
        await api_verbs.create(self.client, JOBS, named(name), namespace=TEAM)

    async def get(self, name: str = "a") -> None:
        await api_verbs.get(self.client, JOBS, name, namespace=TEAM)


class _Job(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: dict[str, int]


def _decode(raw: msgspec.Raw) -> ObjectEntry[int]:
    job = msgspec.json.decode(raw, type=_Job)
    return job.metadata.entry(job.spec["size"])


class Watched:
    """What the production informer reports about the Jobs on the server while it runs."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.restarts: list[str] = []
        self.told: list[tuple[float, str, int]] = []
        """Second, name and size of each Job that it reported; size -1: the Job is gone."""
        self.versions: dict[str, list[int]] = {}
        """The resource versions of each Job, in the order in which they were reported."""
        watched = self

        class Restarts(NoObserver):
            def watch_restarted(self, resource: str, reason: WatchEnd, message: str) -> None:
                watched.restarts.append(message)

        self.informer = Informer(
            wire.client,
            JOBS,
            _decode,
            put=self._put,
            drop=lambda entry: self.told.append((round(wire.seconds, 3), entry.name, -1)),
            clock=wire.process.clock,
            entropy=random.Random(5),
            observer=Restarts(),
        )
        self.task = asyncio.create_task(self.informer.run())

    def _put(self, entry: ObjectEntry[int]) -> None:
        self.told.append((round(self._wire.seconds, 3), entry.name, entry.value))
        self.versions.setdefault(entry.name, []).append(int(entry.resource_version))

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each Job, as far as the informer knows."""
        return {entry.name: entry.value for entry in self.informer.objects.values()}

    def when(self, name: str, size: int) -> list[float]:
        return [second for second, told_of, told in self.told if (told_of, told) == (name, size)]


def watching_until_the_end(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
    """For a test that leaves watches open: they end with it."""

    @functools.wraps(test)
    async def whole() -> None:
        try:
            await test()
        finally:
            left = sorted(asyncio.all_tasks() - {asyncio.current_task()}, key=hash)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    return whole


async def first_lines(wire: Wire, lines: int) -> list[str]:
    """The types of the first lines of a watch that lists first."""
    found = []
    async with aclosing(api_verbs.watch(wire.client, JOBS, send_initial_events=True)) as stream:
        async for line in stream:
            found.append(msgspec.json.decode(line)["type"])
            if len(found) == lines:
                break
    return found
