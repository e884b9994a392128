"""What bars the controller from a group, whatever has failed in it."""

from recovery.core.model.annotations import PAUSED_ANNOTATION
from recovery.core.model.facts import Snapshot, WorkloadFacts
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError


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


def paused(workload: WorkloadFacts) -> bool:
    """The `paused` annotation is set to anything but "false"."""
    return workload.annotations.get(PAUSED_ANNOTATION, "false") != "false"
