"""A server with nodes and pods, and some of the controllers that look after them, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from recovery.ports import LEASES, NODES, PODS, Clock, Entropy, PatchKind
from recovery.sim.api.kinds.core import core_kinds
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.metadata import micro_timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.controller import ModelController
from recovery.sim.kubelets.pod_status import timestamp
from recovery.sim.virtual_time import VirtualClock

NAMESPACE = "team"
GPUS = "nvidia.com/gpu"

MakesController = Callable[[ApiServer, Clock, Entropy], ModelController[Any]]


class NodeWorld:
    def __init__(self, controllers: Iterable[MakesController], kinds: Iterable[ServedKind]) -> None:
        self.clock = VirtualClock()
        entropy = random.Random(3)
        self.server = ApiServer(kinds, clock=self.clock, entropy=entropy)
        self.controllers = [make(self.server, self.clock, entropy) for make in controllers]
        self.changes: list[ObjectChange] = []
        self.server.subscribe(self.changes.append)

    async def pass_seconds(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until_second(self, seconds: float) -> None:
        """Wait until that second, counted from the start of the world."""
        await asyncio.sleep(seconds - self.clock.monotonic_seconds())

    # Nodes.

    def add_node(self, name: str = "node-0", *, ready: bool = True, **details: Any) -> Body:
        """Register a node. A ready one does not have the taint of new nodes."""
        made = self.server.create(NODES, node(name, self._now(), **details))
        if not ready:
            return made
        return self.set_taints(name, *details.get("taints", ()))

    def node(self, name: str = "node-0") -> Body:
        found = self.server.find(NODES, name)
        assert found, f"there is no node {name}"
        return found

    def beat(self, name: str = "node-0") -> None:
        renewed = {"renewTime": micro_timestamp(self.clock.now())}
        if self.server.find(LEASES, name, "kube-node-lease"):
            self.server.patch(LEASES, name, {"spec": renewed}, kind=PatchKind.MERGE, namespace="kube-node-lease")
        else:
            lease = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": renewed}
            self.server.create(LEASES, lease)

    async def beat_until(self, seconds: float, *names: str) -> None:
        """Send heartbeats every 10 s, the last at that second, counted from the start of the world."""
        while self.clock.monotonic_seconds() <= seconds:
            for name in names:
                self.beat(name)
            await asyncio.sleep(10)

    def say(self, name: str, **statuses: str) -> None:
        """Post the node's conditions, by type, as its kubelet does."""
        now = self._now()
        conditions = [
            {"type": kind, "status": status, "reason": "Kubelet", "lastHeartbeatTime": now, "lastTransitionTime": now}
            for kind, status in statuses.items()
        ]
        patch = {"status": {"conditions": conditions}}
        self.server.patch(NODES, name, patch, kind=PatchKind.STRATEGIC, subresource="status")

    def set_taints(self, name: str, *taints: Body) -> Body:
        return self.server.patch(NODES, name, {"spec": {"taints": list(taints)}}, kind=PatchKind.MERGE)

    def cordon(self, name: str, *, unschedulable: bool = True) -> None:
        self.server.patch(NODES, name, {"spec": {"unschedulable": unschedulable}}, kind=PatchKind.MERGE)

    def taints(self, name: str = "node-0") -> list[str]:
        """The taints as kubectl takes them: `key:effect`."""
        taints = self.node(name)["spec"].get("taints") or ()
        return [f"{taint['key'].removeprefix('node.kubernetes.io/')}:{taint['effect']}" for taint in taints]

    def node_condition(self, name: str, kind: str) -> Body:
        return condition(self.node(name), kind)

    # Pods.

    def add_pod(self, name: str, **details: Any) -> Body:
        phase, ready = details.pop("phase", ""), details.pop("ready", None)
        made = self.server.create(PODS, pod(name, **details))
        if phase:
            self.set_status(name, phase=phase)
        if ready is not None:
            self.set_status(name, conditions=[{"type": "Ready", "status": "True" if ready else "False"}])
        return made

    def set_status(self, name: str, **status: Any) -> None:
        self.server.patch(
            PODS, name, {"status": status}, kind=PatchKind.STRATEGIC, namespace=NAMESPACE, subresource="status"
        )

    def delete_pod(self, name: str, grace_seconds: int | None = None) -> None:
        self.server.delete(PODS, name, namespace=NAMESPACE, grace_seconds=grace_seconds)

    def pod(self, name: str) -> Body:
        found = self.server.find(PODS, name, NAMESPACE)
        assert found, f"there is no pod {name}"
        return found

    def gone(self, name: str) -> bool:
        return self.server.find(PODS, name, NAMESPACE) is None

    def deleting(self, name: str) -> bool:
        return "deletionTimestamp" in self.pod(name)["metadata"]

    def node_of(self, name: str) -> str:
        """The pod's node. Empty: the pod is not bound."""
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def condition(self, name: str, kind: str) -> Body:
        """The pod's condition of that type. Empty: it has none."""
        return condition(self.pod(name), kind)

    def last_state(self, name: str) -> Body:
        """The last state of a pod that is gone."""
        return next(change.body for change in reversed(self.changes) if change.body["metadata"]["name"] == name)

    def _now(self) -> str:
        return timestamp(self.clock.now())


@asynccontextmanager
async def running(*controllers: MakesController, kinds: Iterable[ServedKind] | None = None) -> AsyncIterator[NodeWorld]:
    """`kinds` None: the core kinds."""
    world = NodeWorld(controllers, kinds or core_kinds())
    async with at_work(*world.controllers):
        yield world


class Runs(Protocol):
    async def run(self) -> None: ...


@asynccontextmanager
async def at_work(*parts: Runs) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(part.run()) for part in parts]
    await asyncio.sleep(0)
    try:
        yield
    finally:
        # If a part broke, its error is raised here: it explains a failed test better.
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


def condition(body: Body, kind: str) -> Body:
    conditions = body.get("status", {}).get("conditions") or ()
    found: Body = next((each for each in conditions if each["type"] == kind), {})
    return found


def node(
    name: str,
    now: str,
    *,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    taints: tuple[Body, ...] = (),
    unschedulable: bool = False,
    pods: int = 110,
) -> Body:
    dates = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": list(taints), **({"unschedulable": True} if unschedulable else {})},
        "status": {
            "allocatable": {GPUS: str(gpus), "cpu": "192", "memory": "2Ti", "pods": str(pods)},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", **dates},
                {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory", **dates},
            ],
        },
    }


def pod(
    name: str,
    *,
    gpus: int = 0,
    cpu: str = "",
    bound_to: str = "",
    finalizers: tuple[str, ...] = (),
    **spec: Any,
) -> Body:
    """`bound_to`: the pod's node from the start. Empty: the pod still has to be scheduled."""
    limits = {**({GPUS: str(gpus)} if gpus else {}), **({"cpu": cpu} if cpu else {})}
    where = {"nodeName": bound_to} if bound_to else {}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "finalizers": list(finalizers)},
        "spec": {"containers": [{"name": "node", "resources": {"limits": limits}}], **where, **spec},
    }
