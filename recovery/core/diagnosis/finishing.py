"""Whether the training of a group is about to complete. A restart would discard the finished work."""

from collections.abc import Iterator
from datetime import datetime

from recovery.core.diagnosis.membership import failing, member_count, member_jobs, pods_of, rank
from recovery.core.diagnosis.training_container import ended_well
from recovery.core.model.derived import derived
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot
from recovery.core.model.reason import Explanation, Reason, explained
from recovery.core.model.sentence import Sentence

_BARE_JOB_SET = "JobSet"
"""The kind of a workload that is a JobSet without a controller."""


def finishing(snapshot: Snapshot) -> Explanation | None:
    """Why the training counts as about to complete. None: it does not."""
    found = first_done(snapshot)
    return None if found is None else found[1]


def success_jobs(snapshot: Snapshot) -> tuple[JobFacts, ...]:
    """The member Jobs whose success makes the training succeed.

    In a TrainJob every member trains, unless the `successPolicy` of its JobSet targets some, such as the MPI launcher.
    """
    jobs, jobset, workload = member_jobs(snapshot), snapshot.jobset, snapshot.workload
    if jobset is None or workload is None:
        return jobs
    names = jobset.success_jobs if workload.kind == _BARE_JOB_SET else frozenset(jobset.success_targets)
    return tuple(job for job in jobs if job.replicated_job in names) if names else jobs


@derived
def first_done(snapshot: Snapshot) -> tuple[JobFacts, Explanation] | None:
    """The first Job that shows the training finishing, and how it does. None: the training is not finishing."""
    jobs = success_jobs(snapshot)
    for job in jobs:
        if job.condition("Complete") is not None or job.condition("SuccessCriteriaMet") is not None:
            return job, explained(Sentence.CRITERIA_MET, Reason.JOB_FINISHING, job=job.name)
        pods = pods_of(snapshot, job)
        if job.torn_down_by:
            # The controller deletes its pods. None of them was done before, and a trainer may exit 0 on SIGTERM.
            pods = tuple(pod for pod in pods if pod.deleting_since is None)
        done = next((pod for pod in pods if pod.phase == "Succeeded"), None)
        if done is not None or (job.succeeded > 0 and not job.torn_down_by):
            who = f"pod {done.name}" if done is not None else f"a pod of Job {job.name}"
            return job, explained(Sentence.MEMBER_SUCCEEDED, Reason.JOB_FINISHING, who=who)
        done = next((pod for pod in pods if pod.phase != "Failed" and ended_well(pod)), None)
        if done is None and failing(job) is not None:
            # A failing Job deletes its pods, even those whose training was done before. Such training stays done.
            mine = (pod for pod in snapshot.pods if pod.job_uid == job.uid and ended_well(pod))
            done = next((pod for pod in mine if pod.deleting_since is not None or pod.gone_at is not None), None)
        if done is not None:
            return job, _container_done(done)
    if jobs and all_done(snapshot):
        # Other containers have failed all of these pods since. The Jobs replace them, but the training is done.
        done = next(_done_pods(snapshot, jobs[0]))
        return jobs[0], _container_done(done)
    return None


def _container_done(pod: PodFacts) -> Explanation:
    names = ", ".join(each.name for each in pod.containers)
    return explained(Sentence.CONTAINER_SUCCEEDED, Reason.JOB_FINISHING, containers=names, pod=pod.name)


@derived
def all_done(snapshot: Snapshot) -> bool:
    """Every rank has completed its training, although other containers may keep its pod from phase Succeeded."""
    jobs = success_jobs(snapshot)
    if not jobs or len(member_jobs(snapshot)) < snapshot.expected_jobs:
        return False
    return all(len({rank(pod) for pod in _done_pods(snapshot, job)}) >= member_count(job) for job in jobs)


def done_since(snapshot: Snapshot, job: JobFacts) -> datetime | None:
    """When the first rank of the Job completed its training. None: its end has no date, or no rank has."""
    ends = (each.exit.finished_at for pod in _done_pods(snapshot, job) for each in pod.containers if each.exit)
    return min((moment for moment in ends if moment is not None), default=None)


def last_begun(snapshot: Snapshot) -> datetime | None:
    """When the last of the ranks that completed their training began. None: the start of one of them is not known."""
    done = [pod for job in success_jobs(snapshot) for pod in _done_pods(snapshot, job)]
    begun = [each.exit.started_at if each.exit is not None else None for pod in done for each in pod.containers]
    known = [moment for moment in begun if moment is not None]
    return max(known) if known and len(known) == len(begun) else None


def _done_pods(snapshot: Snapshot, job: JobFacts) -> Iterator[PodFacts]:
    """The pods in which ranks of the Job completed their training. Pods that are only remembered come last."""
    seen = [pod for pod in pods_of(snapshot, job) if _done(pod)]
    yield from seen
    known = {rank(pod) for pod in seen}
    yield from (pod for pod in snapshot.done.get(job.uid, ()) if rank(pod) not in known)


def _done(pod: PodFacts) -> bool:
    """The training completed, and not because the pod was deleted or disrupted: a trainer may exit 0 on SIGTERM."""
    return pod.phase == "Succeeded" or (ended_well(pod) and not (pod.phase == "Failed" and _asked_to_go(pod)))


def ended_by_itself(pod: PodFacts) -> bool:
    """The training completed while the pod was not deleted or disrupted. It stays done, whatever happens to the pod."""
    return ended_well(pod) and not _asked_to_go(pod)


def _asked_to_go(pod: PodFacts) -> bool:
    return pod.deleting_since is not None or any(
        each.type == "DisruptionTarget" and each.status == "True" for each in pod.conditions
    )
