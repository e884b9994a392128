"""The effect of an action on the facts, where its preconditions hold. It takes a world and returns one."""

import msgspec

from recovery.core.model.facts import JobFacts, PodFacts
from recovery.core.plan.actions import (
    Action,
    ClaimJob,
    DeleteJob,
    DeleteJobSet,
    DeletePods,
    ExtendBackoffLimit,
    FailJobSet,
    ForceDeletePods,
    RaiseBackoffLimit,
    ResumeWorkload,
    SuspendWorkload,
    TouchJob,
)
from recovery.core.plan.suspension import marked_by
from tests.unit.core.world import World, at, whole


def carried_out(world: World, action: Action, seconds: float) -> World:
    match action:
        case DeleteJob(uid=uid, resource_version=version):
            return _with_job(world, uid, version=version, deleting_since=whole(seconds))
        case ClaimJob() | RaiseBackoffLimit() | ExtendBackoffLimit() | TouchJob():
            return _with_changed_job(world, action)
        case DeletePods(pods=pods) | ForceDeletePods(pods=pods):
            change = pods_gone if isinstance(action, ForceDeletePods) else pods_asked_to_go
            return change(world, {pod.uid for pod in pods}, seconds)
        case SuspendWorkload() | ResumeWorkload():
            return _with_suspension(world, action)
        case DeleteJobSet(uid=uid) if world.jobset and world.jobset.uid == uid and not world.jobset.deleting_since:
            return world.with_jobset(deleting_since=whole(seconds))
        case FailJobSet(uid=uid) if world.jobset and world.jobset.uid == uid:
            kept = world.with_jobset(ttl_seconds=None)
            return kept if world.jobset.terminal_state else kept.jobset_failed(seconds, action.message)
        case _:
            return world


def _with_changed_job(world: World, action: ClaimJob | RaiseBackoffLimit | ExtendBackoffLimit | TouchJob) -> World:
    match action:
        case ClaimJob(uid=uid, resource_version=version):
            claims = {"torn_down_by": action.attempt, "backoff_limit": action.backoff_limit}
            return _with_job(world, uid, version=version, **claims)
        case ExtendBackoffLimit(uid=uid, resource_version=version):
            limits = {"backoff_limit": action.backoff_limit, "own_backoff_limit": action.own_limit}
            return _with_job(world, uid, version=version, **limits)
        case RaiseBackoffLimit(uid=uid):
            return _with_job(world, uid, backoff_limit=2**31 - 1)
        case TouchJob(uid=uid, value=value):
            return _with_job(world, uid, touched=value)


def pods_asked_to_go(world: World, uids: set[str], seconds: float) -> World:
    """Skips pods that are being deleted already."""

    def change(pod: PodFacts) -> PodFacts:
        if pod.uid not in uids or pod.gone_at is not None or pod.deleting_since is not None:
            return pod
        return msgspec.structs.replace(pod, deleting_since=whole(seconds), deletion_grace_seconds=30)

    return msgspec.structs.replace(world, pods=tuple(change(pod) for pod in world.pods))


def pods_gone(world: World, uids: set[str], seconds: float) -> World:
    def change(pod: PodFacts) -> PodFacts:
        if pod.uid not in uids or pod.gone_at is not None:
            return pod
        return msgspec.structs.replace(pod, gone_at=at(seconds), ready=False)

    return msgspec.structs.replace(world, pods=tuple(change(pod) for pod in world.pods))


def _with_job(world: World, uid: str, *, version: str | None = None, **changes: object) -> World:
    """`version`: resourceVersion of the Job at the decision. A Job that has changed refuses the action. None: any."""

    def change(job: JobFacts) -> JobFacts:
        if job.uid != uid or version not in {None, job.resource_version}:
            return job
        if job.deleting_since is not None and "deleting_since" in changes:
            return job
        newer = str(int(job.resource_version) + 1)
        return msgspec.structs.replace(job, resource_version=newer, **changes)

    return msgspec.structs.replace(world, jobs=tuple(change(job) for job in world.jobs))


def _with_suspension(world: World, action: SuspendWorkload | ResumeWorkload) -> World:
    """Works as `executors.suspension` does: only where no other client has changed the suspension."""
    workload = world.workload
    if workload is None or workload.uid != action.workload_uid:
        return world
    match action:
        case SuspendWorkload(incident_id=incident) if not workload.suspended and marked_by(workload) is None:
            return world.suspended_by(incident)
        case ResumeWorkload(suspended_by=mark, suspended=suspended) if marked_by(workload) == mark:
            return world.released().with_workload(suspended=workload.suspended and not suspended)
        case _:
            return world
