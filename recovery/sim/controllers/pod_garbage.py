"""Pod garbage collection: it force-deletes pods that no kubelet will ever finish.

Modelled after pkg/controller/podgc (Kubernetes 1.36), without the threshold of terminated pods (12,500 by default). It
deletes three kinds of pods: terminating pods on a node that is not ready and has the out-of-service taint; pods bound
to a node that is still missing after a quarantine; terminating pods that were never bound. Only the second kind gets
the condition DisruptionTarget.
"""

import asyncio
import math
from collections.abc import Callable, Iterable

from recovery.ports import NODES, PODS, Clock, Entropy, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.bound_pods import TERMINAL_PHASES, BoundPods, PodKey, key_of
from recovery.sim.controllers.controller import CONFLICTS, ModelController
from recovery.sim.controllers.disruption import disruption_patch
from recovery.sim.controllers.request_limiter import Limiter
from recovery.sim.controllers.taints import OUT_OF_SERVICE

PERIOD_SECONDS = 20.0
QUARANTINE_SECONDS = 40.0
ALL = "all"
"""The only key: a pass over everything."""


class PodGarbage(ModelController[str]):
    """It makes a pass every 20 s of the clock, but skips a pass that would have nothing to do."""

    name = "pod-garbage-collector"

    def __init__(self, server: ApiServer, clock: Clock, entropy: Entropy, *, limiter: Limiter | None = None) -> None:
        """`limiter` None: the limits of a stock kube-controller-manager."""
        super().__init__(server, clock, entropy, limiter=limiter or Limiter(clock), workers=1)
        self._pods = BoundPods(server)
        self._unbound: dict[PodKey, Body] = {}
        """Terminating pods that were never bound."""
        self._missing_since_seconds: dict[str, float] = {}
        """By missing node: the time of the pass that first found pods on it."""
        self._next_pass: asyncio.TimerHandle | None = None
        for pod in server.objects(PODS):
            self._learn(pod)
        server.subscribe(self._on_change, PODS, NODES)

    async def sync(self, key: str) -> None:
        self._next_pass = None
        garbage = [*self._terminating_out_of_service(), *self._orphans(), *self._unbound_terminating()]
        for pod, why in garbage:
            await self._force_delete(pod, why)
        if garbage or self._missing_since_seconds:
            self._pass_soon()

    # Garbage: pods, each with the message of its DisruptionTarget (empty: it gets none).

    def _terminating_out_of_service(self) -> Iterable[tuple[Body, str]]:
        for name in self._pods.nodes():
            node = self.server.find(NODES, name)
            if node and not _ready(node) and _out_of_service(node):
                yield from ((pod, "") for pod in self._pods.on(name) if _is_left(pod) and _terminating(pod))

    def _orphans(self) -> Iterable[tuple[Body, str]]:
        now_seconds = self.clock.monotonic_seconds()
        missing = [name for name in self._pods.nodes() if self.server.find(NODES, name) is None]
        missing = [name for name in missing if any(_is_left(pod) for pod in self._pods.on(name))]
        self._missing_since_seconds = {name: self._missing_since_seconds.get(name, now_seconds) for name in missing}
        for name, since_seconds in self._missing_since_seconds.items():
            # The half period is a tolerance: every pass starts a moment late, which must not add a whole period.
            if now_seconds - since_seconds > QUARANTINE_SECONDS - PERIOD_SECONDS / 2:
                yield from ((pod, "PodGC: node no longer exists") for pod in self._pods.on(name) if _is_left(pod))

    def _unbound_terminating(self) -> Iterable[tuple[Body, str]]:
        return [(pod, "") for pod in self._unbound.values() if _is_left(pod)]

    # Writes.

    async def _force_delete(self, pod: Body, why: str) -> None:
        metadata = pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]

        def patch() -> None:
            said = disruption_patch(pod, "DeletionByPodGC", why, self.clock.now()) if why else None
            body = said or {"metadata": {"uid": metadata["uid"]}, "status": {}}
            body["status"]["phase"] = "Failed"
            self.server.patch(PODS, name, body, kind=PatchKind.STRATEGIC, namespace=namespace, subresource="status")

        try:
            if pod.get("status", {}).get("phase") not in TERMINAL_PHASES:
                await self._send(patch)
            await self._send(lambda: self.server.delete(PODS, name, namespace=namespace, grace_seconds=0))
        except StatusError as error:
            if error.code not in CONFLICTS:
                raise  # Otherwise the pod has changed or is gone: the next pass handles it.

    async def _send(self, write: Callable[[], object]) -> None:
        await self.limiter.take()
        with self.server.acting(self.name):
            write()

    # Changes.

    def _on_change(self, change: ObjectChange) -> None:
        body = change.body
        if change.resource == NODES:
            if (change.type == "DELETED" or _out_of_service(body)) and self._pods.on(body["metadata"]["name"]):
                self._pass_soon()
            return
        before = change.before
        if change.type == "DELETED":
            self._unbound.pop(key_of(body), None)
        elif not before or before["spec"] is not body["spec"] or before["metadata"] != body["metadata"]:
            self._learn(body)
        elif key_of(body) in self._unbound:
            self._unbound[key_of(body)] = body

    def _learn(self, pod: Body) -> None:
        """Take note of a pod, and schedule a pass if the pod is or may become garbage."""
        node = pod["spec"].get("nodeName")
        if node:
            self._unbound.pop(key_of(pod), None)
            found = self.server.find(NODES, node)
            if found is None or (_terminating(pod) and _out_of_service(found)):
                self._pass_soon()
        elif _terminating(pod):
            self._unbound[key_of(pod)] = pod
            self._pass_soon()

    def _pass_soon(self) -> None:
        """Schedule a pass at the next multiple of 20 s, when the real controller makes one."""
        if self._next_pass is None:
            now_seconds = self.clock.monotonic_seconds()
            seconds = (math.floor(now_seconds / PERIOD_SECONDS) + 1) * PERIOD_SECONDS - now_seconds
            self._next_pass = asyncio.get_running_loop().call_later(seconds, self.enqueue, ALL)


def _ready(node: Body) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _out_of_service(node: Body) -> bool:
    return any(taint["key"] == OUT_OF_SERVICE for taint in node.get("spec", {}).get("taints") or ())


def _terminating(pod: Body) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_left(pod: Body) -> bool:
    """The pod is not force-deleted yet. Finalizers may still hold one that is, and another delete changes nothing."""
    forced = pod["metadata"].get("deletionGracePeriodSeconds") == 0
    return not (forced and pod.get("status", {}).get("phase") in TERMINAL_PHASES)
