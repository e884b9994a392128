"""Rules that every real cluster obeys. A test whose world breaks one of them tests a case that cannot occur.

The rules follow Kubernetes 1.36 (`getPhase` in pkg/kubelet/kubelet_pods.go, pkg/controller/job) and JobSet 0.12
(pkg/controllers). The times of one object have an order, and so have those of the API server. The times of a kubelet
and of the API server have one only if their clocks agree, so tests of differing clocks allow those rules by name.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from recovery.core.model.facts import Condition, ContainerFacts, ExitFacts, JobFacts, NodeFacts, PodFacts, Snapshot

Found = Iterator[tuple[str, str]]
"""The broken rules, each with the object that breaks it."""

_ENDED = ("Succeeded", "Failed")


def impossible(snapshot: Snapshot, allowed: frozenset[str] = frozenset()) -> list[str]:
    """The rules that the snapshot breaks, each with the object. Empty: a real cluster may look like this.

    `allowed`: rules that a test breaks on purpose.
    """
    jobs = {job.uid: job for job in snapshot.jobs}
    found = [
        *_names(snapshot),
        *_places(snapshot.pods, jobs),
        *(each for pod in snapshot.pods for each in _pod(pod, jobs.get(pod.job_uid))),
        *(each for job in snapshot.jobs for each in _job(job, snapshot)),
        *_jobset(snapshot),
        *_training(snapshot, jobs),
        *(each for node in snapshot.nodes.values() for each in _node(node, snapshot)),
    ]
    return [f"{rule}: {what}" for rule, what in found if rule not in allowed]


def checked(snapshot: Snapshot, allowed: frozenset[str] = frozenset()) -> Snapshot:
    """Returns the snapshot. An assertion fails if no real cluster can look like it."""
    wrong = impossible(snapshot, allowed)
    assert not wrong, f"no cluster looks like this: {'; '.join(wrong)}"
    return snapshot


def _before(one: datetime | None, other: datetime | None) -> bool:
    return one is not None and other is not None and one < other


def _conditions(what: str, conditions: Iterable[Condition], created_at: datetime) -> Found:
    yield from (
        ("condition-before-its-object", f"{what}, {each.type}")
        for each in conditions
        if _before(each.since, created_at)
    )


def _negative(what: str, **counts: int | None) -> Found:
    yield from (("negative-count", f"{what}, {name}") for name, count in counts.items() if count and count < 0)


# --- several objects ------------------------------------------------------------------------------------------------


def _names(snapshot: Snapshot) -> Found:
    """UIDs are unique for all time. Names are unique among the objects that exist."""
    uids = Counter((*(pod.uid for pod in snapshot.pods), *(job.uid for job in snapshot.jobs)))
    yield from (("uid-twice", uid) for uid, times in uids.items() if times > 1)
    pods = Counter(pod.name for pod in snapshot.pods if pod.gone_at is None)
    jobs = Counter(job.name for job in snapshot.jobs)
    yield from (("name-twice", name) for names in (pods, jobs) for name, times in names.items() if times > 1)


def _places(pods: tuple[PodFacts, ...], jobs: dict[str, JobFacts]) -> Found:
    """The Job controller fills only an index that no active pod has (`firstPendingIndexes`)."""
    living = Counter(
        (pod.job_uid, pod.index)
        for pod in pods
        if pod.index is not None and pod.gone_at is None and pod.deleting_since is None and pod.phase not in _ENDED
    )
    yield from (
        ("two-pods-of-one-index", f"Job {jobs[uid].name}, index {index}")
        for (uid, index), times in living.items()
        if times > 1 and uid in jobs and jobs[uid].completions is not None
    )


def _training(snapshot: Snapshot, jobs: dict[str, JobFacts]) -> Found:
    """The store remembers when a Job trained for as long as the Job exists, or is known to be gone."""
    jobs = jobs | {job.uid: job for job in snapshot.gone_jobs}
    for uid, moment in snapshot.trained_at.items():
        if uid not in jobs:
            yield "trained-without-job", uid
        elif moment < jobs[uid].created_at:
            yield "trained-before-its-job", jobs[uid].name


# --- pods -----------------------------------------------------------------------------------------------------------


def _pod(pod: PodFacts, job: JobFacts | None) -> Found:
    what = f"pod {pod.name}"
    if pod.gone_at is not None:
        if job is None:
            yield "gone-pod-without-job", what  # the store forgets the pods of a Job that is gone
        if pod.gone_at < pod.created_at:
            yield "gone-before-created", what
    if job is not None and pod.job_name != job.name:
        yield "pod-of-another-name", what
    if job is not None and pod.created_at < job.created_at:
        yield "pod-before-its-job", what
    if _before(pod.deleting_since, pod.created_at):
        yield "deleted-before-created", what
    if (pod.deleting_since is None) is not (pod.deletion_grace_seconds is None):
        yield "deletion-without-grace", what
    yield from _negative(what, gpus=pod.gpus, asked=pod.demand.gpus, index=pod.index, failures=pod.index_failures)
    yield from _conditions(what, pod.conditions, pod.created_at)
    yield from _placement(what, pod)
    yield from _phase(what, pod, job)
    if pod.ready:
        yield from _ready(what, pod)
    for container in pod.all_containers:
        yield from _container(f"{what}, container {container.name}", container, pod)


def _placement(what: str, pod: PodFacts) -> Found:
    if pod.node:
        if any(each.type == "PodScheduled" and each.status == "False" for each in pod.conditions):
            yield "unschedulable-on-a-node", what
        return
    if pod.phase == "Running" or any(each.running_since for each in pod.all_containers):
        yield "running-without-node", what
    if pod.accepted_at is not None:
        yield "accepted-without-node", what


def _phase(what: str, pod: PodFacts, job: JobFacts | None) -> Found:
    """The kubelet writes the phase and the container states in one update (`getPhase`)."""
    regular = (*pod.containers, *pod.other_containers)
    match pod.phase:
        case "Pending":
            if pod.containers and not pod.other_containers and all(each.running_since for each in pod.containers):
                yield "pending-though-all-run", what
        case "Running":
            if not regular or not all(_has_started(each) for each in regular):
                yield "running-before-all-started", what
            elif _never_restarts(job) and not any(each.running_since for each in regular):
                yield "running-though-all-ended", what
        case "Succeeded":
            if any(each.running_since for each in pod.all_containers):
                yield "succeeded-though-some-run", what
            if any(each.exit is not None and each.exit.code for each in pod.containers):
                yield "succeeded-though-some-failed", what
        case "Failed":
            # A pod may fail without its containers: the kubelet evicts it (a reason), or pod GC sets DisruptionTarget.
            others = pod.reason or pod.deleting_since or any(each.type == "DisruptionTarget" for each in pod.conditions)
            if job is not None and job.pod_restart_policy != "Never" and not others:
                yield "failed-though-restarted", what  # the kubelet starts the container again in the same pod
            if regular and not others and all(each.exit is not None and not each.exit.code for each in regular):
                yield "failed-though-none-failed", what


def _has_started(container: ContainerFacts) -> bool:
    return any((container.running_since, container.exit, container.last_exit))


def _never_restarts(job: JobFacts | None) -> bool:
    """The kubelet never restarts a container of this Job's pods."""
    if job is None or job.pod_restart_policy != "Never":
        return False
    return not any(each.restart_policy or each.restart_rules for each in job.containers)


