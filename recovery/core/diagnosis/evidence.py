"""Collects Evidence from the facts: what was lost, when, and how, in words. `core.diagnosis.classify` interprets it.

Evidence is every sign that a member of a group was lost. Most signs do not count: a restart from before the policy
existed, a pod that its Job replaced before the group ever ran, members that the Job itself kills because it no longer
wants them. `core.diagnosis.freshness` selects what counts.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from recovery.core.diagnosis.agent_view import key_of
from recovery.core.diagnosis.deleted_jobs import deleted_at, deleted_jobs, deletion_key, in_words, left_beside
from recovery.core.diagnosis.membership import (
    failing,
    member_count,
    member_jobs,
    place,
    rank,
    restarts_of,
    stands_still,
)
from recovery.core.diagnosis.resized import members_for_certain
from recovery.core.diagnosis.trained import holes, pods_of_runs, replacements, trained_at
from recovery.core.diagnosis.training_container import restarts_in_place
from recovery.core.model.agent_facts import ProcessEnd
from recovery.core.model.derived import derived
from recovery.core.model.facts import Condition, ContainerFacts, ExitFacts, JobFacts, PodFacts, Snapshot
from recovery.core.model.ledger import Suspect

_ENDED_BY_REQUEST = frozenset({128 + 9, 128 + 15})
"""Exit codes of processes that SIGKILL or SIGTERM has ended."""
_WAITS_FOR_BACK_OFF = "CrashLoopBackOff"
_BY_TAINT = "DeletionByTaintManager"
_OF_SILENCE = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Keys of the taints that the node lifecycle controller puts on nodes that are not Ready."""
_TAINTS_NAMED = 3
_LAST_DELETE_WITHIN = timedelta(seconds=1)
"""The kubelet deletes a pod at most this long after its last container has ended, in the API's whole seconds."""


class LossKind(StrEnum):
    """What happened. `core.diagnosis.classify` says what it means."""

    CONTAINER_RESTARTED = "ContainerRestarted"
    PROCESS_ENDED = "ProcessEnded"
    """A process of the rank ended, and its container goes on: the agent in it says so."""
    POD_FAILED = "PodFailed"
    POD_DELETED = "PodDeleted"
    JOB_DELETED = "JobDeleted"
    """All Jobs of the group. If others are left, their ranks hang, as after any other lost pod (POD_DELETED)."""
    POD_DISRUPTED = "PodDisrupted"
    NODE_LOST = "NodeLost"
    NODE_FAULT = "NodeFault"
    JOB_FAILING = "JobFailing"
    JOB_SET_FAILED = "JobSetFailed"
    MANUAL = "Manual"
    ROOM = "Room"
    AGENT_BLOCKS_START = "AgentBlocksStart"


_NOTHING_LOST = frozenset({LossKind.NODE_FAULT, LossKind.MANUAL, LossKind.ROOM, LossKind.AGENT_BLOCKS_START})


class Evidence(msgspec.Struct, frozen=True):
    """One sign that a member was lost, or that the group must restart although none was."""

    key: str
    """Identifies the loss, not the reconcile that sees it. A loss has the same key in any state in which it is seen."""
    kind: LossKind
    text: str
    job_uid: str
    at: datetime | None = None
    """When it happened, in the API's whole seconds. None: the facts do not say."""
    pod: PodFacts | None = None
    exit: ExitFacts | None = None
    inferred: bool = False
    """Inferred from a replacement. The loss itself was not seen."""
    process: ProcessEnd | None = None
    """PROCESS_ENDED: what the agent reports of it. None: another kind."""
    disrupted_by: str = ""
    """Reason of the pod's DisruptionTarget condition. Empty: it has none."""

    @property
    def is_loss(self) -> bool:
        """The group has lost a member. A faulty node, a request, new capacity and the agent only ask for a restart."""
        return self.kind not in _NOTHING_LOST

    def suspect(self) -> Suspect | None:
        if self.pod is None:
            return None
        code = self.exit.code if self.exit is not None else None
        return Suspect(pod=self.pod.name, node=self.pod.node, index=self.pod.index, exit_code=code)


