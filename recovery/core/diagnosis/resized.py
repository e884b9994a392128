"""Whether a user has changed the size of a child Job since it was created, or since it ran.

JobSet does not change such a Job, but it creates the next Job from the template, or with the size in the birth settings
of the ledger. So a restart would undo the user's size.
"""

import msgspec

from recovery.core.diagnosis.membership import member_count, member_jobs
from recovery.core.model.facts import JobFacts, ReplicatedJobFacts, Snapshot
from recovery.core.model.reason import Explanation, Reason, because


def resized(snapshot: Snapshot) -> Explanation | None:
    """Which Job has a size that its successor would not have. None: no Job, or no template gives the size."""
    if snapshot.jobset is None:
        return None
    for job in member_jobs(snapshot):
        size, born = member_count(job), job.born_nodes
        template = template_size(snapshot, job) if born is None else born
        if template is not None and size != template:
            return because(Reason.USER_RESIZED, job=job.name, size=size, template=template)
    return None


def members_for_certain(snapshot: Snapshot, job: JobFacts) -> int:
    """How many ranks the Job had for certain when all of them ran at once.

    A rank that a user has added since the Job was created may have come later, and then its first pod has replaced no
    one. No object shows when the size was changed. So nothing is inferred about such a rank: not from its age, nor from
    a pod that it lacks. That one of its pods ended is seen as of any other rank.
    """
    known = min(snapshot.trained_members.get(job.uid, member_count(job)), member_count(job))
    created_with = job.born_nodes if job.born_nodes is not None else template_size(snapshot, job)
    return known if created_with is None else min(known, created_with)


def template_size(snapshot: Snapshot, job: JobFacts) -> int | None:
    """The size that JobSet itself gives the Job's successor. None: the template does not give it."""
    jobset = snapshot.jobset
    found = (each for each in (jobset.replicated_jobs if jobset is not None else ()) if each.name == job.replicated_job)
    return next((_size(each) for each in found), None)


def _size(template: ReplicatedJobFacts) -> int | None:
    """How many pods a whole Job of that template has. The API server's default of `parallelism` is 1."""
    if not template.size_known:
        return None
    parallelism = 1 if template.parallelism is None else template.parallelism
    return parallelism if template.completions is None else min(parallelism, template.completions)


def without_added_ranks(snapshot: Snapshot) -> Snapshot | None:
    """The snapshot without the ranks that a user has added since all ranks ran. None: no rank was added, or an added
    one runs."""
    added = {
        job.uid: ran_with
        for job in member_jobs(snapshot)
        if (ran_with := snapshot.trained_members.get(job.uid)) is not None and job.completions is not None
        if ran_with < member_count(job)
    }
    late = {
        pod.uid
        for pod in snapshot.pods
        if pod.index is not None and pod.job_uid in added and pod.index >= added[pod.job_uid]
    }
    if not added or any(pod.running for pod in snapshot.pods if pod.uid in late):
        return None

    def sized(job: JobFacts) -> JobFacts:
        size = added.get(job.uid)
        return job if size is None else msgspec.structs.replace(job, parallelism=size, completions=size)

    pods = tuple(pod for pod in snapshot.pods if pod.uid not in late)
    return msgspec.structs.replace(snapshot, jobs=tuple(map(sized, snapshot.jobs)), pods=pods)
