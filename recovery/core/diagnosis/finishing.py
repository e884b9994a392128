"""Whether the training of a group is about to be complete: a restart would throw away what is done."""

from datetime import datetime

from recovery.core.diagnosis.membership import failing, member_count, member_jobs, pods_of, rank
from recovery.core.diagnosis.training_container import ended_well
from recovery.core.model.facts import PodFacts, Snapshot
from recovery.core.model.reason import Explanation, Reason, Sentence, told


def finishing(snapshot: Snapshot) -> Explanation | None:
    """The training is about to be complete: restarting it would throw away what is done."""
    for job in member_jobs(snapshot):
        if job.condition("Complete") is not None or job.condition("SuccessCriteriaMet") is not None:
            return told(Sentence.CRITERIA_MET, Reason.JOB_FINISHING, job=job.name)
        pods = pods_of(snapshot, job)
        done = next((pod for pod in pods if pod.phase == "Succeeded"), None)
        if done is not None or job.succeeded > 0:
            who = f"pod {done.name}" if done is not None else f"a pod of Job {job.name}"
            return told(Sentence.MEMBER_SUCCEEDED, Reason.JOB_FINISHING, who=who)
        done = next((pod for pod in pods if pod.phase != "Failed" and ended_well(pod)), None)
        if done is None and failing(job) is not None:
            # A Job that gives up takes down its pods, also those whose training was done before: it stays done.
            mine = (pod for pod in snapshot.pods if pod.job_uid == job.uid and ended_well(pod))
            done = next((pod for pod in mine if pod.deleting_since is not None or pod.gone_at is not None), None)
        if done is not None:
            names = ", ".join(each.name for each in done.containers)
            return told(Sentence.CONTAINER_SUCCEEDED, Reason.JOB_FINISHING, containers=names, pod=done.name)
    return None


def all_done(snapshot: Snapshot) -> bool:
    """Every rank has trained to its end, though other containers may keep its pod from having Succeeded."""
    jobs = member_jobs(snapshot)
    if not jobs or len(jobs) < snapshot.expected_jobs:
        return False
    return all(len({rank(pod) for pod in pods_of(snapshot, job) if _done(pod)}) >= member_count(job) for job in jobs)


def last_begun(snapshot: Snapshot) -> datetime | None:
    """When the last of those ranks began. None: nothing says when one of them did."""
    done = [pod for job in member_jobs(snapshot) for pod in pods_of(snapshot, job) if _done(pod)]
    begun = [each.exit.started_at if each.exit is not None else None for pod in done for each in pod.containers]
    known = [moment for moment in begun if moment is not None]
    return max(known) if known and len(known) == len(begun) else None


def _done(pod: PodFacts) -> bool:
    return pod.phase == "Succeeded" or (pod.phase != "Failed" and ended_well(pod))
