"""What a delete does to an object before the object is removed: grace period and finalizers.

It follows apiserver's `BeforeDelete` (`registry/rest/delete.go`) and `updateForGracefulDeletionAndFinalizers`
(`registry/generic/registry/store.go`), and `CheckGracefulDelete` of pods. Only pods are deleted gracefully.
"""

from dataclasses import dataclass
from datetime import datetime

from recovery.ports import JOBS, PODS, Propagation, Resource
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import grace_of, moment_of, timestamp

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
_COLLECTORS = (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)
_TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
_DEFAULT_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """The effect of a delete on the object."""

    metadata: Body | None
    """Metadata to store first. None: nothing is stored."""
    removed: bool
    """The object is removed after that."""


def deleted(
    resource: Resource, body: Body, *, propagation: Propagation | None, grace_seconds: int | None, now: datetime
) -> DeletionResult:
    """The outcome of a delete whose preconditions hold.

    A pod is marked before it is removed, even with grace 0, so a watch reports two changes. A delete that shortens the
    grace period changes the deletion timestamp: it becomes the time of the first request plus the new grace period, but
    never lies in the past. So a kubelet's last delete, with grace 0, records the moment at which the kubelet was done.
    """
    metadata: Body = dict(body["metadata"])
    before = body["metadata"]
    graceful = False
    removed_after_grace = True
    if resource == PODS:
        if "deletionTimestamp" not in before:
            seconds = _grace_of_pod(body, grace_seconds)
            metadata["deletionTimestamp"] = timestamp(now + grace_of(seconds))
            metadata["deletionGracePeriodSeconds"] = seconds
            _count_generation(metadata)
            graceful, removed_after_grace = True, seconds == 0
        elif before.get("deletionGracePeriodSeconds"):
            if grace_seconds is None or _at_least_none(grace_seconds) >= before["deletionGracePeriodSeconds"]:
                return DeletionResult(None, removed=False)
            _shorten(metadata, _at_least_none(grace_seconds), now)
            graceful, removed_after_grace = True, grace_seconds == 0
    finalizers = _finalizers(resource, before.get("finalizers") or [], propagation)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if graceful:
        return DeletionResult(metadata, removed=removed_after_grace and not finalizers)
    if not finalizers:
        return DeletionResult(None, removed=True)
    _mark(metadata, now)
    return DeletionResult(metadata, removed=False)


def _at_least_none(grace_seconds: int) -> int:
    """A negative grace period counts as one second."""
    return grace_seconds if grace_seconds >= 0 else 1


def _grace_of_pod(body: Body, grace_seconds: int | None) -> int:
    """The grace period in seconds. It is 0 if the pod is not bound or has finished: there is nothing to wait for."""
    if not body.get("spec", {}).get("nodeName") or body.get("status", {}).get("phase") in _TERMINAL_PHASES:
        return 0
    if grace_seconds is None:
        grace_seconds = int(body["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS))
    return _at_least_none(grace_seconds)


def _shorten(metadata: Body, grace_seconds: int, now: datetime) -> None:
    asked_at = moment_of(metadata["deletionTimestamp"]) - grace_of(metadata["deletionGracePeriodSeconds"])
    until = asked_at + grace_of(grace_seconds)
    if until < now:
        until = now
        grace_seconds = min(grace_seconds, 1)  # the pod's kubelet still has to see the change and delete the pod
    metadata["deletionTimestamp"] = timestamp(until)
    metadata["deletionGracePeriodSeconds"] = grace_seconds


def _mark(metadata: Body, now: datetime) -> None:
    """Mark an object that has no grace period and waits for its finalizers."""
    if "deletionTimestamp" not in metadata:
        _count_generation(metadata)
    if "deletionTimestamp" not in metadata or moment_of(metadata["deletionTimestamp"]) > now:
        metadata["deletionTimestamp"] = timestamp(now)
    metadata["deletionGracePeriodSeconds"] = 0


def _count_generation(metadata: Body) -> None:
    if "generation" in metadata:
        metadata["generation"] += 1


def _finalizers(resource: Resource, finalizers: list[str], propagation: Propagation | None) -> list[str]:
    """The object's finalizers, with the one that selects the garbage collector's propagation policy.

    Without a policy in the request the present finalizer applies, then the resource's default: batch/v1 Jobs orphan
    their pods (`DefaultGarbageCollectionPolicy` of the Job strategy), every other kind deletes its dependants in the
    background.
    """
    wanted = next((name for name in finalizers if name in _COLLECTORS), ORPHAN_FINALIZER if resource == JOBS else "")
    if propagation is not None:
        wanted = FOREGROUND_FINALIZER if propagation is Propagation.FOREGROUND else ""
    kept = [name for name in finalizers if name not in _COLLECTORS]
    return [*kept, wanted] if wanted else kept