def _ready(what: str, pod: PodFacts) -> Found:
    if pod.gone_at is not None:
        return  # the facts are those that were last seen
    runs = all(each.running_since for each in pod.containers) if pod.training_known else True
    if pod.phase in _ENDED or not runs or (pod.training_known and not pod.containers):
        yield "ready-but-not-running", what
    elif any(_before(pod.ready_since, each.running_since) for each in pod.containers):
        yield "ready-before-running", what


def _container(what: str, container: ContainerFacts, pod: PodFacts) -> Found:
    if sum((container.running_since is not None, container.exit is not None, bool(container.waiting_reason))) > 1:
        yield "container-in-two-states", what
    exits: tuple[ExitFacts, ...] = tuple(each for each in (container.last_exit, container.exit) if each is not None)
    if any(_before(each.finished_at, each.started_at) for each in exits):
        yield "ended-before-begun", what
    began = [each.started_at for each in exits] + [container.running_since]
    if any(_before(moment, pod.created_at) for moment in began):
        yield "begun-before-its-pod", what
    if container.last_exit is not None:
        if any(_before(moment, container.last_exit.finished_at) for moment in began[1:]):
            yield "begun-before-the-last-end", what
        if container.restarts < 1 and pod.deleting_since is None:
            yield "restarted-without-count", what
    yield from _negative(what, restarts=container.restarts)


