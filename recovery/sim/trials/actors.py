"""How people, machines and other controllers write to the modelled cluster in a trial. A write that the server refuses
is dropped, because its object has changed or no longer exists."""

import asyncio
from collections.abc import Callable

from recovery.ports import NODES, PODS, PatchKind, Propagation, Resource
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError

CHAOS = "chaos"
"""The actor of faults that machines cause on pods and nodes."""
USER = "user"
KUEUE = "kueue"
CLEANER = "pod-cleaner"
SCHEDULER = "kube-scheduler"
MONITOR = "node-problem-detector"
"""The actor of what node monitors write."""
AGENT = "health-agent"
"""The actor of what the health agent writes, which also repairs nodes."""


class Actors:
    """Writes under a given actor's name."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        if seconds <= 0:
            act()
        else:
            asyncio.get_running_loop().call_later(seconds, act)

    def attempt(self, actor: str, write: Callable[[], object]) -> bool:
        """Makes a write. False: the server refused it."""
        try:
            with self.server.acting(actor):
                write()
        except StatusError:
            return False
        return True

    def merge(self, actor: str, resource: Resource, name: str, namespace: str | None, patch: Body) -> None:
        self.attempt(actor, lambda: self.server.patch(resource, name, patch, kind=PatchKind.MERGE, namespace=namespace))

    def status(self, actor: str, resource: Resource, name: str, namespace: str | None, patch: Body) -> None:
        """A strategic patch of the status: conditions merge by type."""
        self.attempt(
            actor,
            lambda: self.server.patch(
                resource, name, patch, kind=PatchKind.STRATEGIC, namespace=namespace, subresource="status"
            ),
        )

    def remove(
        self,
        actor: str,
        resource: Resource,
        body: Body,
        *,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        metadata = body["metadata"]
        self.attempt(
            actor,
            lambda: self.server.delete(
                resource,
                metadata["name"],
                namespace=metadata.get("namespace"),
                uid=metadata["uid"],
                grace_seconds=grace_seconds,
                propagation=propagation,
            ),
        )

    def evict(self, metadata: Body) -> None:
        """Uses the eviction API."""
        name, namespace = metadata["name"], metadata["namespace"]
        eviction: Body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.attempt(
            CHAOS, lambda: self.server.create(PODS, eviction, namespace=namespace, name=name, subresource="eviction")
        )

    # Nodes.

    def node(self, name: str) -> Body | None:
        """The Node. None: it does not exist."""
        return self.server.find(NODES, name)

    def cordon(self, actor: str, name: str, cordoned: bool) -> None:
        self.merge(actor, NODES, name, None, {"spec": {"unschedulable": cordoned or None}})

    def taint(self, actor: str, name: str, taint: Body) -> None:
        self._set_taints(actor, name, [*self.taints(name, besides=taint["key"]), taint])

    def untaint(self, actor: str, name: str, key: str) -> None:
        self._set_taints(actor, name, self.taints(name, besides=key))

    def taints(self, name: str, *, besides: str) -> list[Body]:
        node = self.node(name)
        return [taint for taint in (node or {}).get("spec", {}).get("taints") or () if taint["key"] != besides]

    def _set_taints(self, actor: str, name: str, taints: list[Body]) -> None:
        self.merge(actor, NODES, name, None, {"spec": {"taints": taints or None}})
