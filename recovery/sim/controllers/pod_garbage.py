"""Pod garbage collection: force-deletes pods that no kubelet will ever finish.

Modelled after pkg/controller/podgc (Kubernetes 1.36), without the threshold of terminated pods (12,500 by default):
pods that terminate on a node with the out-of-service taint that is not ready; pods bound to a node that is gone and
was still gone after a quarantine; pods that terminate without ever having been bound. Only those of the second kind
get the condition DisruptionTarget.
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
    """Passes every 20 s of the clock, those left out in which there would be nothing to do."""

    name = "pod-garbage-collector"

    def __init__(self, server: ApiServer, clock: Clock, entropy: Entropy, *, limiter: Limiter | None = None) -> None:
        """`limiter` None: that of a stock controller-manager."""
        super().__init__(server, clock, entropy, limiter=limiter or Limiter(clock), workers=1)
        self._pods = BoundPods(server)
        self._unbound: dict[PodKey, Body] = {}
        """Those that terminate without ever having been bound."""
        self._missing_since_seconds: dict[str, float] = {}
        """The pass that first found pods on a node that is not there."""
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

    # What is garbage: pods, and the message of their DisruptionTarget (empty: they get none).

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
            # A pass that begins a moment late, as all do, is not a whole period later for it.
            if now_seconds - since_seconds > QUARANTINE_SECONDS - PERIOD_SECONDS / 2:
                yield from ((pod, "PodGC: node no longer exists") for pod in self._pods.on(name) if _is_left(pod))

    def _unbound_terminating(self) -> Iterable[tuple[Body, str]]:
        return [(pod, "") for pod in self._unbound.values() if _is_left(pod)]

    # Doing.

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
                raise  # Else it is gone, or another: the next pass sees.

    async def _send(self, write: Callable[[], object]) -> None:
        await self.limiter.take()
        with self.server.acting(self.name):
            write()

    # Learning.

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
        """As it is now: is there, or could there be, something to do?"""
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
        """In the next pass of those that the real one makes every 20 s."""
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
    """Not yet force-deleted: doing it again to one that its finalizers hold would change nothing."""
    forced = pod["metadata"].get("deletionGracePeriodSeconds") == 0
    return not (forced and pod.get("status", {}).get("phase") in TERMINAL_PHASES)
