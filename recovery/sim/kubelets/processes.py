"""Processes in containers, and who decides what they do.

The kubelet model starts, signals and kills processes and reports them; a `Workload` decides how they behave: how long
they run, what they do with SIGTERM, when they die. Neither knows the inside of the other.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from recovery.sim.kubelets.environment import environment
from recovery.sim.kubelets.objects import Pod, PodContainer

SIGKILL_CODE = 137
SIGTERM_CODE = 143


@dataclass(frozen=True)
class Exit:
    """How a process ended. An empty reason becomes what a kubelet writes: Completed for 0, Error for the rest."""

    code: int
    reason: str = ""
    message: str = ""


class ContainerProcess:
    """One run of one container: (pod UID, container, restart count) is its identity."""

    def __init__(
        self,
        pod: Pod,
        container: PodContainer,
        node: str,
        restart_count: int,
        *,
        pod_ip: str,
        host_ip: str,
        answers: Callable[["ContainerProcess"], None],
        ended: Callable[["ContainerProcess"], None],
    ) -> None:
        self.pod = pod
        self.container = container
        self.node = node
        self.restart_count = restart_count
        self.exit: Exit | None = None
        """None: it runs."""
        self.exited = asyncio.Event()
        self._pod_ip = pod_ip
        self._host_ip = host_ip
        self._answers = answers
        self._ended = ended

    def variable(self, name: str) -> str | None:
        """The value of an environment variable. None: it is not set."""
        if not self.container.sets(name):
            return None
        made = environment(self.pod, self.container, node=self.node, pod_ip=self._pod_ip, host_ip=self._host_ip)
        return made[name]

    def answer_probe(self) -> None:
        """From now on its readiness probe succeeds: the file is written, or the port open, that the probe asks for.

        For as long as it lives: the file of a process that hangs is not removed. No effect if it has none, or has
        ended.
        """
        if self.exit is None:
            self._answers(self)

    def end(self, exit_: Exit) -> None:
        """End it. It ends once: whatever would have ended it later finds nothing to end."""
        if self.exit is None:
            self.exit = exit_
            self.exited.set()
            self._ended(self)


class Workload(Protocol):
    """What the processes do. The calls come in the order in which things happen, on the loop of `run`."""

    async def run(self) -> None:
        """Lives as long as the kubelets do."""
        ...

    def process_started(self, process: ContainerProcess) -> None:
        """It runs; where its container has a readiness probe, the workload says when that succeeds."""
        ...

    def process_termed(self, process: ContainerProcess) -> None:
        """SIGTERM was delivered; a process that heeds it is ended by the workload, any other by the kubelet."""
        ...

    def process_exited(self, process: ContainerProcess) -> None:
        """It ended, by itself or killed; `process.exit` says how."""
        ...
