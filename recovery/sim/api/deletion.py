"""What a delete does to an object before it is gone: grace and finalizers.

After apiserver's `BeforeDelete` (`registry/rest/delete.go`) and `updateForGracefulDeletionAndFinalizers`
(`registry/generic/registry/store.go`), and the pods' own `CheckGracefulDelete`. Only pods are deleted gracefully.
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
    """What becomes of the object."""

    metadata: Body | None
    """To be stored first. None: nothing is stored."""
    removed: bool
    """It is gone after that."""


def deleted(
    resource: Resource, body: Body, *, propagation: Propagation | None, grace_seconds: int | None, now: datetime
) -> DeletionResult:
    """The outcome of a delete whose preconditions hold.

    A pod is marked before it is removed, even at once, so a watch reports two changes. A delete that shortens the
    grace gives the deletion a new date: its timestamp is the first request's plus the new grace, but never in the past.
    So the last delete of a kubelet, with grace 0, leaves the moment at which the kubelet was done.
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
    """A negative grace counts as one second."""
    return grace_seconds if grace_seconds >= 0 else 1


def _grace_of_pod(body: Body, grace_seconds: int | None) -> int:
    """None where nothing has to be waited for: the pod is not bound, or over."""
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
        grace_seconds = min(grace_seconds, 1)  # the owner of the pod still has to see it and to delete it
    metadata["deletionTimestamp"] = timestamp(until)
    metadata["deletionGracePeriodSeconds"] = grace_seconds


def _mark(metadata: Body, now: datetime) -> None:
    """An object without grace that waits for its finalizers."""
    if "deletionTimestamp" not in metadata:
        _count_generation(metadata)
    if "deletionTimestamp" not in metadata or moment_of(metadata["deletionTimestamp"]) > now:
        metadata["deletionTimestamp"] = timestamp(now)
    metadata["deletionGracePeriodSeconds"] = 0


def _count_generation(metadata: Body) -> None:
    if "generation" in metadata:
        metadata["generation"] += 1


def _finalizers(resource: Resource, finalizers: list[str], propagation: Propagation | None) -> list[str]:
    """With the one by which the garbage collector knows what is asked of it.

    Without a policy what is there holds, else the resource's default: Jobs of batch/v1 leave their pods behind
    (`DefaultGarbageCollectionPolicy` of the Job strategy), everything else takes them along in the background.
    """
    wanted = next((name for name in finalizers if name in _COLLECTORS), ORPHAN_FINALIZER if resource == JOBS else "")
    if propagation is not None:
        wanted = FOREGROUND_FINALIZER if propagation is Propagation.FOREGROUND else ""
    kept = [name for name in finalizers if name not in _COLLECTORS]
    return [*kept, wanted] if wanted else kept
