"""What the loss of nodes would mean for an elastic group, before any is lost.

As in a decision, `core.incident.sizes` determines which sizes are allowed, and whether the size can change at all.
"""

from collections import Counter
from datetime import timedelta

import msgspec

from recovery.core.diagnosis.membership import member_count, pods_of
from recovery.core.incident import sizes
from recovery.core.model.facts import JobFacts, Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.model.reason import Explanation
from recovery.core.model.rules import RuleAction
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode

LOSSES = (1, 2, 4)
"""How many nodes are lost at once."""


class NodeLoss(msgspec.Struct, frozen=True):
    """The loss of this many nodes at once: those with the most pods of the group."""

    nodes: int
    pods: int
    """The pods of the group on these nodes."""
    replaced: bool | None
    """There is room for all of these pods. None: it is not known."""
    placed: int
    """Pods that then have a node: those that are left, and those for which there is room, as far as that is known."""
    size: int | None
    """The number of nodes that the group continues with if the lost ones are not replaced. None: it waits for nodes."""


class ElasticOutlook(msgspec.Struct, frozen=True):
    """What an elastic group without an incident would do."""

    nodes: int
    wanted_nodes: int
    """How many nodes it wants."""
    least: int
    """The smallest allowed size."""
    room: int | None
    """How many more pods there is room for. None: it is not known."""
    shrink_after: timedelta
    at_once: tuple[str, ...]
    """Rules that shrink the group without that wait."""
    fixed: Explanation | None
    """Why the size cannot be changed. None: it can."""
    quota_kept: Explanation | None
    """The note that Kueue keeps the quota of the full size. None: Kueue does not manage the job."""
    losses: tuple[NodeLoss, ...]


def elastic_outlook(snapshot: Snapshot, ledger: Ledger, policy: Policy | None) -> ElasticOutlook | None:
    """None: the policy does not let the group shrink, an incident is open, or no single Job has trained."""
    job, workload = sizes.only_job(snapshot), snapshot.workload
    if policy is None or policy.elastic is None or policy.mode is not Mode.ENFORCE or ledger.incident is not None:
        return None
    if job is None or workload is None or job.uid not in snapshot.trained_at:
        return None
    found, elastic = sizes.resizable(snapshot), policy.elastic
    fixed = found if isinstance(found, Explanation) else None
    wanted = sizes.wanted_nodes(ledger, snapshot, job)
    room = snapshot.fleet.room if snapshot.fleet is not None else None
    return ElasticOutlook(
        nodes=member_count(job),
        wanted_nodes=wanted,
        least=sizes.smallest(elastic, wanted),
        room=room.pods if room is not None else None,
        shrink_after=timedelta(seconds=elastic.shrink_after_seconds),
        at_once=tuple(rule.name for rule in policy.rules if rule.action is RuleAction.SHRINK),
        fixed=fixed,
        quota_kept=sizes.quota_kept(workload, wanted),
        losses=_losses(snapshot, job, elastic if fixed is None else None, wanted, room.pods if room else None),
    )


def _losses(
    snapshot: Snapshot, job: JobFacts, elastic: PinnedElastic | None, wanted: int, room: int | None
) -> tuple[NodeLoss, ...]:
    """`elastic` None: the size cannot be changed."""
    living = [pod for pod in pods_of(snapshot, job) if pod.node and pod.deleting_since is None]
    by_node = sorted(Counter(pod.node for pod in living).values(), reverse=True)
    found = []
    for nodes in LOSSES:
        if nodes > len(by_node):
            break
        pods = sum(by_node[:nodes])
        placed = len(living) - pods + min(room or 0, pods)
        size = sizes.largest(elastic, placed, wanted) if elastic is not None else None
        found.append(NodeLoss(nodes, pods, None if room is None else room >= pods, placed, size))
    return tuple(found)
