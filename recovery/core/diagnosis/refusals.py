"""Pods that a kubelet refuses at admission, and the nodes that refuse pods of one group again and again.

After a reboot a node is Ready before its device plugin has registered the devices, and a kubelet may know other labels
or other free resources than the scheduler. Such a node has room, so the scheduler picks it again for each replacement.
The fault mostly passes within minutes, and says little about the node: all nodes show it while a plugin is rolled out.

Source: `rejectPod` in pkg/kubelet/kubelet.go, Kubernetes 1.31 to 1.36. `status.reason` has no fixed set of values:
UnexpectedAdmissionError, OutOf and the name of a resource, NodeAffinity, TopologyAffinityError and others.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from recovery.core.diagnosis.membership import Rank, member_jobs, rank
from recovery.core.model.facts import PodFacts, Snapshot

REFUSALS = 2
"""A node that has refused this many pods of a group is avoided: one refusal may have passed before the next pod."""
_REJECTED = "Pod was rejected: "


class RefusingNode(msgspec.Struct, frozen=True):
    """A node whose kubelet has refused pods of the group at least `REFUSALS` times."""

    node: str
    count: int
    reason: str
    """`status.reason` of the latest refused pod. Empty: the pods of the first refusals are gone."""
    blocks: bool
    """A rank that it has refused has no other pod yet, so the group waits for it."""


def is_refused(pod: PodFacts) -> bool:
    """The kubelet refused the pod at admission. A pod that ran before its kubelet restarted may be refused as well."""
    return pod.phase == "Failed" and bool(pod.node) and pod.message.startswith(_REJECTED)


def waiting_refused(snapshot: Snapshot) -> list[PodFacts]:
    """The refused members that no later pod has replaced by one that its kubelet accepts."""
    found = []
    for job in member_jobs(snapshot):
        pods = [pod for pod in snapshot.pods if pod.job_uid == job.uid]
        accepted = {rank(pod) for pod in pods if pod.gone_at is None and not is_refused(pod) and pod.node}
        found += [pod for pod in pods if is_refused(pod) and rank(pod) not in accepted]
    return found


def is_shared(troubled: int, well: int) -> bool:
    """What happens on that many nodes is no fault of a node: no member fares better, or too few do."""
    return not well or (troubled > 1 and well < 2 * troubled)


def refusing_nodes(snapshot: Snapshot, earlier: Iterable[str] = ()) -> tuple[RefusingNode, ...]:
    """The nodes that refuse the group again and again, sorted. `earlier`: the node of each refusal before the restart.

    Empty as well if most nodes refuse its pods: the pods may ask for what no kubelet allows, or a plugin is down.
    """
    jobs = {job.uid for job in member_jobs(snapshot)}
    pods = sorted((pod for pod in snapshot.pods if pod.job_uid in jobs), key=lambda pod: pod.created_at)
    refused = [pod for pod in pods if is_refused(pod)]
    counts = Counter(earlier)
    counts.update(pod.node for pod in refused)
    troubled = {pod.node for pod in refused}
    well = {pod.node for pod in pods if _is_accepted(pod)} - troubled
    if is_shared(len(troubled), len(well)):
        return ()
    newest: dict[tuple[str, Rank], PodFacts] = {(pod.job_uid, rank(pod)): pod for pod in pods}
    blocking = {pod.node for pod in newest.values() if is_refused(pod)}
    reasons = {pod.node: pod.reason for pod in refused}
    return tuple(
        RefusingNode(node, counts[node], reasons.get(node, ""), node in blocking)
        for node in sorted(counts)
        if counts[node] >= REFUSALS
    )


def _is_accepted(pod: PodFacts) -> bool:
    """The kubelet of its node has accepted the pod, and still does."""
    if not pod.node or pod.gone_at is not None or pod.deleting_since is not None or pod.phase == "Failed":
        return False
    return pod.running or pod.accepted_at is not None
