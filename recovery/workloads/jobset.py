"""JobSet: it makes Jobs, the Job controller makes pods. Both kinds of workloads stand on one, or are one.

Every name that those controllers and we agree on stands here once, with who writes it and who reads it. The annotations
that are ours alone stand in `core.policy.spec`.
"""

from collections.abc import Iterable

from recovery.core.model.facts import GroupKey, JobFacts, JobSetFacts
from recovery.ports import JOB_SETS

JOBSET_NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
"""On Jobs and pods. Written by JobSet; read here as the name of the group, because a TrainJob's JobSet has the name of
the TrainJob."""

REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
"""On Jobs and pods. Written by JobSet; read here to distinguish members from those that prepare for them."""

JOBSET_UID_LABEL = "jobset.sigs.k8s.io/jobset-uid"
"""On Jobs and pods. Written by JobSet; it shows the admission policy for which Jobs birth settings are."""

RESTART_ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"
"""On Jobs and pods: `status.restarts` of the JobSet when the Job was made. Written by JobSet, which deletes Jobs with a
lower one; read by `core` to recognise the platform's own restarts. Never written by us: a value that is no integer
wedges JobSet's reconciler."""

REPLICAS_LABEL = "jobset.sigs.k8s.io/replicatedjob-replicas"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
GROUP_NAME_LABEL = "jobset.sigs.k8s.io/group-name"
"""On Jobs and pods, with the two above. Written by JobSet; not read here, and written for the dry run of a Job
because policies of others may select by them."""

COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""On pods of Indexed Jobs. Written by the Job controller; read here as the pod's index, from which torchrun's node rank
comes as well."""

INDEX_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
"""On pods of Jobs with a backoffLimitPerIndex: how many pods of the index failed before. Written by the Job controller;
read here to see whether the next failure is the last that the index may have (KEP-3850)."""

DEPENDENCY_COMPLETE = "Complete"
"""`dependsOn[].status` of a ReplicatedJob that starts when another one is finished; the other status is Ready."""

JOB_CREATION_FAILED = "JobCreationFailed"
"""Reason of the Event by which JobSet says that a Job, or several, could not be created; the message has the errors."""

COMPLETED_CONDITION = "Completed"
"""How JobSet calls the condition of a finished JobSet; TrainJobs and Jobs, and so `core`, say Complete."""

GROUPS_SELECTOR = JOBSET_NAME_LABEL
"""The label selector of the Jobs and pods of all groups."""


def group_selector(key: GroupKey) -> str:
    """The label selector of the Jobs and pods of one group."""
    return f"{JOBSET_NAME_LABEL}={key.name}"


def groups_selector(names: Iterable[str]) -> str:
    """The label selector of the Jobs and pods of the groups of these names, in whatever namespace."""
    return f"{JOBSET_NAME_LABEL} in ({','.join(names)})"


def prepares(replicated_job: str, jobset: JobSetFacts) -> bool:
    """Another ReplicatedJob starts only when this one is Complete: it is over before the training begins."""
    return any(replicated_job in each.waits_for_complete for each in jobset.replicated_jobs)


class BareJobSetAdapter:
    """`WorkloadAdapter` for JobSets that nothing controls."""

    resource = JOB_SETS

    def is_member(self, replicated_job: str, jobset: JobSetFacts | None, job: JobFacts | None) -> bool:
        """Every ReplicatedJob is, but for those that prepare: nothing else shows what the others are for.

        One by whose success the training ends stays a member when it is Complete, and by it `core` sees that the group
        is finishing. Any other has done its part then, and a restart of the group must not do it again.
        """
        if jobset is None:
            return True
        if prepares(replicated_job, jobset):
            return False
        by_its_success = not jobset.success_jobs or replicated_job in jobset.success_jobs
        return by_its_success or job is None or job.condition("Complete") is None
