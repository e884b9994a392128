"""Why a group has not started: capacity, images, or settings from which the kubelet cannot create a container.

The controller restarts nothing for it, unless it is the agent (`agent_blocked`). Before a group has run whole, no rank
hangs, and a recreated pod would wait for the same thing.
"""

from enum import StrEnum

import msgspec

from recovery.core.diagnosis import agent_blocked, job_backoff
from recovery.core.diagnosis.evidence import final_exit, kept_open_by
from recovery.core.diagnosis.finishing import finishing
from recovery.core.diagnosis.job_backoff import JobBackOff
from recovery.core.diagnosis.membership import member_count, member_jobs, place, pods_of
from recovery.core.diagnosis.trained import began_at, pods_of_run, trained_at
from recovery.core.diagnosis.waiting_reasons import CREATE_CONTAINER, IMAGE_PULL
from recovery.core.model.facts import ContainerFacts, ExitFacts, JobFacts, PodFacts, Snapshot
from recovery.core.model.ledger import Ledger

_ON_ITS_WAY = frozenset({"", "ContainerCreating", "PodInitializing"})
_BACK_OFF = "CrashLoopBackOff"
_MAX_QUOTE = 300
_BY_THE_AGENT = "; that is because of the agent, and the key without of ConfigMap recovery-agent leaves it out"


class Hindrance(StrEnum):
    """What keeps a group from starting. The values are few enough for the label of a metric."""

    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL = "ImagePull"
    CREATE_CONTAINER = "CreateContainer"
    JOB_BACK_OFF = "JobBackOff"
    OTHER = "Other"
    NONE_KNOWN = "NoneKnown"
    """The group may simply be starting."""


_OF_REASONS = {
    **dict.fromkeys(IMAGE_PULL, Hindrance.IMAGE_PULL),
    **dict.fromkeys(CREATE_CONTAINER, Hindrance.CREATE_CONTAINER),
}


class _Hindered(msgspec.Struct, frozen=True):
    kind: Hindrance
    who: str
    """`rank 3`. A pod without a rank, or a Job, is given by name."""
    reason: str
    """CamelCase, as Kubernetes gives it."""
    words: str
    """Who waits for what, and Kubernetes' message."""


class NotStarted(msgspec.Struct, frozen=True):
    """A group whose members have not all run at once since its Jobs were created, or resumed."""

    gpus: int
    """GPUs of the members that have a node. They idle until the other members run."""
    running: int
    """Members that run."""
    members: int
    """Members of the Jobs that exist. JobSet may not have created all Jobs yet."""
    hindrance: Hindrance
    cause: str = ""
    """`rank 3: ImagePullBackOff`, for the first member that waits. Empty: nothing is known to keep a member waiting."""
    words: str = ""
    """The same with its evidence."""


def not_started(snapshot: Snapshot) -> NotStarted | None:
    """None: the group has run whole, as far as the facts show, or its training is about to complete."""
    if _has_run_whole(snapshot) or finishing(snapshot) is not None:
        return None
    jobs = member_jobs(snapshot)
    pods = [pod for job in jobs for pod in pods_of(snapshot, job) if pod.phase not in {"Succeeded", "Failed"}]
    found = _first_hindered(snapshot)
    return NotStarted(
        gpus=sum(pod.gpus for pod in pods if pod.node),
        running=sum(pod.running and pod.deleting_since is None for pod in pods),
        members=sum(map(member_count, jobs)),
        hindrance=found.kind if found is not None else Hindrance.NONE_KNOWN,
        cause=f"{found.who}: {found.reason}" if found is not None else "",
        words=found.words if found is not None else "",
    )


def lost_a_member(snapshot: Snapshot, ledger: Ledger) -> bool:
    """An incident began in the present run of the Jobs, so the group had run whole before, even if no pod shows it."""
    began = max(map(began_at, member_jobs(snapshot)), default=None)
    if began is None:
        return False
    opened = [closed.started_at for closed in ledger.history]
    if ledger.incident is not None:
        opened.append(ledger.incident.started_at)
    return any(moment >= began for moment in opened)


def words(snapshot: Snapshot) -> str:
    """Which member waits for what. Empty: nothing is known."""
    found = _first_hindered(snapshot)
    return "" if found is None else found.words


def _has_run_whole(snapshot: Snapshot) -> bool:
    """All member Jobs have trained. A launcher alone trains nothing."""
    jobs = member_jobs(snapshot)
    if not jobs or len(jobs) < snapshot.expected_jobs:
        return False
    return all(
        trained_at(job, pods_of_run(job, snapshot.pods), snapshot.trained_at.get(job.uid)) is not None for job in jobs
    )


