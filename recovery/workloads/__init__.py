"""The differences between kinds of workloads, behind one Protocol.

The controller restarts groups of pods. Only this package knows that a group is a TrainJob on a JobSet, or a JobSet that
nothing controls, and could one day be a Volcano Job. Both present kinds use a JobSet, so JobSet's names are read in one
way for both (`workloads.jobset`). The Protocol holds only the differences.
"""

from typing import Protocol

from recovery.core.model.facts import JobFacts, JobSetFacts, WorkloadFacts
from recovery.ports import JOB_SETS, TRAIN_JOBS, Resource
from recovery.workloads.jobset import BareJobSetAdapter
from recovery.workloads.trainjob import TrainJobAdapter


class WorkloadAdapter(Protocol):
    """One kind of workload."""

    @property
    def resource(self) -> Resource:
        """The resource of this kind: the objects that a user suspends, annotates and deletes."""
        ...

    def is_member(self, replicated_job: str, jobset: JobSetFacts | None, job: JobFacts | None) -> bool:
        """Whether the pods of that Job of that ReplicatedJob fail and restart with the group.

        `jobset` None: not created yet, or gone. `job` None: not seen yet, or gone while its pods still exist.
        """
        ...


_ADAPTERS: dict[str, WorkloadAdapter] = {TRAIN_JOBS.kind: TrainJobAdapter(), JOB_SETS.kind: BareJobSetAdapter()}


def adapter_of(workload: WorkloadFacts | None) -> WorkloadAdapter:
    """The adapter of the workload's kind. None: the workload is gone, and its remains are read as a TrainJob's."""
    return _ADAPTERS[workload.kind if workload is not None else TRAIN_JOBS.kind]


def resource_of(workload: WorkloadFacts) -> Resource:
    """The resource for requests about that workload."""
    return adapter_of(workload).resource
