"""Which pods are bound to which node: the index that every controller of nodes needs."""

from collections.abc import Iterable

from recovery.ports import PODS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange

PodKey = tuple[str, str]
"""Namespace and name."""

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
"""Of a pod that runs no more and takes nothing of its node."""


class BoundPods:
    """The pods by the node that their spec names, whether there is such a node or not. Kept current by the server."""

    def __init__(self, server: ApiServer) -> None:
        self._nodes: dict[str, dict[PodKey, Body]] = {}
        for body in server.objects(PODS):
            self._put(body)
        server.subscribe(self._on_change, PODS)

    def on(self, node: str) -> list[Body]:
        """In the order in which they were bound."""
        return list(self._nodes.get(node, {}).values())

    def nodes(self) -> Iterable[str]:
        """The names that pods are bound to, in the order in which they were first used."""
        return list(self._nodes)

    def _put(self, body: Body) -> None:
        node = body["spec"].get("nodeName")
        if node:
            self._nodes.setdefault(node, {})[key_of(body)] = body

    def _on_change(self, change: ObjectChange) -> None:
        if change.type != "DELETED":
            self._put(change.body)
            return
        node = change.body["spec"].get("nodeName")
        if node:
            pods = self._nodes[node]
            del pods[key_of(change.body)]
            if not pods:
                del self._nodes[node]


def key_of(pod: Body) -> PodKey:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]
