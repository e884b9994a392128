"""Who belongs to a group: its member Jobs, their pods and ranks, and whether all of them run."""

from collections.abc import Collection, Mapping

from recovery.core.model.derived import derived
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot


def place(pod: PodFacts) -> str:
    """The pod in words: `pod train-node-0-3-x7k2p (rank 3, node gpu-3)`."""
    rank = "" if pod.index is None else f"rank {pod.index}, "
    return f"pod {pod.name} ({rank}{'node ' + pod.node if pod.node else 'not scheduled'})"


def failing(job: JobFacts) -> str | None:
    """The reason why the Job is failing or has failed, None if it is not. (FailureTarget precedes Failed.)"""
    condition = job.condition("Failed") or job.condition("FailureTarget")
    return None if condition is None else condition.reason or "Failed"


def stands_still(job: JobFacts) -> bool:
    """The Job is suspended, or the Job controller has not yet seen that it was resumed. Its pods belong to the earlier
    run."""
    return job.suspended or job.condition("Suspended") is not None


@derived
def member_jobs(snapshot: Snapshot) -> tuple[JobFacts, ...]:
    """The Jobs of the present incarnation, without those being deleted."""
    if snapshot.jobset is None:
        return ()
    return tuple(j for j in snapshot.jobs if j.jobset_uid == snapshot.jobset.uid and j.deleting_since is None)


def pods_of(snapshot: Snapshot, job: JobFacts) -> tuple[PodFacts, ...]:
    """The Job's pods that exist."""
    return _existing_pods(snapshot).get(job.uid, ())


@derived
def _existing_pods(snapshot: Snapshot) -> Mapping[str, tuple[PodFacts, ...]]:
    """By Job UID."""
    found: dict[str, list[PodFacts]] = {}
    for pod in snapshot.pods:
        if pod.gone_at is None:
            found.setdefault(pod.job_uid, []).append(pod)
    return {uid: tuple(pods) for uid, pods in found.items()}


@derived
def group_runs_whole(snapshot: Snapshot) -> bool:
    """All member Jobs exist, and each of their members runs and is Ready. Objects being deleted do not count."""
    jobs = member_jobs(snapshot)
    return len(jobs) >= max(1, snapshot.expected_jobs) and all(_job_runs_whole(snapshot, job) for job in jobs)


def _job_runs_whole(snapshot: Snapshot, job: JobFacts) -> bool:
    """A Job that a user has just made smaller still has the pods of the ranks that it does not need any more. They fill
    no other rank."""
    wanted = member_count(job)
    members = [p for p in pods_of(snapshot, job) if p.running and p.ready and p.deleting_since is None]
    return len({rank(p) for p in members if p.index is None or p.index < wanted}) >= wanted


def members_ready(snapshot: Snapshot, job_uids: Collection[str]) -> int:
    """How many members of these Jobs run and are Ready. `job_uids`: the UIDs of member Jobs."""
    return len(
        {
            (pod.job_uid, rank(pod))
            for pod in snapshot.pods
            if pod.job_uid in job_uids and pod.gone_at is None and pod.deleting_since is None
            if pod.running and pod.ready
        }
    )


@derived
def restarts_of(snapshot: Snapshot) -> int:
    """How often the JobSet has restarted itself. Its Jobs may show a restart before its own status has arrived."""
    jobset = snapshot.jobset
    if jobset is None:
        return 0
    return max(jobset.restarts, *(j.restart_attempt for j in snapshot.jobs if j.jobset_uid == jobset.uid), 0)


Rank = int | str
"""The completion index. In a Job that is not Indexed, the pod's UID, because no pod there takes another one's place."""


def member_count(job: JobFacts) -> int:
    """How many pods of the Job must run for the group to be whole."""
    if job.completions is None:
        return job.parallelism
    return min(job.parallelism, job.completions)


def rank(pod: PodFacts) -> Rank:
    """The pod's place in its group, no matter which pod fills it."""
    return pod.index if pod.index is not None else pod.uid
