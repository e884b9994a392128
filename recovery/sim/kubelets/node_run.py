"""One node: its Node object, its heartbeats, and the pods bound to it.

A node is lost in two ways, which look the same from outside. After a power loss its processes are dead. Behind a
partition they continue even if their pods are deleted, because the node cannot be reached. In both cases the objects
stay as they were, until the node returns or other components clean up.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from recovery import api_verbs
from recovery.ports import LEASES, NODES, PODS, AlreadyExistsError, NotFoundError, PatchKind
from recovery.sim.api.metadata import micro_timestamp
from recovery.sim.kubelets.kubelet_context import Host, KubeletContext, PodStart
from recovery.sim.kubelets.objects import TERMINAL_PHASES, Node, Pod
from recovery.sim.kubelets.pod_run import PodRun
from recovery.sim.kubelets.pod_status import timestamp

LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_SECONDS = 40
KUBELET_VERSION = "v1.36.3"

NO_DEVICES: Mapping[str, object] = {
    "phase": "Failed",
    "reason": "UnexpectedAdmissionError",
    "message": "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
    "nvidia.com/gpu, which is unexpected",
}
"""The status of a pod whose node has no healthy GPU for it (kubelet.go `rejectPod`, cm/admission/errors.go,
cm/devicemanager/manager.go `devicesToAllocate`). It has no container statuses."""

HEALTHY = {
    "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


class NodeDeath(StrEnum):
    """How a node was lost."""

    POWER_LOSS = "PowerLoss"
    """Its processes are dead."""
    PARTITION = "Partition"
    """Its processes continue."""


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """A machine to add. Quantities are Kubernetes quantities."""

    name: str
    gpus: int = 8
    cpu: str = "192"
    memory: str = "2Ti"
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)

    def capacity(self) -> dict[str, str]:
        return {"nvidia.com/gpu": str(self.gpus), "cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}


class NodeRun:
    """A node with its kubelet, from `start` until `remove`."""

    def __init__(
        self,
        spec: NodeSpec,
        host: Host,
        context: KubeletContext,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        start_of: Callable[[Pod], PodStart],
    ) -> None:
        self.registered = asyncio.Event()
        """Set when the Node and its Lease exist."""
        self.runs: dict[str, PodRun] = {}
        """The pods on the node, by UID."""
        self.refuses_devices = False
        """Each new pod fails at admission, because there is no healthy device."""
        self._spec = spec
        self._host = host
        self._context = context
        self._spawn = spawn
        self._start_of = start_of
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._heartbeat: asyncio.Task[None] | None = None
        self._first_beat_seconds: float | None = None
        """Time of the first regular Lease renewal since the node joined. None: it has not joined, or it is lost."""
        self._last_beat_seconds: float | None = None
        """Time of the last Lease renewal before that."""
        self._refused: set[str] = set()
        """UIDs of the pods that failed at admission and whose objects still exist."""
        self._unheard: dict[str, Pod | None] = {}
        """By UID: the latest state of pods that changed while the node was cut off. None: the object is gone."""

    @property
    def connected(self) -> bool:
        """The node has joined the cluster and reaches the API server."""
        return self._host.connected.is_set()

    def break_runtime(self, broken: bool) -> None:
        """Make the container runtime create no containers, or create them again. Running ones continue."""
        if broken:
            self._host.runtime.clear()
        else:
            self._host.runtime.set()

    def start(self) -> None:
        """Join the cluster, for the first time or after a loss, and handle the changes that were missed."""
        for run in self.runs.values():
            run.reassert()
        for uid, pod in self._unheard.items():
            if pod:
                self._hear(pod)
            else:
                self._hear_gone(uid)
        self._unheard.clear()
        self._host.powered.set()
        self._host.connected.set()
        if self._heartbeat:
            self._heartbeat.cancel()
        self._heartbeat = self._spawn(self._beat())

    def lose(self, how: NodeDeath) -> None:
        """Fall silent without notice."""
        self._last_beat_seconds, self._first_beat_seconds = self.renewed_seconds(), None
        self._host.connected.clear()
        if how is NodeDeath.POWER_LOSS:
            self._host.powered.clear()
            for run in list(self.runs.values()):
                run.lose_power()

    async def remove(self) -> None:
        """Remove the machine: its processes die, and its Node and Lease are deleted."""
        self.lose(NodeDeath.POWER_LOSS)
        for task in self._tasks.values():
            task.cancel()
        if self._heartbeat:
            self._heartbeat.cancel()
        reachable = asyncio.Event()
        reachable.set()
        await self._context.writes.until_applied(reachable, self._delete)

    def renewed_seconds(self) -> float | None:
        """When the node last renewed its Lease, computed from its first renewal. None: never."""
        if self._first_beat_seconds is None:
            return self._last_beat_seconds
        since_seconds = self._context.clock.monotonic_seconds() - self._first_beat_seconds
        if since_seconds < 0:
            return self._last_beat_seconds
        return (
            self._first_beat_seconds
            + since_seconds // self._context.settings.lease_seconds * self._context.settings.lease_seconds
        )

    # Pods.

    def pod_changed(self, pod: Pod) -> None:
        if self._host.connected.is_set():
            self._hear(pod)
        else:
            self._unheard[pod.uid] = pod

    def pod_gone(self, uid: str) -> None:
        if self._host.connected.is_set():
            self._hear_gone(uid)
        else:
            self._unheard[uid] = None

    def _hear(self, pod: Pod) -> None:
        run = self.runs.get(pod.uid)
        if run is None:
            if pod.status.phase in TERMINAL_PHASES or pod.uid in self._refused:
                return
            if self.refuses_devices:
                self._refused.add(pod.uid)
                self._spawn(self._context.writes.until_applied(self._host.connected, lambda: self._refuse(pod)))
                return
            run = PodRun(pod, self._host, self._context, self._start_of(pod))
            self.runs[pod.uid] = run
            self._tasks[pod.uid] = self._spawn(self._drive(run))
        run.observe(pod)

    def _hear_gone(self, uid: str) -> None:
        self._refused.discard(uid)
        run = self.runs.get(uid)
        if run:
            run.vanish()

    async def _refuse(self, pod: Pod) -> None:
        metadata = pod.metadata
        body = {"metadata": {"uid": metadata.uid}, "status": dict(NO_DEVICES)}
        try:
            await api_verbs.patch(
                self._context.api,
                PODS,
                metadata.name,
                body,
                kind=PatchKind.STRATEGIC,
                namespace=metadata.namespace,
                subresource="status",
            )
        except NotFoundError:
            return

    async def _drive(self, run: PodRun) -> None:
        await run.run()
        # The run is kept until the object is gone, so that a late event does not start the pod a second time.
        await run.vanished.wait()
        del self.runs[run.pod.uid], self._tasks[run.pod.uid]

    # Heartbeats.

    async def _beat(self) -> None:
        writes, connected = self._context.writes, self._host.connected
        settings, clock = self._context.settings, self._context.clock
        uid = await writes.until_applied(connected, self._register)
        await writes.until_applied(connected, lambda: self._renew_lease(uid))
        self.registered.set()
        self._last_beat_seconds = clock.monotonic_seconds()
        status_due_seconds = self._last_beat_seconds + settings.node_status_seconds
        # The first pause is a random part of the interval, so that nodes that start together do not renew together.
        pause_seconds = self._context.entropy.uniform(0, settings.lease_seconds)
        self._first_beat_seconds = self._last_beat_seconds + pause_seconds
        if not settings.writes_leases:
            while True:
                await clock.sleep(settings.node_status_seconds)
                await writes.until_applied(connected, self._post_status)
        await clock.sleep(pause_seconds)
        while True:
            await writes.until_applied(connected, lambda: self._renew_lease(uid))
            if clock.monotonic_seconds() >= status_due_seconds:
                status_due_seconds += settings.node_status_seconds
                await writes.until_applied(connected, self._post_status)
            await clock.sleep(settings.lease_seconds)

    async def _register(self) -> str:
        """Create the Node or take over an existing one. Returns its UID."""
        now = self._context.clock.now()
        name = self._spec.name
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        status = {
            "capacity": self._spec.capacity(),
            "allocatable": self._spec.capacity(),
            "conditions": self._conditions(lastTransitionTime=timestamp(now)),
            "addresses": [
                {"type": "InternalIP", "address": self._host.ip},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {"kubeletVersion": KUBELET_VERSION, "operatingSystem": "linux", "architecture": "amd64"},
        }
        node = {
            "apiVersion": NODES.api_version,
            "kind": NODES.kind,
            "metadata": {"name": name, "labels": labels | dict(self._spec.labels)},
            "status": status,
        }
        try:
            body = await api_verbs.create(self._context.api, NODES, node)
        except AlreadyExistsError:
            patch = {"status": status}
            body = await api_verbs.patch(
                self._context.api, NODES, name, patch, kind=PatchKind.STRATEGIC, subresource="status"
            )
        return msgspec.json.decode(body, type=Node).metadata.uid

    def _conditions(self, **more: str) -> list[dict[str, str]]:
        beat_at = timestamp(self._context.clock.now())
        return [
            {"type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": beat_at, **more}
            for kind, (status, reason, message) in HEALTHY.items()
        ]

    async def _post_status(self) -> None:
        patch = {"status": {"conditions": self._conditions()}}
        try:
            await api_verbs.patch(
                self._context.api, NODES, self._spec.name, patch, kind=PatchKind.STRATEGIC, subresource="status"
            )
        except NotFoundError:
            return  # The Node was deleted. A kubelet registers only when it starts.

    async def _renew_lease(self, node_uid: str) -> None:
        name = self._spec.name
        renewed = {"renewTime": micro_timestamp(self._context.clock.now())}
        try:
            await api_verbs.patch(
                self._context.api, LEASES, name, {"spec": renewed}, kind=PatchKind.MERGE, namespace=LEASE_NAMESPACE
            )
        except NotFoundError:
            owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": name, "uid": node_uid}
            lease = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_DURATION_SECONDS, **renewed},
            }
            await api_verbs.create(self._context.api, LEASES, lease, namespace=LEASE_NAMESPACE)

    async def _delete(self) -> None:
        for resource, namespace in ((NODES, None), (LEASES, LEASE_NAMESPACE)):
            try:
                await api_verbs.delete(self._context.api, resource, self._spec.name, namespace=namespace)
            except NotFoundError:
                continue
