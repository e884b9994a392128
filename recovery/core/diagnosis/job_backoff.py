"""How long a Job waits before it creates the next pod, because pods of it have failed or were deleted.

The wait doubles with each of them, from 10 s up to 10 minutes, and nothing but the success of a pod ends the row. The
Job does not show it: its controller keeps the row in memory, and forgets it when it restarts. So the moment that is
found here is the latest one.

Source: pkg/controller/job/backoff_utils.go and `manageJob` in job_controller.go, Kubernetes 1.36. With a
backoffLimitPerIndex each index has a row of its own.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.membership import failing, member_count, rank, stands_still
from recovery.core.diagnosis.trained import pods_of_runs
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot

SHORT = timedelta(minutes=1)
"""A wait of at most this is not worth a word or a restart."""
_FIRST_SECONDS, _LONGEST_SECONDS = 10, 600
_DOUBLINGS_MAX = 10


class JobBackOff(msgspec.Struct, frozen=True):
    """A Job that lacks a pod and creates none before `until`."""

    job: JobFacts
    since: datetime
    """When the latest of its pods failed or was deleted."""
    until: datetime
    lost: int
    """How many of its pods failed or were deleted."""


def waiting(snapshot: Snapshot, job: JobFacts) -> JobBackOff | None:
    """None: it lacks no pod, it is not to create one, or nothing dates the pods that it has lost."""
    if job.deleting_since is not None or stands_still(job) or failing(job) is not None or job.succeeded:
        return None
    pods = pods_of_runs(snapshot)[job.uid]
    filled = {rank(pod) for pod in pods if not _counts(pod)}
    lost = [pod for pod in pods if _counts(pod) and not pod.let_go]
    missing = [pod for pod in lost if pod.index is None or rank(pod) not in filled]
    if len(filled) >= member_count(job):
        return None
    if job.backoff_limit_per_index is None:
        # Of pods that are gone unseen only the Job's status is left: it has changed last when it counted them.
        since, failures = max(map(_finished_at, lost), default=job.status_written_at), max(job.failed, len(lost))
        if since is None or not failures:
            return None
        until = since + _delay(failures)
    elif not missing:
        return None
    else:
        since, until = max((_finished_at(pod), _finished_at(pod) + _delay(pod.index_failures + 1)) for pod in missing)
    return JobBackOff(job, since, until, max(job.failed, len(lost)))


def _delay(failures: int) -> timedelta:
    return timedelta(seconds=min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(failures - 1, _DOUBLINGS_MAX)))


def _counts(pod: PodFacts) -> bool:
    """The Job controller counts the pod as failed, as `job_limits` does."""
    lost = pod.deleting_since is not None or pod.gone_at is not None
    return pod.phase == "Failed" or (lost and pod.phase != "Succeeded")


def _finished_at(pod: PodFacts) -> datetime:
    """`getFinishedTime` of the Job controller, as far as the facts show it."""
    ends = (each.exit.finished_at for each in pod.all_containers if each.exit is not None)
    known = [end for end in ends if end is not None]
    if known:
        return max(known)
    return pod.deleting_since or pod.gone_at or pod.created_at