@derived
def gather(snapshot: Snapshot) -> tuple[Evidence, ...]:
    """All evidence about the present incarnation, the root first."""
    found: list[Evidence] = []
    for job in snapshot.jobs:
        if snapshot.jobset is None or job.jobset_uid != snapshot.jobset.uid or stands_still(job):
            continue
        found.extend(_job_evidence(snapshot, job))
        found.extend(_deleted_alone(snapshot, job))
    known = {item.key for item in found}
    found.extend(item for job in deleted_jobs(snapshot) if (item := _deleted(snapshot, job)).key not in known)
    return tuple(sorted(found, key=_root_first))


def happened_by(snapshot: Snapshot, item: Evidence) -> datetime | None:
    """By when it had happened: its date, or when the Job created the next pod of that rank.

    A loss without a date, such as that of a pod that its kubelet rejects, happened before that. None: nothing shows it.
    """
    pod = item.pod
    if item.at is not None or pod is None:
        return item.at
    mine = (other for other in pods_of_runs(snapshot).get(item.job_uid, ()) if rank(other) == rank(pod))
    return min((other.created_at for other in mine if other.created_at > pod.created_at), default=None)


def _job_evidence(snapshot: Snapshot, job: JobFacts) -> list[Evidence]:
    pods = pods_of_runs(snapshot)[job.uid]
    dying_since = job.deleting_since
    if dying_since is not None and job.restart_attempt >= restarts_of(snapshot):
        return []  # not deleted by JobSet for a restart; if it were, the failures of its pods would still be evidence
    reason = failing(job)
    found = []
    lost_ranks: set[int | str] = set()
    for pod in pods:
        expected = _expected(pod, job)
        item = None if expected else _lost(pod, job, snapshot, reason is not None or dying_since is not None)
        if item is not None:
            found.append(item)
        else:
            found.extend(_restarts(pod))
            found.extend(_processes_ended(pod))
            found.extend(_fault(pod))
        if item is not None or expected:
            lost_ranks.add(rank(pod))
    trained = trained_at(job, pods, snapshot.trained_at.get(job.uid))
    if trained is not None:
        members = members_for_certain(snapshot, job)
        replaced = replacements(job, pods, trained, members)
        found.extend(_replaced(pod) for pod in replaced if rank(pod) not in lost_ranks)
        if reason is None and dying_since is None:
            found.extend(_hole(index, job) for index in holes(job, pods) if index < members)
    if reason is not None:
        found.append(_job_failing(job, reason))
    return found


def _hole(index: int, job: JobFacts) -> Evidence:
    text = f"rank {index} of Job {job.name} has no pod"
    return Evidence(f"{job.uid}/{index}/missing", LossKind.POD_DELETED, text, job.uid)


def _deleted_alone(snapshot: Snapshot, job: JobFacts) -> list[Evidence]:
    """Evidence that a client deletes only this Job, and the ranks of the others hang. (JobSet deletes all of them.)"""
    by_jobset = job.restart_attempt < restarts_of(snapshot)
    over = job.condition("Complete") is not None or failing(job) is not None
    left = next((other for other in member_jobs(snapshot) if other.restart_attempt == job.restart_attempt), None)
    if job.deleting_since is None or by_jobset or over or left is None:
        return []
    text = f"Job {job.name} was deleted, while Job {left.name} still exists"
    return [
        Evidence(deletion_key(job.uid), LossKind.POD_DELETED, text, job.uid, at=job.deleting_since),
    ]


def _deleted(snapshot: Snapshot, job: JobFacts) -> Evidence:
    """Evidence that the Job was deleted after its group trained."""
    left, at = left_beside(snapshot, job), deleted_at(job)
    if left is not None:
        text = f"Job {job.name} was deleted, while Job {left.name} still exists"
        return Evidence(deletion_key(job.uid), LossKind.POD_DELETED, text, job.uid, at=at)
    return Evidence(deletion_key(job.uid), LossKind.JOB_DELETED, in_words(snapshot, job), job.uid, at=at)


def _expected(pod: PodFacts, job: JobFacts) -> bool:
    """The end of the pod is no failure: it Succeeded, its Job lets it go, it was scaled away, or JobSet itself moved
    it."""
    target = _disruption_target(pod)
    scaled_away = pod.index is not None and pod.index >= member_count(job)
    moved = target is not None and target.reason == "ExclusivePlacementViolation"
    return pod.phase == "Succeeded" or pod.let_go or scaled_away or moved


