"""Members that the scheduler has found no node for."""

from recovery.core.diagnosis.membership import member_jobs, pods_of
from recovery.core.model.facts import PodFacts, Snapshot


def unscheduled(snapshot: Snapshot) -> list[tuple[PodFacts, str]]:
    """The members that no node has room for, and what the scheduler says. A pod that the scheduler has not tried yet
    has no condition PodScheduled, so it is not one of them."""
    return [
        (pod, condition.message or condition.reason)
        for job in member_jobs(snapshot)
        for pod in pods_of(snapshot, job)
        for condition in pod.conditions
        if condition.type == "PodScheduled" and not pod.node and pod.deleting_since is None
    ]
