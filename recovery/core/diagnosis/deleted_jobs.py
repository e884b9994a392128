"""Jobs that a client has deleted although their group trained: all of their ranks are down until JobSet creates the
Jobs again, or until Trainer creates their JobSet again.

Not among them: Jobs that have ended (the platform deletes those, such as after their TTL), suspended ones, and ones
that JobSet deletes for a restart of its own. Whether the controller itself has deleted them, the ledger knows.
"""

from datetime import datetime

from recovery.core.diagnosis.membership import failing, member_jobs, place, restarts_of, stands_still
from recovery.core.model.derived import derived
from recovery.core.model.facts import JobFacts, Snapshot


@derived
def deleted_jobs(snapshot: Snapshot) -> tuple[JobFacts, ...]:
    """Those that are being deleted first, then those that are gone."""
    deleting = (job for job in snapshot.jobs if job.deleting_since is not None and job.uid in snapshot.trained_at)
    return tuple(job for job in (*deleting, *snapshot.gone_jobs) if _counts(snapshot, job))


def deletion_key(job_uid: str) -> str:
    """The key of the evidence that this Job was deleted."""
    return f"{job_uid}/deleted"


def deleted_at(job: JobFacts) -> datetime | None:
    """When the deletion was requested, as far as that was seen. None: it was not requested."""
    return job.deleting_since if job.deleting_since is not None else job.gone_at


def trained_beside(snapshot: Snapshot, job: JobFacts) -> tuple[JobFacts, ...]:
    """The other Jobs of the group of a deleted Job. Each had trained before that one was deleted, and existed when that
    one had trained.

    A Job that was created since may have the same restart attempt, but it had not trained by then. The dates of
    creations do not show that: a Job and its successor may be created and deleted in one second.
    """
    others = (other for other in (*snapshot.jobs, *snapshot.gone_jobs) if other.name != job.name)
    return tuple(
        other for other in others if _before_the_end(snapshot, other, job) and _before_the_end(snapshot, job, other)
    )


def _before_the_end(snapshot: Snapshot, one: JobFacts, other: JobFacts) -> bool:
    """One had trained before the other was deleted, if that ever was, and JobSet has not restarted the group since."""
    trained_at, end = snapshot.trained_at.get(one.uid), deleted_at(other)
    same = (one.jobset_uid, one.restart_attempt) == (other.jobset_uid, other.restart_attempt)
    return same and trained_at is not None and (end is None or trained_at < end)


def left_beside(snapshot: Snapshot, gone: JobFacts) -> JobFacts | None:
    """A Job that trained beside the deleted one and still exists: its ranks hang. None: there is none."""
    left = {job.uid for job in member_jobs(snapshot)}
    return next((job for job in trained_beside(snapshot, gone) if job.uid in left), None)


@derived
def deleted_alone(snapshot: Snapshot) -> tuple[JobFacts, ...]:
    """The deleted Jobs of a group of which other Jobs are left. Their ranks had met those of the others."""
    return tuple(job for job in deleted_jobs(snapshot) if left_beside(snapshot, job) is not None)


def in_words(snapshot: Snapshot, job: JobFacts) -> str:
    """What was deleted, and which pods still run without it."""
    jobset = snapshot.jobset
    of_another = jobset is None or jobset.uid != job.jobset_uid or jobset.deleting_since is not None
    left = what_orphans_hold(snapshot)
    words = f"Job {job.name} was deleted{' with its JobSet' if of_another else ''}"
    return f"{words} without its pods: {left}" if left else words


def what_orphans_hold(snapshot: Snapshot) -> str:
    """Pods without a Job that are not being deleted, in words. Empty: there are none."""
    left = [pod for pod in snapshot.pods if not pod.job_uid and pod.holds_gpus and pod.deleting_since is None]
    if not left:
        return ""
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    return f"{place(left[0])}{more} still hold{'' if more else 's'} {sum(pod.gpus for pod in left)} GPUs"


def _counts(snapshot: Snapshot, job: JobFacts) -> bool:
    workload, jobset = snapshot.workload, snapshot.jobset
    if workload is None or job.created_at < workload.created_at:
        return False  # a Job of an earlier workload of that name
    ended = any(job.condition(type_) is not None for type_ in ("Complete", "SuccessCriteriaMet"))
    if ended or failing(job) is not None or stands_still(job):
        return False
    by_jobset = jobset is not None and job.jobset_uid == jobset.uid and job.restart_attempt < restarts_of(snapshot)
    return not by_jobset
