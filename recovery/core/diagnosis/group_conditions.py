"""Conditions of a RecoveryGroup about its objects: what a person has to change in the job itself."""

from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.collective import unknown_value
from recovery.core.diagnosis.deleted_jobs import what_orphans_hold
from recovery.core.diagnosis.evidence import final_exit, kept_open_by
from recovery.core.diagnosis.membership import member_jobs, place, pods_of
from recovery.core.diagnosis.queued import queued_by
from recovery.core.diagnosis.training_container import SelectedBy, select
from recovery.core.model.annotations import COLLECTIVE_ANNOTATION
from recovery.core.model.collective import Collective
from recovery.core.model.facts import Snapshot

POD_KEPT_RUNNING = "PodKeptRunning"
TRAINING_CONTAINER_UNKNOWN = "TrainingContainerUnknown"
COLLECTIVE_UNKNOWN = "CollectiveUnknown"
UNDECODABLE = "Undecodable"
STALE_FACTS = "StaleFacts"
FINISH_OVERDUE = "FinishOverdue"
EARLIER_LOSS = "EarlierLoss"
ORPHANED_PODS = "OrphanedPods"
TRAINS_AGAIN = "TrainsAgain"
CRASH_LOOP = "CrashLoop"
_SENTENCES_MAX = 3


class GroupCondition(msgspec.Struct, frozen=True):
    """A condition that holds. Others are omitted."""

    type: str
    reason: str
    message: str


def conditions_of(snapshot: Snapshot, finish_timeout: timedelta, now: datetime) -> tuple[GroupCondition, ...]:
    """The conditions that hold. `finish_timeout`: how long a pod may run after its training has failed permanently."""
    found = (
        _training_container_unknown(snapshot),
        _collective_unknown(snapshot),
        _kept_running(snapshot, finish_timeout, now),
        _stale(snapshot),
    )
    return tuple(each for each in found if each is not None)


def _stale(snapshot: Snapshot) -> GroupCondition | None:
    if not snapshot.stale:
        return None
    since = min(snapshot.stale.values()).isoformat(timespec="seconds")
    message = (
        f"The watches of {', '.join(sorted(snapshot.stale))} have been silent since {since}: what has begun "
        "continues, and nothing new begins on facts that may be out of date"
    )
    return GroupCondition(STALE_FACTS, "WatchSilent", message)


def undecodable(snapshot: Snapshot) -> GroupCondition | None:
    """Objects of the group cannot be read, so the controller does nothing about it. None: all can be read."""
    if not snapshot.undecodable:
        return None
    message = "; ".join(each.sentence for each in snapshot.undecodable[:_SENTENCES_MAX])
    return GroupCondition(UNDECODABLE, f"{snapshot.undecodable[0].kind}Undecodable", message)


def orphaned(snapshot: Snapshot) -> GroupCondition | None:
    """Pods whose Job was deleted without them hold their GPUs until a person deletes them. None: there are none."""
    found = what_orphans_hold(snapshot)
    if not found:
        return None
    return GroupCondition(ORPHANED_PODS, "JobDeleted", f"{found}, and their Job does not exist: delete them")


def trains_again(snapshot: Snapshot, failed_uid: str) -> GroupCondition | None:
    """Trainer has created another JobSet since that one failed and was deleted. None: it has not, or that one has ended
    as well. `failed_uid`: the JobSet that ended last; empty: none has."""
    jobset, workload = snapshot.jobset, snapshot.workload
    if not failed_uid or jobset is None or workload is None or jobset.uid == failed_uid or jobset.terminal_state:
        return None
    by_ttl = f" by its ttlSecondsAfterFinished ({jobset.ttl_seconds}) or" if jobset.ttl_seconds is not None else ""
    quota = ", outside the quota of Kueue, which was released when it failed" if queued_by(workload) else ""
    message = (
        f"The job had failed, and its JobSet was deleted{by_ttl} by a client. Trainer has created another one, so the "
        f"job trains again{quota}. To stop it, suspend or delete the {workload.kind}. A job stays failed if its "
        "runtime has no ttlSecondsAfterFinished when it is created"
    )
    return GroupCondition(TRAINS_AGAIN, "JobSetCreatedAgain", message)


def next_change_at(snapshot: Snapshot, finish_timeout: timedelta, now: datetime) -> datetime | None:
    """When one of the conditions will begin to hold only because time passes. None: never."""
    moments = (failed_at + finish_timeout for failed_at, _ in _still_running(snapshot))
    return min((moment for moment in moments if moment > now), default=None)


def _training_container_unknown(snapshot: Snapshot) -> GroupCondition | None:
    unknown = [job for job in member_jobs(snapshot) if select(job, snapshot.workload).by is SelectedBy.UNKNOWN]
    if not unknown:
        return None
    job = unknown[0]
    names = ", ".join(container.name for container in job.containers)
    message = (
        f"Job {job.name} has containers {names}, and none of them is known to train: only losses of whole pods count. "
        "Name it with the annotation recovery.trainjob.dev/container on the pod template or on the workload"
    )
    return GroupCondition(TRAINING_CONTAINER_UNKNOWN, "NoContainerSelected", message)


def _collective_unknown(snapshot: Snapshot) -> GroupCondition | None:
    unknown = unknown_value(snapshot)
    if unknown is None:
        return None
    value, whose = unknown
    message = (
        f"The annotation {COLLECTIVE_ANNOTATION} of {whose} says {value}, so the program counts as Required. Write one "
        f"of {', '.join(Collective)}"
    )
    return GroupCondition(COLLECTIVE_UNKNOWN, "ValueUnknown", message)


def _kept_running(snapshot: Snapshot, finish_timeout: timedelta, now: datetime) -> GroupCondition | None:
    late = [words for failed_at, words in _still_running(snapshot) if now - failed_at >= finish_timeout]
    if not late:
        return None
    more = f" (and {len(late) - 1} more pods)" if len(late) > 1 else ""
    return GroupCondition(POD_KEPT_RUNNING, "ContainerStillRuns", f"{late[0]}{more}: the Job cannot count it as failed")


def _still_running(snapshot: Snapshot) -> list[tuple[datetime, str]]:
    """Pods that other containers keep Running or Pending after the training failed permanently, each with that time."""
    found = []
    for job in member_jobs(snapshot):
        for pod in pods_of(snapshot, job):
            failed, others = final_exit(pod, job), kept_open_by(pod)
            ended = failed.exit if failed is not None else None
            if failed is None or ended is None or ended.finished_at is None or not others or pod.deleting_since:
                continue
            words = (
                f"container {', '.join(others)} keeps {place(pod)} {pod.phase} after {failed.name} exited {ended.code}"
            )
            found.append((ended.finished_at, words))
    return sorted(found)
