"""The ledgers of all groups. Ledgers that vanished before all that they hold was recorded are kept for a while."""

from collections.abc import Callable, Collection
from datetime import datetime

import msgspec

from recovery.core.fleet.totals import held_by
from recovery.core.incident import lifecycle
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger_object import LedgerObject
from recovery.kube.nested_index import remove
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.recovery import UNREADABLE_SCHEMA_VERSION
from recovery.ports import RECOVERY_GROUPS, Clock, Resource
from recovery.workloads.naming import recovery_group_name

COLLECTED_SECONDS = 120.0
"""How long a ledger that vanished is remembered if something in it is still to be recorded or counted: long enough for
several attempts, and an end to the attempts where the whole namespace is gone."""


class _Collected(msgspec.Struct, frozen=True):
    """The last known state of a ledger, and when it vanished, by the clock's monotonic time."""

    ledger: LedgerObject
    at_seconds: float


class LedgerIndex:
    """RecoveryGroups by the name and the UID of their workload."""

    def __init__(
        self, clock: Clock, *, notify: Callable[[GroupKey], None], report: Callable[[Resource, str, str], None]
    ) -> None:
        """`notify`: a ledger of the group has changed. `report`: called with the resource, the name and the problem of
        an object that is ignored or damaged."""
        self._clock = clock
        self._notify = notify
        self._report = report
        self._ledgers_of: dict[GroupKey, dict[str, LedgerObject]] = {}
        """By group and UID of the workload: a copy restored into another namespace belongs to no workload there."""
        self._seeking: dict[GroupKey, dict[str, None]] = {}
        """The UIDs of the workloads whose ledger says that the group looks for room."""
        self._collected: dict[GroupKey, dict[str, _Collected]] = {}
        """Ledgers that vanished in the middle of an incident, or while their group was Broken. Only they hold what is
        still to be recorded and counted."""

    def of(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        """The ledger of the workload. None: there is none."""
        return self._ledgers_of.get(key, {}).get(workload_uid)

    def of_group(self, key: GroupKey) -> tuple[LedgerObject, ...]:
        """The ledgers of all workloads of that name."""
        return tuple(self._ledgers_of.get(key, {}).values())

    def all(self) -> tuple[LedgerObject, ...]:
        """All ledgers, in no order."""
        return tuple(ledger for ledgers in self._ledgers_of.values() for ledger in ledgers.values())

    def seeking(self) -> Collection[GroupKey]:
        """A view of the groups that look for room: they run with fewer nodes than wanted, are being resized, or were
        released until there is room for all of their members."""
        return self._seeking.keys()

    def released_before(self, own: GroupKey, workload_uid: str, soon: datetime) -> tuple[GroupKey, ...]:
        """The released groups that resume before this one, in turn, without those that wait beyond `soon`."""
        mine = self._released(own, workload_uid)
        if mine is None:
            return ()
        turns = []
        for key in self._seeking:
            for uid in self._seeking[key] if key != own else ():
                other = self._released(key, uid)
                if other is not None and other[0] < mine[0] and other[1] <= soon:
                    turns.append(other[0])
        return tuple(key for _, key in sorted(turns))

    def _released(self, key: GroupKey, uid: str) -> tuple[tuple[tuple[int, datetime], GroupKey], datetime] | None:
        """The turn of a released group, and until when it waits in any case. None: it is not released."""
        ledger = self._ledgers_of[key][uid].ledger if uid in self._ledgers_of.get(key, {}) else None
        open_ = ledger.incident if ledger is not None and lifecycle.is_released(ledger) else None
        if open_ is None or open_.released is None or open_.suspension is None or open_.suspension.until is None:
            return None
        return (open_.released.turn, key), open_.suspension.until

    def orphans(self, key: GroupKey, present: str) -> tuple[LedgerObject, ...]:
        """The ledgers of other workloads of that name, whose UID is not `present`."""
        since = self._clock.monotonic_seconds() - COLLECTED_SECONDS
        collected = {uid: each.ledger for uid, each in self._collected.get(key, {}).items() if each.at_seconds > since}
        orphans = {**collected, **self._ledgers_of.get(key, {})}
        return tuple(ledger for uid, ledger in orphans.items() if uid != present)

    def collected(self) -> tuple[GroupKey, ...]:
        """The groups with a vanished ledger that is remembered."""
        return tuple(self._collected)

    def put(self, entry: ObjectEntry[LedgerObject]) -> None:
        """Index a RecoveryGroup. One whose name does not match its workload is ignored: no leader would read it."""
        ledger = entry.value
        name, title = recovery_group_name(ledger.group, ledger.workload_uid), f"{entry.namespace}/{entry.name}"
        if entry.name != name:
            self._report(RECOVERY_GROUPS, title, f"is ignored: the RecoveryGroup of that workload is called {name}")
            return
        if ledger.schema_version == UNREADABLE_SCHEMA_VERSION:
            self._report(RECOVERY_GROUPS, title, ledger.ledger.message)
        key = GroupKey(entry.namespace, ledger.group)
        self._ledgers_of.setdefault(key, {})[ledger.workload_uid] = ledger
        if ledger.readable and (ledger.ledger.elastic is not None or lifecycle.is_released(ledger.ledger)):
            self._seeking.setdefault(key, {})[ledger.workload_uid] = None
        else:
            remove(self._seeking, key, ledger.workload_uid)
        remove(self._collected, key, ledger.workload_uid)
        self._notify(key)

    def drop(self, entry: ObjectEntry[LedgerObject]) -> None:
        ledger = entry.value
        key = GroupKey(entry.namespace, ledger.group)
        known = self.of(key, ledger.workload_uid)
        if known is not None and known.uid == entry.uid:
            remove(self._ledgers_of, key, ledger.workload_uid)
            remove(self._seeking, key, ledger.workload_uid)
            if ledger.readable and held_by(ledger.workload_uid, ledger.ledger):
                self._remember(key, ledger)
            self._notify(key)

    def _remember(self, key: GroupKey, ledger: LedgerObject) -> None:
        """Keep a ledger with something to record or count. The garbage collector may delete it as soon as its workload
        is seen to go."""
        now = self._clock.monotonic_seconds()
        for other, uid in [
            (other, uid)
            for other, collected in self._collected.items()
            for uid, each in collected.items()
            if each.at_seconds <= now - COLLECTED_SECONDS
        ]:
            remove(self._collected, other, uid)
        self._collected.setdefault(key, {})[ledger.workload_uid] = _Collected(ledger, now)