def _lost(pod: PodFacts, job: JobFacts, snapshot: Snapshot, job_kills: bool) -> Evidence | None:
    """Evidence that the pod is disrupted, failed, being deleted or gone, which no one expects. `job_kills`: the Job may
    delete its pods."""
    target = _disruption_target(pod)
    key = f"{pod.uid}/lost"
    if pod.dead_since is not None:
        at = _earliest(pod.dead_since, pod.deleting_since, target.since if target is not None else None)
        text = f"{place(pod)} is lost: {pod.dead_because}"
        return Evidence(key, LossKind.NODE_LOST, text, pod.job_uid, at=at, pod=pod)
    if target is not None:
        # A drain, a preemption or a taint is the cause; how the container then exited is its consequence.
        how = f"{target.reason or 'DisruptionTarget'}{_behind(target, pod, snapshot)}{_device_words(pod.containers)}"
        text = f"{place(pod)} was disrupted: {how}"
        at = _earliest(target.since, pod.deleting_since)
        kind = LossKind.POD_DISRUPTED
        return Evidence(key, kind, text, pod.job_uid, at=at, pod=pod, disrupted_by=target.reason)
    ended = _first_exit(pod)
    failed_at = _failed_at(pod, ended)
    if pod.phase == "Failed" and _ended_before(ended, failed_at, pod):
        text = f"{place(pod)} failed{_exit_words(ended)}{_device_words(pod.containers)}"
        return Evidence(key, LossKind.POD_FAILED, text, pod.job_uid, at=failed_at, pod=pod, exit=ended)
    final = final_exit(pod, job)
    if final is not None and final.exit is not None and _ended_before(final.exit, final.exit.finished_at, pod):
        devices = _device_words(pod.containers)
        how = f"exited{_exit_words(final.exit)} for good{_kept_words(pod)}{devices}"
        text = f"container {final.name} of {place(pod)} {how}"
        at = final.exit.finished_at
        return Evidence(key, LossKind.POD_FAILED, text, pod.job_uid, at=at, pod=pod, exit=final.exit)
    deleted_at = pod.deleting_since if pod.deleting_since is not None else pod.gone_at
    if deleted_at is None or job_kills:
        return None
    text = f"{place(pod)} was deleted{_device_words(pod.containers)}"
    return Evidence(key, LossKind.POD_DELETED, text, pod.job_uid, at=deleted_at, pod=pod)


def final_exit(pod: PodFacts, job: JobFacts) -> ContainerFacts | None:
    """The training container that has failed and that the kubelet does not restart. None: there is none.

    The pod fails too, but only when its other containers have ended as well. Until then the kubelet reports phase
    Running (`getPhase` in pkg/kubelet/kubelet_pods.go), and the Job controller waits.
    """
    if pod.phase in {"Failed", "Succeeded"}:
        return None
    ended = (each for each in pod.containers if each.exit is not None and each.exit.code != 0)
    return next((each for each in ended if each.exit and not restarts_in_place(job, each.name, each.exit.code)), None)


def kept_running_by(pod: PodFacts) -> tuple[str, ...]:
    """The other containers that still run and so keep the phase of the pod from being Failed."""
    return tuple(each.name for each in pod.other_containers if each.running_since is not None)


def kept_open_by(pod: PodFacts) -> tuple[str, ...]:
    """The other containers that keep the pod from being Failed: they run, or have never started.

    A pod with a container that has never started is Pending, even if its other containers have ended (`getPhase`).
    """
    never_ran = (each for each in pod.other_containers if each.waiting_reason and each.last_exit is None)
    return (*kept_running_by(pod), *(each.name for each in never_ran))


def _kept_words(pod: PodFacts) -> str:
    others = kept_running_by(pod)
    return f", while {', '.join(others)} still run{'s' if len(others) == 1 else ''}" if others else ""


def _ended_before(ended: ExitFacts | None, ended_at: datetime | None, pod: PodFacts) -> bool:
    """The exit is not the consequence of a deletion. (If both are in one second, and the watch has not shown the order,
    the deletion counts as the cause.) `ended` None: the pod has failed without an exit.

    When all containers of a deleted pod have ended, the kubelet immediately deletes the pod once more, with a grace
    period of 0. If a finalizer keeps the object, this gives the deletion a later date. So an exit by SIGTERM or SIGKILL
    just before that date counts as a consequence of the deletion.
    """
    if pod.deleting_since is None or ended in pod.ended_before_deletion:
        return True
    if ended is None or ended_at is None:
        return False
    asked = ended.code in _ENDED_BY_REQUEST and ended.reason != "OOMKilled"
    dated_again = asked and pod.deletion_grace_seconds == 0
    return ended_at < pod.deleting_since - (_LAST_DELETE_WITHIN if dated_again else timedelta())