def _first_hindered(snapshot: Snapshot) -> _Hindered | None:
    """The first member, by Job and rank, that something keeps from starting. None: none is known."""
    for job in member_jobs(snapshot):
        pods = pods_of(snapshot, job)
        if not pods and job.failed_create:
            said = f"Job {job.name} cannot create pods: {job.failed_create[:_MAX_QUOTE]}"
            return _Hindered(Hindrance.OTHER, f"Job {job.name}", "FailedCreate", said)
        for pod in sorted(pods, key=lambda pod: (pod.index is None, pod.index or 0, pod.name)):
            waits = not pod.running and pod.deleting_since is None and pod.phase not in {"Succeeded", "Failed"}
            found = _hindrance(pod, job) if waits else None
            if found is not None:
                return found
        backs_off = job_backoff.waiting(snapshot, job)
        if backs_off is not None and backs_off.until - backs_off.since > job_backoff.SHORT:
            return _Hindered(Hindrance.JOB_BACK_OFF, f"Job {job.name}", "BackOff", _waits_out(backs_off))
    return None


def _waits_out(backs_off: JobBackOff) -> str:
    until, job, lost = f"{backs_off.until:%Y-%m-%dT%H:%M:%SZ}", backs_off.job.name, backs_off.lost
    return f"Job {job} waits out its back-off until {until}, because {lost} of its pods failed or were deleted"


def _hindrance(pod: PodFacts, job: JobFacts) -> _Hindered | None:
    found = _without_agent(pod, job)
    if found is None or not agent_blocked.keeps(pod, job):
        return found
    return msgspec.structs.replace(found, words=f"{found.words}{_BY_THE_AGENT}")


def _without_agent(pod: PodFacts, job: JobFacts) -> _Hindered | None:
    """Whatever the agent has to do with it."""
    unplaced = next((each for each in pod.conditions if each.type == "PodScheduled" and not pod.node), None)
    if unplaced is not None:
        return _waits(pod, Hindrance.UNSCHEDULABLE, unplaced.reason or "Unschedulable", unplaced.message)
    # The other containers come last, but they count: a native sidecar that does not start keeps the training waiting.
    for container in pod.all_containers:
        reason = container.waiting_reason
        crashes = _crashes(container)
        if crashes is not None:
            kept = _kept_words(pod) if final_exit(pod, job) is container else ""
            return _crashed(pod, container, crashes, kept)
        if reason not in _ON_ITS_WAY:
            return _waits(pod, _OF_REASONS.get(reason, Hindrance.OTHER), reason, container.waiting_message)
    return None


def _crashes(container: ContainerFacts) -> ExitFacts | None:
    """The latest exit of a container that fails repeatedly, or has just failed. None: it does not fail.

    The exits decide, because the kubelet shows CrashLoopBackOff only if it syncs the pod during the wait, and
    Terminated until then (pod_workers.go, `completeWork`). While the next process runs, the previous exit decides.
    """
    if container.ready or container.waiting_reason not in {"", _BACK_OFF}:
        return None
    ended = container.exit if container.exit is not None else container.last_exit
    return ended if ended is not None and ended.code != 0 else None


def _kept_words(pod: PodFacts) -> str:
    """Which containers keep a pod from failing. If its training has failed permanently, the pod fails only once its
    other containers have ended too. Empty: none does."""
    others = kept_open_by(pod)
    if not others:
        return ""
    waits = next((each for each in pod.other_containers if each.name in others and each.waiting_reason), None)
    said = [each for each in (waits.waiting_reason, waits.waiting_message) if each] if waits is not None else []
    keeps = ": ".join([f"container {', '.join(others)} keeps it {pod.phase}", *said])
    return f" for good, and its Job does not replace the pod, because {keeps}"


def _crashed(pod: PodFacts, container: ContainerFacts, ended: ExitFacts, kept: str) -> _Hindered:
    reason = _BACK_OFF if container.restarts else ended.reason or "Error"
    because = f" ({ended.reason})" if ended.reason not in {"", "Error"} else ""
    restarts = f"{container.restarts} time" if container.restarts == 1 else f"{container.restarts} times"
    times = f" and has restarted {restarts}" if container.restarts else ""
    said = f"container {container.name} exited with exit code {ended.code}{because}{times}{kept}"
    return _waits(pod, Hindrance.OTHER, reason, said)


def _waits(pod: PodFacts, kind: Hindrance, reason: str, message: str) -> _Hindered:
    said = f": {message[:_MAX_QUOTE]}" if message else ""
    who = f"rank {pod.index}" if pod.index is not None else f"pod {pod.name}"
    return _Hindered(kind, who, reason, f"{place(pod)} waits: {reason}{said}")
