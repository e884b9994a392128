"""How many more exits the Jobs of a group survive while a restart waits.

A hung group does not hang forever: when NCCL or a rendezvous times out, each rank exits, and each exit counts towards
the `backoffLimit` of its Job. If a Job fails, a JobSet without a failurePolicy fails permanently.

Sources: `syncJob` (`exceedsBackoffLimit`) and `pastBackoffLimitOnFailure` in pkg/controller/job/job_controller.go,
Kubernetes 1.36; KEP-3850 (backoffLimitPerIndex); KEP-262 (JobSet failurePolicy).
"""

from collections.abc import Iterable

from recovery.core.diagnosis.membership import failing, member_count, member_jobs
from recovery.core.diagnosis.trained import pods_of_run
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence


def no_time_to_wait(snapshot: Snapshot) -> Explanation | None:
    """Why the restart must not wait: the platform may end the job meanwhile. None: every rank may exit once more.

    Every rank counts, even one that was replaced or restarted: it waits for its peers, and times out as they do.
    """
    jobset = snapshot.jobset
    if jobset is not None and jobset.failure_policy is not None:
        return explained(Sentence.FAILURE_POLICY_AT_ONCE, Reason.FAILURE_POLICY, jobset=jobset.name)
    for job in member_jobs(snapshot):
        ranks, left = member_count(job), exits_left(job, snapshot.pods)
        if failing(job) is not None:
            return because(Reason.JOB_FAILING, job=job.name)
        if left is None:
            return explained(Sentence.INDEX_EXITS_UNKNOWN, Reason.BACKOFF_LIMIT, job=job.name)
        if left < ranks:
            return because(Reason.BACKOFF_LIMIT, job=job.name, limit=job.backoff_limit, exits=max(left, 0), ranks=ranks)
    return None


def exits_left(job: JobFacts, pods: Iterable[PodFacts]) -> int | None:
    """How many more exits the Job survives. Negative: it fails at its next sync. None: not known.

    The Job fails when its failed pods exceed `backoffLimit`. With restartPolicy OnFailure it also fails when the
    restarts of all containers of its active pods, init containers included, reach `backoffLimit`.
    """
    if job.backoff_limit_per_index is not None:
        # Each index has a count of its own, in an annotation of its pod, which is not evaluated here.
        return None
    # A suspension deletes pods without counting them, so pods of an earlier run are left out.
    mine = pods_of_run(job, pods)
    failed_pods = sum(_counts_as_failed(pod) for pod in mine if not pod.let_go)
    # The Job's status may lag behind its pods, and pods that failed long ago may be gone.
    left = job.backoff_limit - max(job.failed, failed_pods)
    if job.pod_restart_policy != "OnFailure":
        return left
    restarts = sum(_restarts(pod) for pod in mine if pod.gone_at is None and pod.phase in {"Pending", "Running"})
    return min(left, job.backoff_limit - 1 - restarts)


def own_limit(job: JobFacts) -> int:
    """The backoffLimit that the user gave the Job, in retries."""
    return job.backoff_limit if job.own_backoff_limit is None else job.own_backoff_limit


def not_to_be_raised(job: JobFacts) -> Explanation | None:
    """A limit that ends the Job when ranks exit, and that no one can raise. None: there is none."""
    if job.backoff_limit_per_index is not None:
        return explained(Sentence.INDEX_EXITS_UNKNOWN, Reason.BACKOFF_LIMIT, job=job.name)
    if not own_limit(job):
        return because(Reason.BACKOFF_LIMIT_ZERO, job=job.name)
    return None


def _counts_as_failed(pod: PodFacts) -> bool:
    """`isPodFailed` of the Job controller: a pod that is being deleted counts, unless it has succeeded."""
    lost = pod.deleting_since is not None or pod.gone_at is not None
    return pod.phase == "Failed" or (lost and pod.phase != "Succeeded")


def _restarts(pod: PodFacts) -> int:
    """Restarts that the kubelet has counted, and those that it is about to count for containers that have failed."""
    return sum(
        container.restarts + (container.exit is not None and container.exit.code != 0)
        for container in pod.all_containers
    )
