"""The ledgers of a trial as they were written. Each is decoded once for all checkers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from recovery.core.incident.requests import Verb
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Attempt, AttemptAction, Incident, Ledger, Phase
from recovery.kube.projections.recovery import decode_recovery_group
from recovery.sim.api.store import ObjectChange

OURS = frozenset(AttemptAction) - {AttemptAction.ADOPTED, AttemptAction.NONE}
_RESTARTS = frozenset({Verb.RESTART, Verb.RETRY})

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class LedgerChange:
    """One write of a RecoveryGroup's status."""

    group: GroupKey
    workload_uid: str
    before: Ledger
    """An empty one if the RecoveryGroup has just been created."""
    after: Ledger
    replaced_version: str
    """The resourceVersion that the write replaced. Empty: the RecoveryGroup was created."""
    revision: int
    at: datetime
    actor: str

    @property
    def added(self) -> Attempt | None:
        """The restart that this write entered, ours or an adopted one. None: it entered none."""
        if self.after.epoch <= self.before.epoch or self.after.incident is None:
            return None
        restarts = [a for a in self.after.incident.attempts if a.action is not AttemptAction.NONE]
        return restarts[-1] if restarts else None

    @property
    def trigger(self) -> Attempt | None:
        """The attempt by which the controller takes the group down. None: this write entered none."""
        added = self.added
        return added if added is not None and added.action in OURS else None

    @property
    def by_hand(self) -> bool:
        """A person's request for a restart was accepted in this write."""
        return any(
            answer.accepted and answer.verb in _RESTARTS
            for answer in self.after.requests
            if answer not in self.before.requests
        )

    @property
    def same(self) -> Incident | None:
        """The incident as it was before this write. None: this write opened one, or there is none."""
        old, new = self.before.incident, self.after.incident
        return old if old is not None and new is not None and old.id == new.id else None

    @property
    def opened(self) -> bool:
        return self.after.incident is not None and self.same is None

    @property
    def closed(self) -> bool:
        """This write ended the incident."""
        new, old = self.after.incident, self.same
        return new is not None and new.closing is not None and (old is None or old.closing is None)


@dataclass
class LedgerState:
    """What the ledgers of one workload have said so far."""

    group: GroupKey
    workload_uid: str
    ledger: Ledger = field(default_factory=Ledger)
    gone_at: datetime | None = None
    """When the RecoveryGroup was garbage-collected. None: it exists."""
    aimed: dict[str, int] = field(default_factory=dict)
    """UIDs of Jobs and JobSets that were the target of a trigger, with the revision that first said so."""
    suspensions: dict[str, int] = field(default_factory=dict)
    """Ids of incidents that wanted the workload suspended, with the revision that first said so."""
    failed_at_revision: int | None = None
    """The revision in which a ledger first said that the controller fails the JobSet. None: none has."""
    closed_at: dict[str, datetime] = field(default_factory=dict)
    """When each incident ended, by the server's clock."""
    spans: list[tuple[str, datetime]] = field(default_factory=list)
    """Id of each incident and when it opened, by the server's clock."""
    left_hold_at: datetime | None = None
    """When the group last left the phase Held. None: never."""

    @property
    def exists(self) -> bool:
        return self.gone_at is None

    @property
    def open_incident(self) -> Incident | None:
        found = self.ledger.incident
        return found if found is not None and found.closing is None else None

    def open_at(self, moment: datetime) -> bool:
        """An incident was open at that moment."""
        return any(
            opened_at <= moment and (incident_id not in self.closed_at or self.closed_at[incident_id] >= moment)
            for incident_id, opened_at in self.spans
        )


class Ledgers:
    """Takes in each change of a RecoveryGroup, in order."""

    def __init__(self) -> None:
        self.newest: LedgerChange | None = None
        self._states: dict[str, LedgerState] = {}
        self._present: dict[GroupKey, str] = {}
        """UID of the workload whose ledger was written last, by group."""

    def __iter__(self) -> Iterator[LedgerState]:
        return iter(self._states.values())

    def of(self, workload_uid: str) -> LedgerState | None:
        """The ledger of a workload. None: it never had one."""
        return self._states.get(workload_uid)

    def of_group(self, group: GroupKey) -> LedgerState | None:
        """The ledger of the newest workload of that name that has one."""
        uid = self._present.get(group)
        return self._states[uid] if uid is not None else None

    def aimed(self, uid: str) -> int | None:
        """The revision that first named this Job or JobSet as the target of a trigger. None: none has."""
        return next((state.aimed[uid] for state in self._states.values() if uid in state.aimed), None)

    def note(self, change: ObjectChange, at: datetime) -> None:
        found = decode_recovery_group(_encode(change.body)).value
        key = GroupKey(found.namespace, found.group)
        state = self._states.get(found.workload_uid)
        if change.type == "DELETED":
            if state is not None:
                state.gone_at = at
            return
        if state is None or change.type == "ADDED":
            state = self._states[found.workload_uid] = LedgerState(key, found.workload_uid)
        self._present[key] = found.workload_uid
        made = LedgerChange(
            group=key,
            workload_uid=found.workload_uid,
            before=state.ledger,
            after=found.ledger,
            replaced_version=change.before["metadata"]["resourceVersion"] if change.before is not None else "",
            revision=change.revision,
            at=at,
            actor=change.actor,
        )
        self.newest = made
        _remember(state, made)


def _remember(state: LedgerState, made: LedgerChange) -> None:
    state.ledger = made.after
    incident = made.after.incident
    if made.before.phase is Phase.HELD and made.after.phase is not Phase.HELD:
        state.left_hold_at = made.at
    if incident is None:
        return
    if made.opened:
        state.spans.append((incident.id, made.at))
    if made.closed:
        state.closed_at[incident.id] = made.at
    if incident.suspension is not None:
        state.suspensions.setdefault(incident.id, made.revision)
    if incident.step.fails_job and state.failed_at_revision is None:
        state.failed_at_revision = made.revision
    restarts = [a for a in incident.attempts if a.action is not AttemptAction.NONE]
    if not restarts or restarts[-1].action not in OURS:
        return
    for uid in incident.target.job_uids:  # Includes what our restart took over from one that the JobSet made itself.
        state.aimed.setdefault(uid, made.revision)
    if restarts[-1].job_set_uid:
        state.aimed.setdefault(restarts[-1].job_set_uid, made.revision)
