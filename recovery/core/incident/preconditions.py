"""What prevents the controller from acting on a group, whatever has failed in it."""

from recovery.core.model.annotations import PAUSED_ANNOTATION
from recovery.core.model.facts import Snapshot, WorkloadFacts
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError


def ended(workload: WorkloadFacts) -> Explanation | None:
    """Why the workload has ended, so that the controller no longer watches it. None: it has not ended."""
    if workload.deleting_since is not None:
        return because(Reason.JOB_DELETED, what=f"the {workload.kind}")
    if workload.condition("Complete") is not None:
        return because(Reason.JOB_COMPLETE, what=f"the {workload.kind}", state="Complete")
    return None


def suspended(workload: WorkloadFacts) -> Explanation:
    """The explanation that the workload is suspended, no matter by whom."""
    return because(Reason.JOB_SUSPENDED, what=f"the {workload.kind}")


def unwatched(snapshot: Snapshot, workload: WorkloadFacts) -> Explanation | None:
    """Why the controller does not watch the job now. None: it does.

    A user suspends a job to stop it. Check before this call whether a suspension is ours.
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
"""Plurals of the resources that a trigger depends on. They are read live as well, but some facts come from watches
alone: which members were lost before, what has trained, and since when."""
_NODES_STAND_ON = ("nodes",)
"""Plural of the resource that fencing and quarantine depend on."""


def stale(snapshot: Snapshot) -> Explanation | None:
    """Why nothing new may begin: the facts about the group may be stale. None: they are current.

    What the ledger has begun continues, because its facts were current when it was decided.
    """
    return _stale(snapshot, _TRIGGERS_STAND_ON)


def stale_nodes(snapshot: Snapshot) -> Explanation | None:
    """Why no node may be quarantined or assumed dead. None: the facts about nodes are current."""
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
    """Why no new restart may begin now. `forced`: as in `barred`. Stale facts prevent a person's restart as well."""
    return barred(workload, policy, forced=forced) or stale(snapshot)


def barred(workload: WorkloadFacts, policy: Policy | PolicyError | None, *, forced: bool = False) -> Explanation | None:
    """Why the workload may not be written now. This applies before the next write, whatever the incident has pinned.

    `forced`: a person insisted, and knew of mode Observe (by the policy or the open circuit breaker) and of the pause.
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


def needs_force(workload: WorkloadFacts, policy: Policy) -> bool:
    """A person's restart is refused unless it is forced."""
    return policy.mode is Mode.OBSERVE or paused(workload)


def paused(workload: WorkloadFacts) -> bool:
    """The `paused` annotation is set to anything but "false"."""
    return workload.annotations.get(PAUSED_ANNOTATION, "false") != "false"
