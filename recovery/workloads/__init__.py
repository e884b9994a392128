"""What differs between kinds of workloads, behind one Protocol.

The controller restarts groups of pods; that a group is a TrainJob on a JobSet today, and may be a bare JobSet or a
Volcano Job tomorrow, is known here and nowhere else. The Protocol holds only what somebody asks: how the objects of a
group are found, and which of them fail and restart together. It grows with the second kind, not before.
"""

from typing import Protocol

from recovery.core.facts import GroupKey, JobFacts, JobSetFacts


class WorkloadAdapter(Protocol):
    """One kind of workload."""

    @property
    def selector(self) -> str:
        """The label selector of the Jobs and pods of all groups of this kind."""
        ...

    def group_selector(self, key: GroupKey) -> str:
        """The label selector of the Jobs and pods of one group."""
        ...

    def is_member(self, replicated_job: str, jobset: JobSetFacts | None, job: JobFacts | None) -> bool:
        """Whether the pods of that Job of that ReplicatedJob fail and restart with the group.

        `jobset` None: not made yet, or gone. `job` None: not seen yet, or gone while its pods are still there.
        """
        ...
