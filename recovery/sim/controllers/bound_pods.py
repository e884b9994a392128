"""The index of pods by node, which every node controller needs."""

from collections.abc import Iterable

from recovery.ports import PODS
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange

PodKey = tuple[str, str]
"""Namespace and name."""

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that no longer runs and uses no resources of its node."""


class BoundPods:
    """The pods by the node that their spec names, even if that node does not exist. Each change updates the index."""

    def __init__(self, server: ApiServer) -> None:
        self._nodes: dict[str, dict[PodKey, Body]] = {}
        for body in server.objects(PODS):
            self._put(body)
        server.subscribe(self._on_change, PODS)

    def on(self, node: str) -> list[Body]:
        """The pods on the node, in the order in which they were bound."""
        return list(self._nodes.get(node, {}).values())

    def nodes(self) -> Iterable[str]:
        """The names of nodes that pods are bound to, in the order of their first pod."""
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
