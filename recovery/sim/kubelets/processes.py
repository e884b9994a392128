"""Processes in containers, and the interface of the workload that controls them.

The kubelet model starts, signals, kills and reports processes. A `Workload` decides how they behave: how long they run,
how they react to SIGTERM, when they die. Neither depends on the internals of the other.
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
    """How a process ended. A kubelet reports an empty reason as Completed for code 0, else as Error."""

    code: int
    reason: str = ""
    message: str = ""


class ContainerProcess:
    """One run of one container, identified by pod UID, container and restart count."""

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
        """None: the process is running."""
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
        """From now on its readiness probe succeeds, as if the probed file were written or the probed port open.

        This holds until the process ends: a hanging process does not remove its file. No effect if there is no probe or
        the process has ended.
        """
        if self.exit is None:
            self._answers(self)

    def end(self, exit_: Exit) -> None:
        """End the process. Later calls have no effect."""
        if self.exit is None:
            self.exit = exit_
            self.exited.set()
            self._ended(self)


class Workload(Protocol):
    """Decides what the processes do. The calls come in the order of events, on the event loop of `run`."""

    async def run(self) -> None:
        """Run for as long as the kubelets do."""
        ...

    def process_started(self, process: ContainerProcess) -> None:
        """A process started. If its container has a readiness probe, the workload decides when that succeeds."""
        ...

    def process_termed(self, process: ContainerProcess) -> None:
        """SIGTERM was delivered. The workload ends a process that handles it, the kubelet later kills any other."""
        ...

    def process_exited(self, process: ContainerProcess) -> None:
        """A process ended by itself or was killed. `process.exit` says how."""
        ...
