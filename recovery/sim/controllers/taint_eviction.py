"""The taint-eviction controller: it deletes pods from a node with a NoExecute taint when their toleration ends.

Modelled after pkg/controller/tainteviction (Kubernetes 1.36). The time counts from when the pod was first seen under a
taint. It is reset when the last taint is removed, but does not start again when one taint replaces another.
"""

import math

from recovery.ports import NODES, PODS, Clock, Entropy, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.bound_pods import BoundPods, PodKey, key_of
from recovery.sim.controllers.controller import ModelController
from recovery.sim.controllers.disruption import disruption_patch
from recovery.sim.controllers.request_limiter import Limiter
from recovery.sim.controllers.taints import NO_EXECUTE, taints_of, tolerated_seconds

EVICTED = -math.inf
"""Replaces the time at which the pod was first seen: a pod is evicted only once, even if its object stays for long."""


class TaintEviction(ModelController[PodKey]):
    """Deletes pods with the reason DeletionByTaintManager. It costs nothing while no node has a NoExecute taint."""

    name = "taint-eviction-controller"

    def __init__(self, server: ApiServer, clock: Clock, entropy: Entropy, *, limiter: Limiter | None = None) -> None:
        """`limiter` None: the limits of a stock kube-controller-manager."""
        super().__init__(server, clock, entropy, limiter=limiter or Limiter(clock), workers=8)
        self._pods = BoundPods(server)
        self._since_seconds: dict[str, float] = {}
        """By UID of the pod: when it was first seen under a taint."""
        for node in server.objects(NODES):
            self._enqueue_pods_of(node)
        server.subscribe(self._on_node, NODES)
        server.subscribe(self._on_pod, PODS)

    async def sync(self, key: PodKey) -> None:
        namespace, name = key
        pod = self.server.find(PODS, name, namespace)
        node = pod and self.server.find(NODES, pod["spec"].get("nodeName", ""))
        if not pod or not node:
            return  # A node that is gone has no taints. Its pods are left to other controllers.
        uid = pod["metadata"]["uid"]
        taints = taints_of(node, NO_EXECUTE)
        if not taints:
            self._since_seconds.pop(uid, None)
            return
        now_seconds = self.clock.monotonic_seconds()
        since_seconds = self._since_seconds.setdefault(uid, now_seconds)
        stay_seconds = tolerated_seconds(taints, pod["spec"].get("tolerations") or ())
        if since_seconds == EVICTED or stay_seconds == math.inf:
            return
        left_seconds = since_seconds + stay_seconds - now_seconds
        if left_seconds > 0:
            self.enqueue_after(key, left_seconds)
            return
        await self._evict(namespace, name)
        self._since_seconds[uid] = EVICTED

    async def _evict(self, namespace: str, name: str) -> None:
        """Read the pod, set its condition and delete it, all by name as in the real controller."""
        await self.limiter.take()
        pod = self.server.get(PODS, name, namespace=namespace)
        patch = disruption_patch(
            pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", self.clock.now()
        )
        if patch:
            await self.limiter.take()
            with self.server.acting(self.name):
                self.server.patch(
                    PODS, name, patch, kind=PatchKind.STRATEGIC, namespace=namespace, subresource="status"
                )
        await self.limiter.take()
        with self.server.acting(self.name):
            self.server.delete(PODS, name, namespace=namespace)

    def _on_node(self, change: ObjectChange) -> None:
        if change.type == "DELETED":
            return
        before = taints_of(change.before, NO_EXECUTE) if change.before else []
        if before != taints_of(change.body, NO_EXECUTE):
            self._enqueue_pods_of(change.body)

    def _enqueue_pods_of(self, node: Body) -> None:
        for pod in self._pods.on(node["metadata"]["name"]):
            self.enqueue(key_of(pod))

    def _on_pod(self, change: ObjectChange) -> None:
        pod, before = change.body, change.before
        if change.type == "DELETED":
            self._since_seconds.pop(pod["metadata"]["uid"], None)
            return
        node_name = pod["spec"].get("nodeName")
        if not node_name or (before and before["spec"] is pod["spec"]):
            return
        known = before["spec"] if before else {}
        asked = (node_name, pod["spec"].get("tolerations"))
        if asked == (known.get("nodeName"), known.get("tolerations")):
            return
        node = self.server.find(NODES, node_name)
        if node and taints_of(node, NO_EXECUTE):
            self.enqueue(key_of(pod))
