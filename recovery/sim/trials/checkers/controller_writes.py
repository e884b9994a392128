"""Rules about what a controller may write to a group, and when."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from recovery.core.model.annotations import OWN_BACKOFF_LIMIT_ANNOTATION, SUSPENDED_BY_ANNOTATION
from recovery.core.model.facts import GroupKey
from recovery.core.policy.spec import Mode
from recovery.ports import (
    EVENTS,
    JOB_SETS,
    JOBS,
    PODS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    TRAIN_JOBS,
)
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import GroupView, controller_uid, deletion_begins, ours
from recovery.sim.trials.trial_evidence import RequestRecord, Violation

WORKLOADS = frozenset({TRAIN_JOBS, JOB_SETS})
_GROUP = frozenset({TRAIN_JOBS, JOB_SETS, JOBS, PODS})
_DELETED = frozenset({JOB_SETS, JOBS, PODS})
_NOTICED_WITHIN_SECONDS = 5.0
"""A controller obeys a pause or a new mode before its next write. Its watch may take this long to report the change."""

_decode: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def suspended(body: Body | None) -> bool:
    return body is not None and bool(body["spec"].get("suspend"))


def mark_of(body: Body | None) -> str:
    """The incident that suspended this workload. Empty: none did."""
    annotations = (body["metadata"].get("annotations") or {}) if body is not None else {}
    return str(annotations.get(SUSPENDED_BY_ANNOTATION, ""))


def title(change: ObjectChange) -> str:
    metadata = change.body["metadata"]
    return f"{change.resource.kind} {metadata.get('namespace', '')}/{metadata['name']} ({metadata['uid']})"


def destructive(change: ObjectChange) -> str | None:
    """What this write does to a job, in words. None: it does no harm."""
    before, body = change.before, change.body
    if change.resource in _DELETED and deletion_begins(change):
        return "deletes"
    if before is None or change.type == "DELETED":
        return None
    if change.resource in WORKLOADS and suspended(body) and not suspended(before):
        return "suspends"
    if change.resource == JOBS:
        new, old = body["spec"], before["spec"]
        waits = OWN_BACKOFF_LIMIT_ANNOTATION in (body["metadata"].get("annotations") or {})
        if new.get("backoffLimit", 6) != old.get("backoffLimit", 6) and not waits:
            return "raises the backoffLimit of"
        if new.get("activeDeadlineSeconds") != old.get("activeDeadlineSeconds"):
            return "sets a deadline for"
    if change.resource == JOB_SETS:
        end, was = (each.get("status") or {} for each in (body, before))
        if end.get("terminalState") and not was.get("terminalState"):
            return "ends"
    return None


class LedgerBeforeAction(CheckerRule):
    """The ledger comes before the action: before each write that takes something down, the ledger of that group names
    that very target."""

    hears = _GROUP

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        what = destructive(change) if ours(change.actor) else None
        if what is None:
            return
        known = self._known_at(change, what)
        if known is None or known >= change.revision:
            group = self.world.group_of(change.resource, change.body)
            sentence = (
                f"{change.actor} {what} {title(change)} at revision {change.revision}, but no ledger had named it"
            )
            yield self.found(at, sentence, group)

    def _known_at(self, change: ObjectChange, what: str) -> int | None:
        """The first revision in which a ledger records the action. None: no ledger does."""
        ledgers, body = self.world.ledgers, change.body
        if what in {"ends", "sets a deadline for"}:
            key = self.world.group_of(change.resource, body)
            state = ledgers.of_group(key) if key is not None else None
            return state.failed_at_revision if state is not None else None
        if what == "suspends":
            state = ledgers.of(body["metadata"]["uid"])
            return state.suspensions.get(mark_of(body)) if state is not None else None
        uid = controller_uid(body) if change.resource == PODS else body["metadata"]["uid"]
        return ledgers.aimed(uid)


class OnlyTargets(CheckerRule):
    """Each delete by a controller carries a UID, and hits only a target that a ledger names: no pod of a newer
    incarnation, and no other job."""

    hears = _DELETED

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if not (ours(change.actor) and deletion_begins(change)):
            return
        of_pod = change.resource == PODS
        uid = controller_uid(change.body) if of_pod else change.body["metadata"]["uid"]
        group = self.world.group_of(change.resource, change.body)
        state = self.world.ledgers.of_group(group) if group is not None else None
        if state is None or not state.aimed or self.world.ledgers.aimed(uid) is not None:
            return
        incarnation = f" of Job {uid}" if of_pod else ""
        targets = ", ".join(state.aimed)
        yield self.found(at, f"{change.actor} deletes {title(change)}{incarnation}; the targets are {targets}", group)

    def heard(self, record: RequestRecord) -> Iterator[Violation]:
        request = record.request
        if request.verb != "delete" or request.resource not in _DELETED:
            return
        options = _decode.decode(request.body) if request.body else {}
        if not (options.get("preconditions") or {}).get("uid"):
            group = self.world.group_of_request(record)
            yield self.found(record.at, f"{record.actor} asks to {request} whatever its UID is", group)


class HealthyUntouched(CheckerRule):
    """The controller writes nothing to a group to which nothing has happened. The group stays healthy when a container
    beside the training ends, and when others suspend, resume or resize it."""

    hears = _GROUP | {RECOVERY_GROUPS, RECOVERY_INCIDENTS, EVENTS}

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if not ours(change.actor):
            return
        key = self.world.group_of(change.resource, change.body)
        if key is not None and not self.world.group(key).hit:
            done = {"ADDED": "makes", "MODIFIED": "changes", "DELETED": "deletes"}[change.type]
            yield self.found(at, f"{change.actor} {done} {title(change)}, though nothing has happened to {key}", key)


class _Unless(CheckerRule, ABC):
    """Of the writes to a group's objects those that must not be made in its present state."""

    hears = _GROUP

    def saw(self, change: ObjectChange, at: datetime) -> Iterable[Violation]:
        if not ours(change.actor):
            return
        key = self.world.group_of(change.resource, change.body)
        if key is None or self._forced(key) or self._releases(change):
            return
        barred = self._barred(self.world.group(key), change)
        if barred is None:
            return
        since, why = barred
        known_for = self.world.undisturbed.seconds(since, at)
        if known_for > _NOTICED_WITHIN_SECONDS:
            what = destructive(change) or "changes"
            yield self.found(at, f"{change.actor} {what} {title(change)}, though {why} for {known_for:.1f} s", key)

    @abstractmethod
    def _barred(self, group: GroupView, change: ObjectChange) -> tuple[datetime, str] | None:
        """Since when the write is forbidden, and why. None: it is allowed."""

    def _forced(self, key: GroupKey) -> bool:
        """A person forced the incident, knowing of the mode and of the pause."""
        state = self.world.ledgers.of_group(key)
        incident = state.ledger.incident if state is not None else None
        return incident is not None and incident.step.forced

    def _releases(self, change: ObjectChange) -> bool:
        """The write ends a suspension of ours or removes the rest of one. That is never forbidden."""
        return change.resource in WORKLOADS and bool(mark_of(change.before)) and not mark_of(change.body)


class ObserveWritesNothing(_Unless):
    """In mode Observe, and without a policy, the controller writes nothing to a job, except to release a suspension of
    its own."""

    def _barred(self, group: GroupView, change: ObjectChange) -> tuple[datetime, str] | None:
        if group.mode == Mode.ENFORCE:
            return None
        return group.since, "no policy has applied" if group.mode is None else "its policy has been in mode Observe"


class PausedUntouched(_Unless):
    """A paused job is not taken down, suspended or made to fail. A pause takes effect before the next write."""

    def _barred(self, group: GroupView, change: ObjectChange) -> tuple[datetime, str] | None:
        if group.paused_since is None or destructive(change) is None:
            return None
        return group.paused_since, "it has been paused"


class BreakerObeyed(_Unless):
    """While the circuit breaker is open, no job is taken down, suspended or made to fail."""

    def _barred(self, group: GroupView, change: ObjectChange) -> tuple[datetime, str] | None:
        opened_at = self.world.breaker_open_since
        if opened_at is None or destructive(change) is None:
            return None
        return opened_at, "the circuit breaker has been open"
