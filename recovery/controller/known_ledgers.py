"""The newest ledger of each job that this process knows of: the cache's, or its own last write until the cache has it.

This bridges the lag of the cache and nothing else: a new process, whose cache has caught up, misses none of it.
"""

from collections.abc import Iterator

from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.model.ledger_object import LedgerObject
from recovery.ports import GroupStore


class KnownLedgers:
    """What the cache shows, and what we have written or read since."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._ours: dict[GroupKey, dict[str, LedgerObject]] = {}
        """By UID of the workload: one that has taken the name must not make us forget what is still to be recorded of
        the one before it."""

    def newest(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        """The cache's, or ours for as long as the cache lags behind it. None: there is none.

        No longer: a RecoveryGroup that the cache had and has no more was deleted, and is gone for us as well.
        """
        cached = self._store.ledger_object(key, workload_uid)
        ours = self._ours.get(key, {}).get(workload_uid)
        if ours is not None and cached is not None and _at_least(cached, ours):
            self.forget(key, workload_uid)
            ours = None
        return cached if ours is None else ours

    def ours(self) -> Iterator[LedgerObject]:
        """What the cache has not shown yet, of jobs that are gone as well."""
        for written in self._ours.values():
            yield from written.values()

    def orphans(self, key: GroupKey, workload: WorkloadFacts | None) -> tuple[LedgerObject, ...]:
        """The ledgers of jobs of that name that are gone; of one that the cache has not caught up with, ours.

        `workload`: the job of that name that is there. None: there is none.
        """
        orphans = {orphan.workload_uid: orphan for orphan in self._store.orphans(key)}
        for uid, ours in self._ours.get(key, {}).items():
            cached = orphans.get(uid)
            if (workload is None or workload.uid != uid) and (cached is None or not _at_least(cached, ours)):
                orphans[uid] = ours
        return tuple(orphans.values())

    def open_incident(self, key: GroupKey) -> str:
        """The id of the incident that is open in a job of that name. Empty: none is."""
        newest = {
            each.workload_uid: each
            for each in self._store.ledger_objects()
            if (each.namespace, each.group) == (key.namespace, key.name)
        }
        for uid, ours in self._ours.get(key, {}).items():
            if uid not in newest or not _at_least(newest[uid], ours):
                newest[uid] = ours
        incidents = (each.ledger.incident for each in newest.values() if each.readable)
        return next((each.id for each in incidents if each is not None and each.closing is None), "")

    async def read_live(self, key: GroupKey, workload_uid: str) -> None:
        """What the API server has is the truth: before a decision on live facts, and after a refused or lost write.

        Raises ApiError.
        """
        live = await self._store.read_ledger_live(key, workload_uid)
        if live is None:
            self.forget(key, workload_uid)
        else:
            self.keep(key, workload_uid, live)

    def keep(self, key: GroupKey, workload_uid: str, ledger: LedgerObject) -> None:
        """It was written, or read, just now."""
        self._ours.setdefault(key, {})[workload_uid] = ledger

    def forget(self, key: GroupKey, workload_uid: str) -> None:
        """The cache has caught up, or the ledger is of no use any more."""
        written = self._ours.get(key, {})
        written.pop(workload_uid, None)
        if not written:
            self._ours.pop(key, None)


def _at_least(cached: LedgerObject, ours: LedgerObject) -> bool:
    """The cache has seen our write, or one after it. (resourceVersions of one resource are ordered: Kubernetes 1.35.)

    Whatever the UIDs: the one that our RecoveryGroup took the place of is the older one.
    """
    return int(cached.resource_version) >= int(ours.resource_version)
