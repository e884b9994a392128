"""Which pods on lost nodes count as dead: by proof, or by assumption where both RecoveryConfig and the policy allow it.

Until then they may write checkpoints and do not count as lost, because a partitioned node still computes. Proof is that
the Node object is gone, or has the out-of-service taint (KEP-2268: set by a person who saw that the node is off).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from recovery.core.incident.preconditions import stale_nodes
from recovery.core.model.facts import NodeFacts, PodFacts, Snapshot
from recovery.core.model.reason import Explanation
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import FencingMode, PolicyError

OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"


class Fate(msgspec.Struct, frozen=True):
    """Whether the processes on a node count as dead. `dead_since` None: they may still run."""

    why: str
    dead_since: datetime | None = None
    changes_at: datetime | None = None
    """When they count as dead if nothing else changes. None: never."""


def marked(snapshot: Snapshot, policy: Policy | PolicyError | None, now: datetime, noticed: datetime) -> Snapshot:
    """The snapshot, in which every pod whose processes count as dead is marked."""
    fates = fates_of_nodes(snapshot, policy, now, noticed)
    if not any(fate.dead_since is not None for fate in fates.values()):
        return snapshot
    pods = tuple(_marked(pod, fates.get(pod.node)) for pod in snapshot.pods)
    return msgspec.structs.replace(snapshot, pods=pods)


def fates_of_nodes(
    snapshot: Snapshot, policy: Policy | PolicyError | None, now: datetime, noticed: datetime | None = None
) -> Mapping[str, Fate]:
    """The fates by node name, only of nodes of the group that do not answer, are out of service or do not exist."""
    found = {}
    for name in dict.fromkeys(pod.node for pod in snapshot.pods if pod.node and pod.gone_at is None):
        fate = _fate(name, snapshot, policy, now, noticed or now)
        if fate is not None:
            found[name] = fate
    return found


def _marked(pod: PodFacts, fate: Fate | None) -> PodFacts:
    if fate is None or fate.dead_since is None or pod.gone_at is not None or pod.phase in {"Failed", "Succeeded"}:
        return pod
    return msgspec.structs.replace(pod, dead_since=fate.dead_since, dead_because=fate.why)


def _fate(
    name: str, snapshot: Snapshot, policy: Policy | PolicyError | None, now: datetime, noticed: datetime
) -> Fate | None:
    """None: the node answers."""
    node = snapshot.nodes.get(name)
    if node is None:
        return Fate(f"node {name} was deleted", dead_since=noticed) if name in snapshot.gone_nodes else None
    out = next((taint for taint in node.taints if taint.key == OUT_OF_SERVICE_TAINT), None)
    if out is not None and not node.ready:
        return Fate(f"node {name} is out of service", dead_since=out.since or node.ready_since or noticed)
    if node.ready or node.reachable:
        return None
    return _assumed(node, policy, now, unseen=stale_nodes(snapshot))


def _assumed(
    node: NodeFacts, policy: Policy | PolicyError | None, now: datetime, *, unseen: Explanation | None
) -> Fate:
    """Whether a node that does not answer is assumed dead.

    `unseen`: why the facts about nodes may be stale. The node is not assumed dead then. Proof that a node is dead is
    read live, so stale facts do not affect it.
    """
    since = node.ready_since or now
    silent = f"node {node.name} has not answered since {since:%H:%M:%S} ({node.ready_reason or 'unreachable'})"
    waits = "its processes may still run until its Node object is deleted or has the out-of-service taint"
    if not isinstance(policy, Policy) or policy.fencing is not FencingMode.ASSUME_DEAD:
        return Fate(f"{silent}, and {waits}")
    if not policy.may_assume_dead:
        return Fate(f"{silent}, and {waits}: RecoveryConfig does not allow assumeDead")
    if unseen is not None:
        return Fate(f"{silent}, and it is not assumed dead while the watches of nodes are silent")
    heard = max(since, node.lease_renewed_at) if node.lease_renewed_at is not None else since
    dead_at = heard + policy.assume_dead_after
    if now < dead_at:
        return Fate(f"{silent}; it is assumed dead after {_words(policy.assume_dead_after)}", changes_at=dead_at)
    return Fate(f"{silent}, so policy {policy.name} assumes that it is dead (AssumeDead)", dead_since=since)


def _words(duration: timedelta) -> str:
    return f"{int(duration.total_seconds())} s"
