"""The ledgers of all groups, and for a while those that vanished in the middle of an incident."""

from collections.abc import Callable, Collection

import msgspec

from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger_object import LedgerObject
from recovery.kube.nested_index import remove
from recovery.kube.projections.metadata import ObjectEntry
from recovery.kube.projections.recovery import UNREADABLE_SCHEMA_VERSION
from recovery.ports import RECOVERY_GROUPS, Clock, Resource
from recovery.workloads.naming import recovery_group_name

COLLECTED_SECONDS = 120.0
"""For how long a ledger that vanished in the middle of an incident is remembered: enough for its record to be tried
several times, and an end to trying where the whole namespace is gone."""


class _Collected(msgspec.Struct, frozen=True):
    """The last that was seen of a ledger, and when that was, by the clock's monotonic time."""

    ledger: LedgerObject
    at_seconds: float


class LedgerIndex:
    """RecoveryGroups by the name and the UID of their workload."""

    def __init__(
        self, clock: Clock, *, notify: Callable[[GroupKey], None], report: Callable[[Resource, str, str], None]
    ) -> None:
        """`notify`: a ledger of the group has changed. `report`: the object of that name is ignored or damaged, and
        why."""
        self._clock = clock
        self._notify = notify
        self._report = report
        self._ledgers_of: dict[GroupKey, dict[str, LedgerObject]] = {}
        """By name and UID of the workload: a copy that was restored into another namespace is not this one's."""
        self._smaller: dict[GroupKey, dict[str, None]] = {}
        """The UIDs of the workloads whose ledger says that the group runs with fewer nodes than it is to have."""
        self._collected: dict[GroupKey, dict[str, _Collected]] = {}
        """Ledgers that vanished in the middle of an incident: nothing else has what is still to be recorded."""

    def of(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        """That of the workload. None: there is none."""
        return self._ledgers_of.get(key, {}).get(workload_uid)

    def all(self) -> tuple[LedgerObject, ...]:
        """In no order."""
        return tuple(ledger for ledgers in self._ledgers_of.values() for ledger in ledgers.values())

    def smaller(self) -> Collection[GroupKey]:
        """The groups that run with fewer nodes than they are to have, or are being given another size; a view."""
        return self._smaller.keys()

    def orphans(self, key: GroupKey, present: str) -> tuple[LedgerObject, ...]:
        """Those of workloads of that name other than the one of the UID `present`."""
        since = self._clock.monotonic_seconds() - COLLECTED_SECONDS
        collected = {uid: each.ledger for uid, each in self._collected.get(key, {}).items() if each.at_seconds > since}
        orphans = {**collected, **self._ledgers_of.get(key, {})}
        return tuple(ledger for uid, ledger in orphans.items() if uid != present)

    def collected(self) -> tuple[GroupKey, ...]:
        """The groups that have one which vanished."""
        return tuple(self._collected)

    def put(self, entry: ObjectEntry[LedgerObject]) -> None:
        """An object without the name that its workload gives it belongs to no workload: no leader would read it."""
        ledger = entry.value
        name, title = recovery_group_name(ledger.group, ledger.workload_uid), f"{entry.namespace}/{entry.name}"
        if entry.name != name:
            self._report(RECOVERY_GROUPS, title, f"is ignored: the RecoveryGroup of that workload is called {name}")
            return
        if ledger.schema_version == UNREADABLE_SCHEMA_VERSION:
            self._report(RECOVERY_GROUPS, title, ledger.ledger.message)
        key = GroupKey(entry.namespace, ledger.group)
        self._ledgers_of.setdefault(key, {})[ledger.workload_uid] = ledger
        if ledger.readable and ledger.ledger.elastic is not None:
            self._smaller.setdefault(key, {})[ledger.workload_uid] = None
        else:
            remove(self._smaller, key, ledger.workload_uid)
        remove(self._collected, key, ledger.workload_uid)
        self._notify(key)

    def drop(self, entry: ObjectEntry[LedgerObject]) -> None:
        ledger = entry.value
        key = GroupKey(entry.namespace, ledger.group)
        known = self.of(key, ledger.workload_uid)
        if known is not None and known.uid == entry.uid:
            remove(self._ledgers_of, key, ledger.workload_uid)
            remove(self._smaller, key, ledger.workload_uid)
            if ledger.readable and ledger.ledger.incident is not None:
                self._remember(key, ledger)
            self._notify(key)

    def _remember(self, key: GroupKey, ledger: LedgerObject) -> None:
        """The garbage collector may take a ledger away in the same moment in which its workload is seen to go."""
        now = self._clock.monotonic_seconds()
        for other, uid in [
            (other, uid)
            for other, collected in self._collected.items()
            for uid, each in collected.items()
            if each.at_seconds <= now - COLLECTED_SECONDS
        ]:
            remove(self._collected, other, uid)
        self._collected.setdefault(key, {})[ledger.workload_uid] = _Collected(ledger, now)
