"""JobSet: it creates Jobs, and the Job controller creates pods. A workload of either kind has a JobSet, or is one.

Every name that we share with those controllers is defined here once, with its writer and its reader. Our own
annotations are in `core.model.annotations`.
"""

from collections.abc import Iterable

from recovery.core.model.facts import GroupKey, JobFacts, JobSetFacts
from recovery.ports import JOB_SETS

JOBSET_NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
"""On Jobs and pods. Written by JobSet; read here as the name of the group, because a TrainJob's JobSet has the name of
the TrainJob."""

REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
"""On Jobs and pods. Written by JobSet; read here to distinguish members from the Jobs that prepare for them."""

JOBSET_UID_LABEL = "jobset.sigs.k8s.io/jobset-uid"
"""On Jobs and pods. Written by JobSet; it shows the admission policy which Jobs the birth settings are for."""

RESTART_ATTEMPT_LABEL = "jobset.sigs.k8s.io/restart-attempt"
"""On Jobs and pods: `status.restarts` of the JobSet when the Job was created. Written by JobSet, which deletes Jobs
with a lower value; read by `core` to recognise the platform's own restarts. We write it only for the dry run of a Job:
a value that is no integer blocks JobSet's reconciler."""

REPLICAS_LABEL = "jobset.sigs.k8s.io/replicatedjob-replicas"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
GROUP_NAME_LABEL = "jobset.sigs.k8s.io/group-name"
"""On Jobs and pods, like the two labels above. Written by JobSet; not read here. We write them for the dry run of a
Job, because policies of others may select by them."""

COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""On pods of Indexed Jobs. Written by the Job controller; read here as the pod's index. torchrun's node rank comes from
it as well."""

INDEX_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
"""On pods of Jobs with a backoffLimitPerIndex: how many pods of the index failed before. Written by the Job controller;
read here to see whether the next failure exhausts the limit of the index (KEP-3850)."""

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
"""On pods of Jobs. The Job controller removes it from a pod that has ended once it has counted that. From a pod that
it deletes on purpose it removes it first (`deleteJobPods` in pkg/controller/job/job_controller.go, Kubernetes 1.36)."""

DEPENDENCY_COMPLETE = "Complete"
"""`dependsOn[].status` of a ReplicatedJob that starts when another one is complete. The other status is Ready."""

JOB_CREATION_FAILED = "JobCreationFailed"
"""Reason of JobSet's Event for one or several Jobs that could not be created. The message has the errors."""

COMPLETED_CONDITION = "Completed"
"""JobSet's condition type for a finished JobSet. TrainJobs, Jobs and `core` use Complete."""

GROUPS_SELECTOR = JOBSET_NAME_LABEL
"""The label selector of the Jobs and pods of all groups."""


def group_selector(key: GroupKey) -> str:
    """The label selector of the Jobs and pods of one group."""
    return f"{JOBSET_NAME_LABEL}={key.name}"


def groups_selector(names: Iterable[str]) -> str:
    """The label selector of the Jobs and pods of the groups of these names, in any namespace."""
    return f"{JOBSET_NAME_LABEL} in ({','.join(names)})"


def prepares(replicated_job: str, jobset: JobSetFacts) -> bool:
    """Whether another ReplicatedJob starts only when this one is Complete. It then ends before the training begins."""
    return any(replicated_job in each.waits_for_complete for each in jobset.replicated_jobs)


class BareJobSetAdapter:
    """`WorkloadAdapter` for JobSets that nothing controls."""

    resource = JOB_SETS

    def is_member(self, replicated_job: str, jobset: JobSetFacts | None, job: JobFacts | None) -> bool:
        """Every ReplicatedJob is a member, except those that prepare: a bare JobSet shows no other purpose.

        A ReplicatedJob whose success ends the training stays a member when it is Complete, and shows `core` that the
        group is finishing. Any other has then done its part, and a restart of the group must not repeat it.
        """
        if jobset is None:
            return True
        if prepares(replicated_job, jobset):
            return False
        by_its_success = not jobset.success_jobs or replicated_job in jobset.success_jobs
        return by_its_success or job is None or job.condition("Complete") is None