def _restarts(pod: PodFacts) -> list[Evidence]:
    """Evidence of containers that the kubelet restarted in place, or that have exited and wait for a restart.

    A container that has exited again since its restart shows both exits. The first exit dates the loss and names the
    cause: the second process often ends only because its peers do not answer.
    """
    if pod.phase in {"Failed", "Succeeded"}:
        return []
    found: list[Evidence] = []
    for container in pod.containers:
        if container.exit is not None and not _ended_before(container.exit, container.exit.finished_at, pod):
            continue
        if container.exit is not None and container.exit.code == 0:
            continue
        found.extend(_restart(pod, container, ended, number) for ended, number in _exits_and_restarts(container))
    return found


def _exits_and_restarts(container: ContainerFacts) -> Iterator[tuple[ExitFacts | None, int]]:
    """The exits that the status shows, each with the number of the restart that it led to, or will lead to.

    None: the status shows the restart without the exit before it.
    """
    if container.waiting_reason == _WAITS_FOR_BACK_OFF:
        # The exit is in `lastState` already, and the restart is not counted yet (kubelet_pods.go).
        yield container.last_exit, container.restarts + 1
        return
    if container.restarts and (container.exit is None or container.last_exit is not None):
        yield container.last_exit, container.restarts
    if container.exit is not None:
        yield container.exit, container.restarts + 1


def _restart(pod: PodFacts, container: ContainerFacts, ended: ExitFacts | None, number: int) -> Evidence:
    """An exit and the restart that follows it are one event, identified by the number of that restart."""
    how = f"exited{_exit_words(ended)}{_restart_words(container, number)}{_device_words((container,))}"
    text = f"container {container.name} of {place(pod)} {how}"
    at = (ended.finished_at if ended is not None else None) or container.running_since
    key = f"{pod.uid}/{container.name}/{number}"
    return Evidence(key, LossKind.CONTAINER_RESTARTED, text, pod.job_uid, at=at, pod=pod, exit=ended)


def _processes_ended(pod: PodFacts) -> Iterator[Evidence]:
    """Evidence of processes that ended while their container goes on, as the agents report."""
    for each in pod.processes.ends if pod.processes is not None else ():
        ended = ExitFacts(each.code, message=each.message, started_at=each.began_at, finished_at=each.ended_at)
        said = f": {each.message}" if each.message else ""
        text = f"the process of rank {each.rank} in {place(pod)} ended{_exit_words(ended)}{said}"
        yield Evidence(
            key_of(pod, each.epoch),
            LossKind.PROCESS_ENDED,
            text,
            pod.job_uid,
            at=each.ended_at,
            pod=pod,
            exit=ended,
            process=each,
        )


def _fault(pod: PodFacts) -> list[Evidence]:
    """Evidence that a rule calls the pod's node faulty. Empty if the node was faulty before the pod was created."""
    fault = pod.fault
    if fault is None or pod.phase == "Succeeded" or (fault.since is not None and fault.since <= pod.created_at):
        return []
    return [Evidence(fault.key, LossKind.NODE_FAULT, fault.text, pod.job_uid, at=fault.since, pod=pod)]


def _replaced(pod: PodFacts) -> Evidence:
    text = f"{place(pod)} was created after the group had run whole: it replaced a member whose loss was not seen"
    key = f"{pod.uid}/replacement"
    return Evidence(key, LossKind.POD_DELETED, text, pod.job_uid, at=pod.created_at, pod=pod, inferred=True)


def _job_failing(job: JobFacts, reason: str) -> Evidence:
    condition = job.condition("FailureTarget") or job.condition("Failed")
    at = condition.since if condition is not None else None
    text = f"Job {job.name} is failing: {reason}"
    return Evidence(f"{job.uid}/failing", LossKind.JOB_FAILING, text, job.uid, at=at)


def _disruption_target(pod: PodFacts) -> Condition | None:
    if not pod.conditions:
        return None  # nearly all pods of a large group
    return next((c for c in pod.conditions if c.type == "DisruptionTarget" and c.status == "True"), None)


