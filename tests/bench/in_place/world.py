"""Modelled pods with the agent in them: its machine in each, and the real barrier in slot 0 of each Job.

The container is the model's. The agent within it starts and stops ranks as fast as the model's kubelets and ranks are.
"""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from recovery.agent._trainjob_recovery.barrier_host import BarrierHost
from recovery.agent._trainjob_recovery.link import BEAT_SECONDS
from recovery.agent._trainjob_recovery.report import ReportEndpoint
from recovery.ports import ApiClient, Clock, Entropy
from recovery.rendezvous.tokens import AUDIENCE
from recovery.sim.kubelets.objects import Pod
from recovery.sim.kubelets.processes import ContainerProcess, Exit
from recovery.sim.training.rounds import TrainingSettings
from recovery.sim.training.training import JOBSET_NAME_LABEL, TrainingWorld
from tests.agent.launches import free_master_port
from tests.bench.rendezvous.light_agent import LightAgent, Place
from tests.cluster.controlplane.start import ControlPlane

START_SECONDS = (0.0, 0.1)
"""From the order to start a rank until its process runs: as long as a container of the model."""
STOP_SECONDS = 0.2
"""From SIGTERM to the end of a rank: as long as a rank of the model that handles it."""
_TICK_SECONDS = 0.5


@dataclass
class Setup:
    """The agents of one TrainJob, and where they report."""

    control_plane: ControlPlane
    slots: int
    folder: Path
    controller_port: int
    ca_pem: str


@dataclass
class AgentGroup:
    """The agents of one Job. Times are monotonic seconds."""

    setup: Setup
    key: str
    port: int = field(default_factory=free_master_port)
    agents: dict[int, "PodAgent"] = field(default_factory=dict)
    started: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """By epoch: when each slot has started its ranks."""
    ran_at: dict[int, float] = field(default_factory=dict)
    """By epoch: when the barrier knew that all have."""

    def note(self, host: BarrierHost) -> None:
        if host.barrier.state == "running":
            self.ran_at.setdefault(host.barrier.epoch, time.monotonic())

    @property
    def permitted(self) -> bool:
        return len(self.agents) == self.setup.slots and all(agent.permitted for agent in self.agents.values())


class PodAgent(LightAgent):
    def __init__(self, process: ContainerProcess, group: AgentGroup, draw: random.Random) -> None:
        pod = process.pod
        assert pod.index is not None, "a rank has an index"
        where = (group.key, "127.0.0.1", group.port, pod.metadata.name, process.node)
        super().__init__(Place(pod.index, group.setup.slots, *where), draw)
        self.process = process
        self.group = group
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self.begin()
        self.keep(asyncio.ensure_future(self.run()))
        if self.place.slot == 0:
            self.keep(asyncio.ensure_future(self._host()))

    def keep(self, task: "asyncio.Task[None]") -> None:
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def start_ranks(self, epoch: int) -> None:
        seconds = 0.0 if epoch == 1 else self._draw.uniform(*START_SECONDS)  # the first started with the container
        asyncio.get_running_loop().call_later(seconds, self._started, epoch)

    def _started(self, epoch: int) -> None:
        self.group.started[epoch][self.place.slot] = time.monotonic()
        self.perform(self.member.on_started(time.monotonic(), epoch))

    def stop_ranks(self) -> None:
        asyncio.get_running_loop().call_later(STOP_SECONDS, super().stop_ranks)

    def end(self, code: int) -> None:
        super().end(code)
        self.process.end(Exit(code))

    def gone(self) -> None:
        """The container has ended, by itself or by a signal."""
        self._ended = True
        if self.link is not None:
            self.link.abort()
        for task in self.tasks:
            task.cancel()

    async def _host(self) -> None:
        """The barrier of the Job, for as long as the container runs."""
        setup, pod = self.group.setup, self.process.pod
        token = setup.folder / f"{pod.metadata.uid}.token"
        host = _Noting(
            self.group.note,
            identity=f"{self._draw.getrandbits(64):016x}",
            slots=setup.slots,
            key=self.group.key,
            controller=ReportEndpoint("127.0.0.1", setup.controller_port, setup.ca_pem, str(token)),
            say=lambda _: None,
            draw=self._draw,
        )
        await host.listen(self.group.port)
        try:
            token.write_text(await _token(setup.control_plane, pod))
            await host.run()
        finally:
            await host.server.close(0.0)


class _Noting(BarrierHost):
    """Tells after each message what the barrier knows."""

    def __init__(self, note: Callable[[BarrierHost], None], **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self._note_state = note

    def said(self, link: int, message: object) -> None:
        super().said(link, message)  # type: ignore[arg-type]
        self._note_state(self)


async def _token(control_plane: ControlPlane, pod: Pod) -> str:
    """What the kubelet would project into the pod."""
    meta = pod.metadata
    asked = ("create", "token", "default", "-n", meta.namespace, f"--audience={AUDIENCE}")
    bound = ("--bound-object-kind=Pod", f"--bound-object-name={meta.name}", f"--bound-object-uid={meta.uid}")
    return await control_plane.kubectl(*asked, *bound)


class AgentWorld(TrainingWorld):
    """The workload of all pods. Those of the trainings in `setups` have the agent."""

    def __init__(
        self, api: ApiClient, clock: Clock, entropy: Entropy, settings: TrainingSettings | None = None
    ) -> None:
        super().__init__(api, clock, entropy, settings)
        self.setups: dict[str, Setup] = {}
        """By `namespace/name`."""
        self.groups: dict[str, AgentGroup] = {}
        """By the UID of the Job, oldest first."""
        self._agents: dict[ContainerProcess, PodAgent] = {}
        self._draw = random.Random(1)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run())
            tasks.create_task(self._tick())

    def process_started(self, process: ContainerProcess) -> None:
        super().process_started(process)
        meta, uid = process.pod.metadata, process.pod.job_uid
        setup = self.setups.get(f"{meta.namespace}/{meta.labels.get(JOBSET_NAME_LABEL)}")
        if setup is None or uid is None or process.container.name != "node":
            return
        group = self.groups.setdefault(uid, AgentGroup(setup, key=uid))
        agent = self._agents[process] = PodAgent(process, group, self._draw)
        group.agents[agent.place.slot] = agent
        agent.start()

    def process_termed(self, process: ContainerProcess) -> None:
        super().process_termed(process)
        if (agent := self._agents.get(process)) is not None:
            agent.perform(agent.member.on_signal("SIGTERM"))

    def process_exited(self, process: ContainerProcess) -> None:
        super().process_exited(process)
        if (agent := self._agents.pop(process, None)) is not None:
            agent.gone()

    async def _tick(self) -> None:
        beaten = time.monotonic()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            beats = time.monotonic() - beaten >= BEAT_SECONDS
            beaten = time.monotonic() if beats else beaten
            for agent in list(self._agents.values()):
                with suppress(KeyError):
                    agent.perform(agent.member.tick(time.monotonic()))
                    if beats:
                        agent.beat()
