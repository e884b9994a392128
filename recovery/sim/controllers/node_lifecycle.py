"""The node lifecycle controller: it marks and taints nodes whose heartbeats stop, and marks their pods as not ready.

Modelled after pkg/controller/nodelifecycle (Kubernetes 1.36). It checks all nodes every 5 s. A node without a heartbeat
for the grace period gets Ready=Unknown, its pods are marked as not ready, and taints inform the scheduler and the
taint-eviction controller. NoExecute taints are added to at most one node per 10 s (--node-eviction-rate). Not modelled:
zones, and so the slower or stopped evictions when most nodes of a zone are lost at once.
"""

import asyncio
import math
from collections.abc import Callable, Iterable

from recovery.ports import LEASES, NODES, PODS, Clock, Entropy, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import timestamp
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.bound_pods import BoundPods
from recovery.sim.controllers.controller import ModelController
from recovery.sim.controllers.request_limiter import Limiter
from recovery.sim.controllers.taints import NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE, UNSCHEDULABLE, taints_of
from recovery.sim.timers import SAME_INSTANT_SECONDS

LEASE_NAMESPACE = "kube-node-lease"
PERIOD_SECONDS = 5.0
"""--node-monitor-period"""
GRACE_SECONDS = 50.0
"""--node-monitor-grace-period"""
TAINT_INTERVAL_SECONDS = 10.0
"""--node-eviction-rate 0.1, with a burst of one."""

REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""The conditions that become Unknown when the kubelet is silent."""
TAINTS_OF_CONDITIONS = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
OWN_NO_SCHEDULE = frozenset({*TAINTS_OF_CONDITIONS.values(), UNSCHEDULABLE})
OWN_NO_EXECUTE = frozenset({NOT_READY, UNREACHABLE})


class NodeLifecycle(ModelController[str]):
    """It checks each node about once per grace period, and otherwise works only when a node changes."""

    name = "node-controller"

    def __init__(
        self,
        server: ApiServer,
        clock: Clock,
        entropy: Entropy,
        *,
        limiter: Limiter | None = None,
        grace_seconds: float = GRACE_SECONDS,
        renewed_seconds: Callable[[str], float | None] = lambda node: None,
    ) -> None:
        """`limiter` None: the limits of a stock kube-controller-manager.

        `renewed_seconds` is for clusters that do not write Lease renewals. It returns when a node last renewed its
        Lease, in the clock's monotonic time. None: that is unknown.
        """
        super().__init__(server, clock, entropy, limiter=limiter or Limiter(clock), workers=8)
        self._grace_seconds = grace_seconds
        self._renewed_seconds = renewed_seconds
        self._pods = BoundPods(server)
        self._heard_seconds: dict[str, float] = {}
        """By node: the time of the pass that found its last heartbeat. Silent nodes are left out."""
        self._pods_to_mark: dict[str, None] = {}
        """Nodes that became Unknown and whose pods are not all marked yet."""
        self._taint_due_seconds: dict[str, float] = {}
        """By node: the time of the pass that corrects its NoExecute taint."""
        self._next_taint_seconds = 0.0
        for node in server.objects(NODES):
            self._hear(node["metadata"]["name"])
            self.enqueue(node["metadata"]["name"])
        server.subscribe(self._on_node, NODES)
        server.subscribe(self._on_lease, LEASES)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run())
            tasks.create_task(self._monitor())

    async def sync(self, key: str) -> None:
        node = self.server.find(NODES, key)
        if node is None:
            return
        if self._is_silent(key):
            await self._mark_unknown(key)
        await self._put_no_schedule_right(key)
        await self._put_no_execute_right(key)
        if key in self._pods_to_mark:
            await self._mark_pods(key)
            self._pods_to_mark.pop(key, None)

    # Silence.

    async def _monitor(self) -> None:
        """Wake at the pass that could find the first node silent. A node that joins later cannot be silent earlier."""
        while True:
            now_seconds = self.clock.monotonic_seconds()
            next_seconds = now_seconds + self._grace_seconds
            for name in self._heard_seconds:
                silent_seconds = self._silent_seconds(name)
                if silent_seconds <= now_seconds + SAME_INSTANT_SECONDS:
                    self.enqueue(name)
                else:
                    next_seconds = min(next_seconds, silent_seconds)
            await self.clock.sleep(next_seconds - now_seconds)

    def _is_silent(self, name: str) -> bool:
        return self._silent_seconds(name) <= self.clock.monotonic_seconds() + SAME_INSTANT_SECONDS

    def _silent_seconds(self, name: str) -> float:
        """The time of the pass that finds it silent without a new heartbeat. Infinity: it is already silent or gone."""
        heard_seconds = self._heard_seconds.get(name, math.inf)
        renewed_seconds = self._renewed_seconds(name)
        if renewed_seconds is not None:
            heard_seconds = max(heard_seconds, _pass_at(renewed_seconds))
        return heard_seconds + self._grace_seconds

    def _hear(self, name: str) -> None:
        self._heard_seconds[name] = _pass_at(self.clock.monotonic_seconds())

    async def _mark_unknown(self, name: str) -> None:
        await self.limiter.take()
        node = self.server.find(NODES, name)
        if node is None or not self._is_silent(name):
            return
        status = _statuses(node).get("Ready")
        if status != "Unknown":
            self._write_status(name, [self._unknown(node, kind) for kind in REPORTED])
            self._taint_due_seconds[name] = self.clock.monotonic_seconds()
        if status == "True":
            self._pods_to_mark[name] = None
        del self._heard_seconds[name]

    def _unknown(self, node: Body, kind: str) -> Body:
        known = next((condition for condition in _conditions(node) if condition["type"] == kind), None)
        now = timestamp(self.clock.now())
        if known is None:
            reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
            heartbeat = node["metadata"]["creationTimestamp"]
        elif known["status"] == "Unknown":
            return known
        else:
            reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
            heartbeat = known.get("lastHeartbeatTime")
        return {
            "type": kind,
            "status": "Unknown",
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": heartbeat,
            "lastTransitionTime": now,
        }

    def _write_status(self, name: str, conditions: list[Body]) -> None:
        patch = {"status": {"conditions": conditions}}
        with self.server.acting(self.name):
            self.server.patch(NODES, name, patch, kind=PatchKind.STRATEGIC, subresource="status")

    async def _mark_pods(self, node: str) -> None:
        """Set Ready=False on the node's pods. Their phases and containers stay as the kubelet last reported them."""
        for pod in self._pods.on(node):
            if all((kind, status) != ("Ready", "True") for kind, status in _statuses(pod).items()):
                continue
            await self.limiter.take()
            metadata = pod["metadata"]
            condition = {"type": "Ready", "status": "False", "lastTransitionTime": timestamp(self.clock.now())}
            patch = {"metadata": {"uid": metadata["uid"]}, "status": {"conditions": [condition]}}
            try:
                with self.server.acting(self.name):
                    self.server.patch(
                        PODS,
                        metadata["name"],
                        patch,
                        kind=PatchKind.STRATEGIC,
                        namespace=metadata["namespace"],
                        subresource="status",
                    )
            except StatusError as error:
                if error.code not in {404, 409}:
                    raise  # Otherwise the pod is gone, even if another pod has its name.

    # Taints.

    async def _put_no_schedule_right(self, name: str) -> None:
        """Set the NoSchedule taints that the conditions and `unschedulable` require, without waiting for a pass."""
        node = self.server.find(NODES, name)
        if node is None:
            return
        wanted = [TAINTS_OF_CONDITIONS[said] for said in _statuses(node).items() if said in TAINTS_OF_CONDITIONS]
        if _spec(node).get("unschedulable"):
            wanted.append(UNSCHEDULABLE)
        await self._swap(node, NO_SCHEDULE, wanted, OWN_NO_SCHEDULE)

    async def _put_no_execute_right(self, name: str) -> None:
        """Set the NoExecute taint that Ready requires, at the next pass. The rate limit applies to a first taint."""
        node = self.server.find(NODES, name)
        if node is None:
            return
        taint = TAINTS_OF_CONDITIONS.get(("Ready", _statuses(node).get("Ready", "")))
        wanted = [taint] if taint else []
        there = [taint["key"] for taint in taints_of(node, NO_EXECUTE) if taint["key"] in OWN_NO_EXECUTE]
        if wanted == there:
            self._taint_due_seconds.pop(name, None)
            return
        first = bool(wanted) and not there
        now_seconds = self.clock.monotonic_seconds()
        due_seconds = self._taint_due_seconds.setdefault(name, _pass_at(now_seconds))
        if first:
            due_seconds = max(due_seconds, self._next_taint_seconds)
        if now_seconds < due_seconds:
            self.enqueue_after(name, due_seconds - now_seconds)
            return
        if first:
            self._next_taint_seconds = now_seconds + TAINT_INTERVAL_SECONDS
        del self._taint_due_seconds[name]
        await self._swap(node, NO_EXECUTE, wanted, OWN_NO_EXECUTE)

    async def _swap(self, node: Body, effect: str, wanted: list[str], own: Iterable[str]) -> None:
        """Make the taints with this effect and a key in `own` exactly the wanted ones. It costs a read and a write."""
        there = [taint["key"] for taint in taints_of(node, effect) if taint["key"] in own]
        if sorted(there) == sorted(wanted):
            return
        name = node["metadata"]["name"]
        await self.limiter.take()
        await self.limiter.take()
        node = self.server.get(NODES, name)
        kept = [
            taint
            for taint in _spec(node).get("taints") or ()
            if taint["effect"] != effect or taint["key"] not in own or taint["key"] in wanted
        ]
        known = {taint["key"] for taint in kept if taint["effect"] == effect}
        now = timestamp(self.clock.now())
        made = [{"key": key, "effect": effect, "timeAdded": now} for key in wanted if key not in known]
        with self.server.acting(self.name):
            self.server.patch(NODES, name, {"spec": {"taints": [*kept, *made] or None}}, kind=PatchKind.MERGE)

    # Changes.

    def _on_node(self, change: ObjectChange) -> None:
        node, before = change.body, change.before
        name = node["metadata"]["name"]
        if change.type == "DELETED":
            for known in (self._heard_seconds, self._pods_to_mark, self._taint_due_seconds):
                known.pop(name, None)
            return
        if before is None or _heartbeat(before) != _heartbeat(node):
            self._hear(name)
        if before is None or _statuses(before) != _statuses(node) or _spec(before) != _spec(node):
            self.enqueue(name)

    def _on_lease(self, change: ObjectChange) -> None:
        metadata = change.body["metadata"]
        if metadata["namespace"] != LEASE_NAMESPACE or change.type == "DELETED":
            return
        if self.server.find(NODES, metadata["name"]):
            self._hear(metadata["name"])


def _pass_at(seconds: float) -> float:
    """The time of the first pass over all nodes at that moment or later, in the clock's monotonic time."""
    return math.ceil(seconds / PERIOD_SECONDS) * PERIOD_SECONDS


def _conditions(body: Body) -> Iterable[Body]:
    return body.get("status", {}).get("conditions") or ()


def _statuses(body: Body) -> dict[str, str]:
    """The status of each condition, by its type."""
    return {condition["type"]: condition["status"] for condition in _conditions(body)}


def _heartbeat(node: Body) -> object:
    return next((item.get("lastHeartbeatTime") for item in _conditions(node) if item["type"] == "Ready"), None)


def _spec(node: Body) -> Body:
    spec: Body = node.get("spec", {})
    return spec
