"""Members that the scheduler has found no node for, and how many a group has to place."""

from recovery.core.diagnosis.membership import member_count, member_jobs, pods_of
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


def seats(snapshot: Snapshot) -> int:
    """How many pods a group without any has to place: those that ask for accelerators, or all where none does. Nodes
    are counted for these (`kube.capacity.scarce`)."""
    jobs = member_jobs(snapshot)
    scarce = [job for job in jobs if job.demand.gpus] or jobs
    return sum(map(member_count, scarce))