# --- Jobs, JobSet, nodes --------------------------------------------------------------------------------------------


def _job(job: JobFacts, snapshot: Snapshot) -> Found:
    what, jobset = f"Job {job.name}", snapshot.jobset
    if jobset is not None and job.jobset_uid == jobset.uid:
        if job.restart_attempt > jobset.restarts:  # the label comes from a status that has been written
            yield "attempt-ahead-of-its-jobset", what
        if job.created_at < jobset.created_at:
            yield "job-before-its-jobset", what
    if _before(job.deleting_since, job.created_at):
        yield "deleted-before-created", what
    if job.condition("Failed") and job.condition("Complete"):
        yield "failed-and-complete", what
    yield from _conditions(what, job.conditions, job.created_at)
    yield from _negative(
        what,
        parallelism=job.parallelism,
        completions=job.completions,
        attempt=job.restart_attempt,
        active=job.active,
        failed=job.failed,
        succeeded=job.succeeded,
        limit=job.backoff_limit,
        limit_per_index=job.backoff_limit_per_index,
    )
    if job.pod_failure_rules and job.pod_restart_policy != "Never":  # the API server refuses such a Job
        yield "rules-without-never", what
    if not _never_restarts(job):
        return
    mine = (pod for pod in snapshot.pods if pod.job_uid == job.uid)
    restarted = (pod for pod in mine if any(each.restarts or each.last_exit for each in pod.containers))
    yield from (("restarted-though-never", f"pod {pod.name}") for pod in restarted)


def _jobset(snapshot: Snapshot) -> Found:
    jobset, workload = snapshot.jobset, snapshot.workload
    if workload is not None:
        if _before(workload.deleting_since, workload.created_at):
            yield "deleted-before-created", workload.name
        yield from _conditions(workload.name, workload.conditions, workload.created_at)
    if jobset is None:
        return
    what = f"JobSet {jobset.name}"
    said = {state for state in ("Completed", "Failed") if jobset.condition(state)}
    if said != ({jobset.terminal_state} if jobset.terminal_state else set()):  # one update writes both
        yield "terminal-state-without-condition", what
    if jobset.restarts_counted > jobset.restarts:
        yield "more-restarts-counted-than-made", what
    if _before(jobset.deleting_since, jobset.created_at):
        yield "deleted-before-created", what
    yield from _conditions(what, jobset.conditions, jobset.created_at)
    yield from _negative(what, restarts=jobset.restarts, counted=jobset.restarts_counted)


def _node(node: NodeFacts, snapshot: Snapshot) -> Found:
    what = f"node {node.name}"
    if node.ready and not node.reachable:
        yield "ready-but-unreachable", what
    if node.name in snapshot.gone_nodes:
        yield "gone-but-there", what
    yield from _negative(what, gpus=node.gpus)
