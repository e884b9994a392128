"""The setup under which a group runs, as hashes of facts: two setups with equal hashes recover in the same way."""

from recovery.core.diagnosis.membership import member_count, member_jobs, pods_of, rank
from recovery.core.model.facts import JobFacts, JobSetFacts, Snapshot
from recovery.core.model.proof import digest_of


def runtime_digest(snapshot: Snapshot) -> str:
    """What the JobSet and its Jobs say about the runtime. Empty: not all of them are there.

    Birth settings change the size of a Job, its demand on nodes and the number of its pods, so these come from the
    JobSet, or are left out. Kueue changes the demand as well, with each admission.
    """
    jobset, jobs = snapshot.jobset, member_jobs(snapshot)
    if jobset is None or jobset.deleting_since is not None or len(jobs) < max(1, snapshot.expected_jobs):
        return ""
    # The Jobs of one ReplicatedJob have the same template.
    templates = {job.replicated_job: _template(job) for job in jobs}
    return digest_of(_of_jobset(jobset), templates)


def _of_jobset(jobset: JobSetFacts) -> tuple[object, ...]:
    return (
        sorted(jobset.replicated_jobs, key=lambda each: each.name),
        jobset.failure_policy,
        jobset.success_targets,
        jobset.active_deadline_seconds,
    )


def _template(job: JobFacts) -> tuple[object, ...]:
    return (
        job.backoff_limit if job.own_backoff_limit is None else job.own_backoff_limit,
        job.backoff_limit_per_index,
        job.active_deadline_seconds,
        job.pod_restart_policy,
        job.containers,
        job.training_container,
        job.collective,
        job.pod_failure_rules,
        job.gang,
        job.agent_image,
    )


def image_digest(snapshot: Snapshot) -> str:
    """The images that the training containers of all members run. Empty: one of them is not known."""
    jobs, images = member_jobs(snapshot), set[str]()
    if len(jobs) < max(1, snapshot.expected_jobs):
        return ""
    for job in jobs:
        members = [pod for pod in pods_of(snapshot, job) if pod.deleting_since is None and pod.containers]
        if len({rank(pod) for pod in members}) < member_count(job):
            return ""
        images |= {container.image for pod in members for container in pod.containers}
    return "" if "" in images else digest_of(sorted(images))
