"""What bars the controller from a group, whatever has failed in it."""

from recovery.core.diagnosis.evidence import failing, member_jobs, pods_of
from recovery.core.diagnosis.training_container import ended_well
from recovery.core.model.facts import Snapshot, WorkloadFacts
from recovery.core.policy.spec import Mode, Policy, PolicyError, paused


def ended(workload: WorkloadFacts) -> tuple[str, str] | None:
    """Why the workload itself is nobody's business any more: a CamelCase reason and a sentence. None: it lives."""
    if workload.deleting_since is not None:
        return "JobDeleted", f"the {workload.kind} is being deleted"
    if workload.condition("Complete") is not None:
        return "JobComplete", f"the {workload.kind} is Complete"
    return None


def left_alone(snapshot: Snapshot, workload: WorkloadFacts) -> tuple[str, str] | None:
    """Why the job is nobody's business now. None: it is ours to watch.

    Whoever suspends a job wants it to stand still; that a suspension is ours has to be found out before this is asked.
    """
    jobset = snapshot.jobset
    over = ended(workload)
    if over is not None:
        return over
    if workload.suspended:
        return "JobSuspended", f"the {workload.kind} is suspended"
    if jobset is None:
        return "NoJobSet", f"the {workload.kind} has no JobSet"
    if jobset.deleting_since is not None:
        return "JobSetDeleted", f"JobSet {jobset.name} is being deleted"
    if jobset.suspended:
        return "JobSuspended", f"JobSet {jobset.name} is suspended"
    if jobset.terminal_state == "Completed":
        return "JobComplete", f"JobSet {jobset.name} is Completed"
    return None


def finishing(snapshot: Snapshot) -> str | None:
    """The training is about to be complete: restarting it would throw away what is done."""
    for job in member_jobs(snapshot):
        if job.condition("Complete") is not None or job.condition("SuccessCriteriaMet") is not None:
            return f"Job {job.name} has met its success criteria"
        pods = pods_of(snapshot, job)
        done = next((pod for pod in pods if pod.phase == "Succeeded"), None)
        if done is not None or job.succeeded > 0:
            who = f"pod {done.name}" if done is not None else f"a pod of Job {job.name}"
            return f"{who} has Succeeded, so the training is finishing"
        done = next((pod for pod in pods if pod.phase != "Failed" and ended_well(pod)), None)
        if done is None and failing(job) is not None:
            # A Job that gives up takes down its pods, also those whose training was done before: it stays done.
            mine = (pod for pod in snapshot.pods if pod.job_uid == job.uid and ended_well(pod))
            done = next((pod for pod in mine if pod.deleting_since is not None or pod.gone_at is not None), None)
        if done is not None:
            names = ", ".join(each.name for each in done.containers)
            return f"container {names} of pod {done.name} has exited 0, so the training is finishing"
    return None


def unread(snapshot: Snapshot) -> str | None:
    """The objects of the group that cannot be read, in words. None: all can be read.

    The controller does not act on the others alone. A pod that cannot be read looks like one that is missing, and a
    Job, a JobSet or a TrainJob may say that what happens to its pods is meant to happen.
    """
    if not snapshot.undecodable:
        return None
    more = len(snapshot.undecodable) - 1
    others = f" (and {more} more)" if more else ""
    return (
        f"{snapshot.undecodable[0].sentence}{others}; nothing is done about this job until it can be read, or is gone"
    )


def barred(workload: WorkloadFacts, policy: Policy | PolicyError | None, *, forced: bool = False) -> str | None:
    """Why no workload may be written now, whatever the incident's terms: these act before the next write.

    `forced`: a person insisted, who knew of the mode (the open circuit breaker's as well) and of the pause.
    """
    if policy is None:
        return "the RecoveryPolicy was deleted or no longer selects this job"
    if isinstance(policy, PolicyError):
        return f"the RecoveryPolicy cannot be used: {policy}"
    if policy.global_pause:
        return policy.global_pause
    if policy.mode is Mode.OBSERVE and not forced:
        return policy.breaker or f"policy {policy.name} was switched to Observe"
    if paused(workload) and not forced:
        return "the job is paused by annotation"
    return None