def _behind(target: Condition, pod: PodFacts, snapshot: Snapshot) -> str:
    """What is behind an eviction because of a taint. The condition of the pod does not name the taint.

    Empty: another client disrupted the pod, or its node shows no cause any more.
    """
    if target.reason != _BY_TAINT:
        return ""
    node = snapshot.nodes.get(pod.node)
    if node is None:
        return f", because node {pod.node} does not exist any more" if pod.node in snapshot.gone_nodes else ""
    for_good = (each for each in node.taints if each.effect == "NoExecute" and each.key not in _OF_SILENCE)
    # A taint that came after the eviction is not its cause.
    known = [each for each in for_good if each.since is None or target.since is None or each.since <= target.since]
    if known:
        names = ", ".join(each.key + (f"={each.value}" if each.value else "") for each in known[:_TAINTS_NAMED])
        more = f" and {len(known) - _TAINTS_NAMED} more" if len(known) > _TAINTS_NAMED else ""
        return f", because of the NoExecute taint {names}{more} of node {node.name}"
    if node.ready:
        return ""
    since = f" since {node.ready_since:%H:%M:%S}" if node.ready_since is not None else ""
    return f", because node {node.name} has not {'been Ready' if node.reachable else 'answered'}{since}"


def _first_exit(pod: PodFacts) -> ExitFacts | None:
    """The first failing exit of a pod that has ended: of its training, else of any other container."""
    for containers in ((*pod.init_containers, *pod.containers), pod.other_containers):
        ended = [each.exit for each in containers if each.exit is not None and each.exit.code != 0]
        if ended:
            return min(ended, key=lambda e: (e.finished_at is None, e.finished_at))
    return None


def _failed_at(pod: PodFacts, ended: ExitFacts | None) -> datetime | None:
    """When a pod that ended with this exit was lost. None: the facts do not say.

    The exit of another container harms no rank: the training continues until its own containers have ended, and only
    then does the kubelet report phase Failed (`getPhase` in pkg/kubelet/kubelet_pods.go). If it is not known which
    container trains, it may be the one that ended last.
    """
    if ended is None or ended.finished_at is None:
        return None
    if all(each.exit is not ended for each in pod.other_containers):
        return ended.finished_at
    may_train = pod.containers if pod.training_known else pod.other_containers
    ends = (each.exit.finished_at for each in may_train if each.exit is not None)
    return max([ended.finished_at, *(moment for moment in ends if moment is not None)])


def _exit_words(ended: ExitFacts | None) -> str:
    if ended is None:
        return ""
    reason = f" ({ended.reason})" if ended.reason and ended.reason not in {"Error", "Completed"} else ""
    return f" with exit code {ended.code}{reason}"


def _device_words(containers: Iterable[ContainerFacts]) -> str:
    """The unhealthy devices of training containers: a sign of the node, besides how the process ended."""
    devices = tuple(dict.fromkeys(device for each in containers for device in each.unhealthy_devices))
    if not devices:
        return ""
    others = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
    return f", and the kubelet reports {devices[0]}{others} as Unhealthy"


def _restart_words(container: ContainerFacts, number: int) -> str:
    """`number`: that of the restart that the exit led to, or will lead to."""
    if container.restarts >= number:
        return f" and was restarted in place (restart {number})"
    return f"; the kubelet will restart it ({container.waiting_reason})" if container.waiting_reason else ""


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((m for m in moments if m is not None), default=None)


_RANK_OF_KIND = {
    LossKind.NODE_LOST: 0,
    LossKind.NODE_FAULT: 0,
    LossKind.POD_DISRUPTED: 0,
    LossKind.POD_FAILED: 1,
    LossKind.CONTAINER_RESTARTED: 1,
    LossKind.PROCESS_ENDED: 1,
    LossKind.POD_DELETED: 2,
    LossKind.JOB_DELETED: 2,
    LossKind.JOB_FAILING: 3,
}


def _root_first(item: Evidence) -> tuple[object, ...]:
    """Earliest first, within a second causes before consequences, then by rank."""
    index = item.pod.index if item.pod is not None and item.pod.index is not None else -1
    return (
        item.at is None,
        item.at.timestamp() if item.at else 0.0,
        _RANK_OF_KIND[item.kind],
        index,
        item.key,
    )
