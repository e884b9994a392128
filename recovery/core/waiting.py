"""Why a group has not started: capacity, images, settings that the kubelet cannot make a container of.

Nothing is restarted for it. Before a group has run whole nobody hangs, and a pod made anew would wait for the same.
"""

from recovery.core.evidence import member_jobs, place, pods_of
from recovery.core.facts import PodFacts, Snapshot

_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
_MAX_QUOTE = 300


def hindered(snapshot: Snapshot) -> tuple[PodFacts, str] | None:
    """The first member, by rank, that something keeps from starting, and what that is. None: none is known of."""
    for job in member_jobs(snapshot):
        for pod in sorted(pods_of(snapshot, job), key=lambda pod: (pod.index is None, pod.index or 0, pod.name)):
            why = "" if pod.running or pod.deleting_since is not None else _hindrance(pod)
            if why:
                return pod, why
    return None


def words(snapshot: Snapshot) -> str:
    """The same in words; empty: nothing is known."""
    found = hindered(snapshot)
    return "" if found is None else f"{place(found[0])} waits: {found[1]}"


def _hindrance(pod: PodFacts) -> str:
    unplaced = next((each for each in pod.conditions if each.type == "PodScheduled" and not pod.node), None)
    if unplaced is not None:
        return f"{unplaced.reason or 'Unschedulable'}: {unplaced.message[:_MAX_QUOTE]}"
    for container in (*pod.init_containers, *pod.containers):
        if container.waiting_reason not in _ON_ITS_WAY:
            said = f": {container.waiting_message[:_MAX_QUOTE]}" if container.waiting_message else ""
            return f"{container.waiting_reason}{said}"
    return ""
