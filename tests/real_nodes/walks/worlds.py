"""The two worlds in which pods are walked: a real node and a modelled one."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from recovery.controller.clock import SystemClock
from recovery.kube.client import KubeApiClient
from recovery.kube.http import HttpTransport
from recovery.kube.session import open_session
from recovery.ports import Clock
from recovery.sim.cluster import ClusterSettings
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.kubelets.processes import SIGKILL_CODE, ContainerProcess, Exit
from recovery.sim.timers import Timers
from recovery.sim.virtual_time import run_in_virtual_time
from tests.cluster.real_nodes.node import RealNode
from tests.cluster.real_nodes.start import RealCluster
from tests.contract.scene import Object, Scene
from tests.contract.simulated import in_memory
from tests.real_nodes.walks.history import PodHistory
from tests.real_nodes.walks.plan import OOM_CODE, PodPlan, Script
from tests.real_nodes.walks.walker import World, walk_all

KUBELET = KubeletSettings(init_container_seconds=None)
NODE = "walked"


class Scripted:
    """`recovery.sim.kubelets.processes.Workload`: the processes do what their plans say."""

    def __init__(self, plans: Sequence[PodPlan], clock: Clock) -> None:
        self._timers = Timers(clock)
        self._scripts = {(plan.name, each.name): each.script for plan in plans for each in plan.everything}

    async def run(self) -> None:
        await self._timers.run()

    def process_started(self, process: ContainerProcess) -> None:
        script = self._script(process)
        ending = Exit(OOM_CODE, "OOMKilled") if script.out_of_memory else Exit(script.code)
        if script.lasts_seconds is not None:
            self._timers.after(script.lasts_seconds, lambda: process.end(ending))

    def process_termed(self, process: ContainerProcess) -> None:
        script = self._script(process)
        if script.term_code is not None:
            ending = Exit(script.term_code)
            self._timers.after(script.leaves_seconds, lambda: process.end(ending))

    def process_exited(self, process: ContainerProcess) -> None:
        """No other process depends on this one."""

    def _script(self, process: ContainerProcess) -> Script:
        return self._scripts[process.pod.name, process.container.name]


def walk_in_memory(plans: Sequence[PodPlan]) -> list[PodHistory]:
    async def walked(scene: Scene) -> list[PodHistory]:
        scene.kubelets.add_node(NodeSpec(name=NODE))
        await scene.kubelets.nodes_ready()

        def kill(pod: Object, container: str) -> None:
            scene.kubelets.exit_container(
                pod["metadata"]["name"], SIGKILL_CODE, namespace=scene.namespace, container=container
            )

        return await walk_all(World(scene.api, scene.clock, scene.namespace, NODE, kill), plans)

    settings = ClusterSettings(kubelets=KUBELET)
    return run_in_virtual_time(in_memory(walked, settings, workload=lambda clock: Scripted(plans, clock)))


@dataclass(frozen=True)
class Walked:
    """Pods that have been walked in both worlds."""

    plans: Sequence[PodPlan]
    real: Sequence[PodHistory]
    model: Sequence[PodHistory]


@dataclass(frozen=True)
class Modelled:
    """Pods that have been walked in memory."""

    plans: Sequence[PodPlan]
    model: Sequence[PodHistory]


def model(plans: Mapping[str, Sequence[PodPlan]]) -> dict[str, Modelled]:
    """Walk all of them in memory; the result is by name.

    Call it in the main thread, before an event loop runs there. The first use of a msgspec type in several threads at
    once crashes the process: one thread decodes with what another has only half built.
    """
    return {name: Modelled(pods, walk_in_memory(pods)) for name, pods in plans.items()}


@asynccontextmanager
async def walk_on_nodes(
    cluster: RealCluster, modelled: Mapping[str, Modelled]
) -> AsyncIterator[dict[str, asyncio.Task[Walked]]]:
    """Tasks that walk them, by name. Those of one name share a node. As many names run at once as there are nodes."""
    free: asyncio.Queue[RealNode] = asyncio.Queue()
    for node in cluster.nodes:
        free.put_nowait(node)

    async def walked(pods: Modelled) -> Walked:
        node = await free.get()
        try:
            return Walked(pods.plans, await walk_on_node(cluster, node, pods.plans), pods.model)
        finally:
            free.put_nowait(node)

    tasks = {name: asyncio.create_task(walked(pods)) for name, pods in modelled.items()}
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def walk_on_node(cluster: RealCluster, node: RealNode, plans: Sequence[PodPlan]) -> list[PodHistory]:
    clock = SystemClock()

    def kill(pod: Object, container: str) -> None:
        status = pod["status"]
        statuses = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
        [found] = [each["containerID"] for each in statuses if each["name"] == container]
        os.kill(node.processes_of(pod["metadata"]["uid"], found.partition("://")[2])[0], signal.SIGKILL)

    async with open_session(kubeconfig=str(cluster.control_plane.kubeconfig)) as session:
        api = KubeApiClient(HttpTransport(session, clock=clock), clock=clock, entropy=random.Random(1))
        return await walk_all(World(api, clock, "default", node.name, kill), plans)
