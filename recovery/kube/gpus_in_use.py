"""Counts accelerators in use by node: held by the pods of groups, or by other pods when these were last listed.

The informers watch only the pods of groups. Other workloads may have many times as many, and nothing else here asks
about them. So the accelerators that those hold are looked up only when needed, on a few nodes, and cached for a while.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from recovery.core.model.facts import NodeFacts, PodFacts
from recovery.kube.projections.pods import PodRecord

OTHERS_KNOWN_FOR = timedelta(minutes=5)
"""How long the accelerators held by pods of no group are remembered. Otherwise a node that such pods fill would look
free, be listed, and look free again."""


class NodeUse(msgspec.Struct, frozen=True):
    """Accelerators that were in use on a node when its pods were listed."""

    gpus: int
    by_others: int
    """How many of these are held by pods that belong to no group."""


class _Others(msgspec.Struct, frozen=True):
    gpus: int
    until: datetime


Follower = Callable[[str, int, int], None]
"""Called with the node and the number of accelerators in use there, before and after the change."""


class GpusInUse:
    """Counts the accelerators in use on each node. Constant work for each event."""

    def __init__(self) -> None:
        self._by_groups: dict[str, int] = {}
        """By node; nodes without any are left out."""
        self._by_others: OrderedDict[str, _Others] = OrderedDict()
        """By node, oldest entry first."""
        self._follower: Follower | None = None

    def follow(self, follower: Follower) -> None:
        """Set the only follower. The accelerators already in use are reported to it immediately."""
        self._follower = follower
        for node, gpus in self.by_node().items():
            follower(node, 0, gpus)

    def by_node(self) -> Mapping[str, int]:
        """Accelerators in use by node; nodes without any are left out."""
        nodes = {*self._by_groups, *self._by_others}
        return {node: gpus for node in sorted(nodes) if (gpus := self._on(node))}

    def pod_changed(self, before: PodRecord | None, after: PodRecord | None) -> None:
        """A pod of a group was seen for the first time (`before` None), is gone (`after` None) or has changed."""
        held, holds = _held_by(before), _held_by(after)
        if held == holds:
            return
        for use, sign in ((held, -1), (holds, 1)):
            if use is not None:
                node, gpus = use
                self._set_groups(node, self._by_groups.get(node, 0) + sign * gpus)

    def looked_at(self, found: Mapping[str, NodeUse], now: datetime) -> None:
        """The pods on these nodes have been listed."""
        for node, use in found.items():
            before = self._on(node)
            self._by_others.pop(node, None)
            if use.by_others:
                self._by_others[node] = _Others(use.by_others, now + OTHERS_KNOWN_FOR)
            self._report(node, before)

    def forget(self, now: datetime) -> None:
        """Drop what was seen on nodes too long ago to count."""
        while self._by_others:
            node, others = next(iter(self._by_others.items()))
            if others.until > now:
                break
            before = self._on(node)
            del self._by_others[node]
            self._report(node, before)

    def _set_groups(self, node: str, gpus: int) -> None:
        before = self._on(node)
        if gpus:
            self._by_groups[node] = gpus
        else:
            self._by_groups.pop(node, None)
        self._report(node, before)

    def _on(self, node: str) -> int:
        others = self._by_others.get(node)
        return self._by_groups.get(node, 0) + (others.gpus if others is not None else 0)

    def _report(self, node: str, before: int) -> None:
        after = self._on(node)
        if self._follower is not None and after != before:
            self._follower(node, before, after)


def free_gpus(seen: Mapping[str, NodeUse], nodes: Mapping[str, NodeFacts]) -> dict[str, int]:
    """Free accelerators on each node whose pods were listed and that still exists."""
    return {name: max(0, nodes[name].gpus - use.gpus) for name, use in seen.items() if name in nodes}


def gpus_held(pod: PodFacts) -> int:
    """Accelerators of a pod that is bound and has not ended. Those of DRA claims do not count: no node lists them."""
    return pod.demand.gpus if pod.holds_gpus else 0


def _held_by(record: PodRecord | None) -> tuple[str, int] | None:
    """The node of the pod and how many accelerators it holds there. None: it holds none."""
    gpus = gpus_held(record.facts) if record is not None else 0
    return (record.facts.node, gpus) if record is not None and gpus else None
