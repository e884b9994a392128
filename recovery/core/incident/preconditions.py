"""What bars the controller from a group, whatever has failed in it."""

from recovery.core.model.annotations import PAUSED_ANNOTATION
from recovery.core.model.facts import Snapshot, WorkloadFacts
from recovery.core.model.reason import Explanation, Reason, Sentence, because, explained
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError


def ended(workload: WorkloadFacts) -> Explanation | None:
    """Why the workload itself is no longer ours to watch. None: it lives."""
    if workload.deleting_since is not None:
        return because(Reason.JOB_DELETED, what=f"the {workload.kind}")
    if workload.condition("Complete") is not None:
        return because(Reason.JOB_COMPLETE, what=f"the {workload.kind}", state="Complete")
    return None


def suspended(workload: WorkloadFacts) -> Explanation:
    """The workload is suspended, by whomever."""
    return because(Reason.JOB_SUSPENDED, what=f"the {workload.kind}")


def left_alone(snapshot: Snapshot, workload: WorkloadFacts) -> Explanation | None:
    """Why the job is not ours to watch now. None: it is.

    A user suspends a job to stop it. Find out before this call whether a suspension is ours.
    """
    jobset = snapshot.jobset
    over = ended(workload)
    if over is not None:
        return over
    if workload.suspended:
        return suspended(workload)
    if jobset is None:
        return because(Reason.NO_JOB_SET, kind=workload.kind)
    if jobset.deleting_since is not None:
        return because(Reason.JOB_SET_DELETED, what=f"JobSet {jobset.name}")
    if jobset.suspended:
        return because(Reason.JOB_SUSPENDED, what=f"JobSet {jobset.name}")
    if jobset.terminal_state == "Completed":
        return because(Reason.JOB_COMPLETE, what=f"JobSet {jobset.name}", state="Completed")
    return None


def unread(snapshot: Snapshot) -> Explanation | None:
    """The objects of the group that cannot be read. None: all can be read.

    The controller does not act on the others alone. A pod that cannot be read looks like one that is missing, and a
    Job, a JobSet or a TrainJob may say that what happens to its pods is meant to happen.
    """
    if not snapshot.undecodable:
        return None
    more = len(snapshot.undecodable) - 1
    return because(Reason.UNDECODABLE, first=snapshot.undecodable[0].sentence, more=more)


_TRIGGERS_STAND_ON = (
    "trainjobs",
    "jobsets",
    "jobs",
    "pods",
    "recoverypolicies",
    "clusterrecoverypolicies",
    "recoveryconfigs",
)
"""Plurals of what a trigger stands on. It is read live as well, but not all of it: which members were lost before, what
has trained and since when comes from the watches alone."""
_NODES_STAND_ON = ("nodes",)
"""Plural of what fencing and quarantine stand on."""


def stale(snapshot: Snapshot) -> Explanation | None:
    """Why nothing new may be begun: what the group is known by may be out of date. None: it is current.

    What the ledger has begun goes on: it stands on what was current when it was decided.
    """
    return _stale(snapshot, _TRIGGERS_STAND_ON)


def stale_nodes(snapshot: Snapshot) -> Explanation | None:
    """Why no node may be quarantined or its pods be taken for dead. None: what is known of nodes is current."""
    return _stale(snapshot, _NODES_STAND_ON)


def _stale(snapshot: Snapshot, resources: tuple[str, ...]) -> Explanation | None:
    found = [plural for plural in resources if plural in snapshot.stale]
    if not found:
        return None
    since = min(snapshot.stale[plural] for plural in found)
    return because(Reason.STALE_FACTS, resources=", ".join(found), since=since.isoformat(timespec="seconds"))


def no_trigger(
    snapshot: Snapshot, workload: WorkloadFacts, policy: Policy | PolicyError | None, *, forced: bool = False
) -> Explanation | None:
    """Why no new restart may be begun now. `forced`: as in `barred`; that facts are stale bars a person's as well."""
    return barred(workload, policy, forced=forced) or stale(snapshot)


def barred(workload: WorkloadFacts, policy: Policy | PolicyError | None, *, forced: bool = False) -> Explanation | None:
    """Why no workload may be written now, whatever the incident's terms: these act before the next write.

    `forced`: a person insisted, who knew of the mode (the open circuit breaker's as well) and of the pause.
    """
    if policy is None:
        return because(Reason.POLICY_GONE)
    if isinstance(policy, PolicyError):
        return because(Reason.POLICY_INVALID, error=str(policy))
    if policy.global_pause is not None:
        return policy.global_pause
    if policy.mode is Mode.OBSERVE and not forced:
        if policy.breaker is not None:
            return policy.breaker
        return explained(Sentence.SWITCHED_TO_OBSERVE, Reason.OBSERVE_MODE, policy=policy.name)
    if paused(workload) and not forced:
        return because(Reason.JOB_PAUSED)
    return None


def paused(workload: WorkloadFacts) -> bool:
    """The `paused` annotation is set to anything but "false"."""
    return workload.annotations.get(PAUSED_ANNOTATION, "false") != "false"
