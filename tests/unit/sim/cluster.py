"""A small cluster in virtual time for the tests of the kubelet and training models."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from recovery.ports import PODS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.kubelets.kubelet import Kubelets
from recovery.sim.kubelets.kubelet_context import KubeletSettings
from recovery.sim.kubelets.node_run import NodeSpec
from recovery.sim.kubelets.processes import ContainerProcess, Exit, Workload
from recovery.sim.timers import Timers
from recovery.sim.virtual_time import VirtualClock
from tests.unit.sim.weathered_api import WeatheredApi

AnyWorkload = TypeVar("AnyWorkload", bound=Workload)

AT_ONCE = KubeletSettings(start_seconds=(0.0, 0.0))
QUICK = 0.1
"""Longer than a few requests take, shorter than anything that is measured."""


class Obedient:
    """Processes that run until SIGTERM and exit 2 s later. Deaf ones ignore SIGTERM."""

    def __init__(self, *, deaf: bool) -> None:
        self.running: list[ContainerProcess] = []
        self.started = 0
        self._deaf = deaf
        self._timers = Timers(VirtualClock())

    async def run(self) -> None:
        await self._timers.run()

    def process_started(self, process: ContainerProcess) -> None:
        self.running.append(process)
        self.started += 1

    def process_termed(self, process: ContainerProcess) -> None:
        if not self._deaf:
            self._timers.after(2, lambda: process.end(Exit(143)))

    def process_exited(self, process: ContainerProcess) -> None:
        self.running.remove(process)


@dataclass
class Cluster(Generic[AnyWorkload]):
    api: WeatheredApi
    clock: VirtualClock
    kubelets: Kubelets
    workload: AnyWorkload

    async def pass_seconds(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def bind(self, name: str, node: str = "node-0", **details: Any) -> Body:
        """Create a pod as the scheduler leaves it: bound and Pending."""
        return self.api.put(PODS, pod(name, node, **details))

    def pod(self, name: str) -> Body:
        found = self.api.of("pods", name)
        assert found, f"there is no pod {name}"
        return found

    def gone(self, name: str) -> bool:
        return self.api.of("pods", name) is None

    def status(self, name: str) -> Body:
        status: Body = self.pod(name)["status"]
        return status

    def phase(self, name: str) -> str:
        return str(self.status(name).get("phase"))

    def container(self, name: str) -> Body:
        """The status of the pod's first container."""
        first: Body = self.status(name)["containerStatuses"][0]
        return first

    def condition(self, name: str, kind: str) -> Body:
        """The pod's condition of that type."""
        return next(condition for condition in self.status(name)["conditions"] if condition["type"] == kind)


@asynccontextmanager
async def cluster(
    make_workload: Callable[[WeatheredApi, VirtualClock, random.Random], AnyWorkload],
    settings: KubeletSettings = AT_ONCE,
    nodes: int = 1,
) -> AsyncIterator[Cluster[AnyWorkload]]:
    """Running kubelets, with registered nodes `node-0`, `node-1` and so on."""
    clock, entropy = VirtualClock(), random.Random(7)
    api = WeatheredApi(clock, random.Random(8))
    workload = make_workload(api, clock, entropy)
    kubelets = Kubelets(api, clock, entropy, workload, settings)
    for index in range(nodes):
        kubelets.add_node(NodeSpec(name=f"node-{index}"))
    running = asyncio.create_task(kubelets.run())
    await asyncio.sleep(0)
    try:
        await kubelets.nodes_ready()
        yield Cluster(api, clock, kubelets, workload)
    finally:
        # If the model broke, its error is raised here: it explains a failed test better.
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def obedient_cluster(
    settings: KubeletSettings = AT_ONCE, nodes: int = 1, *, deaf: bool = False
) -> AbstractAsyncContextManager[Cluster[Obedient]]:
    return cluster(lambda *_: Obedient(deaf=deaf), settings, nodes)


def pod(
    name: str,
    node: str,
    *,
    restart_policy: str = "Never",
    grace_seconds: int = 30,
    finalizers: tuple[str, ...] = (),
    init_containers: tuple[str, ...] = (),
    containers: tuple[str, ...] = ("node",),
    env: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    job: str = "",
    job_uid: str = "",
    index: int | None = None,
    phase: str = "Pending",
    probe_seconds: int | None = None,
) -> Body:
    """`job_uid` empty: `uid-of-<job>`. `probe_seconds`: the period of every container's probe. None: no probes."""
    labels = dict(labels or {})
    owners = [{"kind": "Job", "name": job, "uid": job_uid or f"uid-of-{job}", "controller": True}] if job else []
    if index is not None:
        labels["batch.kubernetes.io/job-completion-index"] = str(index)
    probe = {} if probe_seconds is None else {"readinessProbe": {"periodSeconds": probe_seconds}}
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": labels,
            "ownerReferences": owners,
            "finalizers": list(finalizers),
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": grace_seconds,
            "initContainers": [{"name": init, "image": "init:1"} for init in init_containers],
            "containers": [
                {"name": container, "image": "train:1", "env": variables, **probe} for container in containers
            ],
        },
        "status": {"phase": phase},
    }
