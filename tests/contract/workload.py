"""What runs in the containers: only what the image says, so that each pod does what its expectation needs."""

import re

from recovery.ports import Clock
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.kubelets.processes import SIGTERM_CODE, ContainerProcess, Exit
from recovery.sim.timers import Timers

OBEDIENT = "obedient"
"""Runs until SIGTERM, and exits a moment later. So does every image that is not named here."""
DEAF = "deaf"
"""Ignores SIGTERM: runs until it is killed."""
LEAVE_SECONDS = 0.2

KUBELET = KubeletSettings(start_seconds=(0.05, 0.3), restart_seconds=0.3)
NODES = tuple(NodeSpec(name=f"common-{number}", gpus=64) for number in range(4))
"""For the pods of all expectations, which ask for a GPU each. An expectation's own nodes have none (`add_nodes`)."""


def exits(code: int) -> str:
    """The image of a container that exits with this code soon after its start."""
    return f"exits-{code}"


def leaves(seconds: int) -> str:
    """The image of a container that exits with this code soon after its start."""
    return f"leaves-{seconds}"


class ByImage:
    """`recovery.sim.kubelets.processes.Workload`."""

    def __init__(self, clock: Clock) -> None:
        self._timers = Timers(clock)

    async def run(self) -> None:
        await self._timers.run()

    def process_started(self, process: ContainerProcess) -> None:
        process.answer_probe()
        code = re.fullmatch(r"exits-(\d+)", process.container.image)
        if code:
            ending = Exit(int(code[1]))
            self._timers.after(LEAVE_SECONDS, lambda: process.end(ending))

    def process_termed(self, process: ContainerProcess) -> None:
        image = process.container.image
        if image != DEAF:
            slow = re.fullmatch(r"leaves-(\d+)", image)
            seconds = float(slow[1]) if slow else LEAVE_SECONDS
            self._timers.after(seconds, lambda: process.end(Exit(SIGTERM_CODE)))

    def process_exited(self, process: ContainerProcess) -> None:
        """No other process depends on this one."""
