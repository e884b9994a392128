"""The newest ledger of each job that this process knows of: the cache's, or its own last write until the cache has it.

This only bridges the lag of the cache: a new process, whose cache has caught up, does not need it.
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
        """By UID of the workload: a new workload of the same name must not make us forget what is still to be recorded
        of the previous one."""

    def newest(self, key: GroupKey, workload_uid: str) -> LedgerObject | None:
        """The ledger in the cache, or ours while the cache lags behind it. None: there is none.

        Ours is dropped once the cache has caught up: a RecoveryGroup that then disappears from the cache was deleted.
        """
        cached = self._store.ledger_object(key, workload_uid)
        ours = self._ours.get(key, {}).get(workload_uid)
        if ours is not None and cached is not None and _at_least(cached, ours):
            self.forget(key, workload_uid)
            ours = None
        return cached if ours is None else ours

    def ours(self) -> Iterator[LedgerObject]:
        """The ledgers that the cache has not shown yet, including those of jobs that are gone."""
        for written in self._ours.values():
            yield from written.values()

    def orphans(self, key: GroupKey, workload: WorkloadFacts | None) -> tuple[LedgerObject, ...]:
        """The ledgers of deleted jobs of that name. Where the cache lags behind our ledger, it is ours.

        `workload`: the job of that name that exists. None: there is none.
        """
        orphans = {orphan.workload_uid: orphan for orphan in self._store.orphans(key)}
        for uid, ours in self._ours.get(key, {}).items():
            cached = orphans.get(uid)
            if (workload is None or workload.uid != uid) and (cached is None or not _at_least(cached, ours)):
                orphans[uid] = ours
        return tuple(orphans.values())

    def open_incident(self, key: GroupKey) -> str:
        """The id of the open incident of a job of that name. Empty: none is open."""
        newest = {each.workload_uid: each for each in self._store.ledgers_of(key)}
        for uid, ours in self._ours.get(key, {}).items():
            if uid not in newest or not _at_least(newest[uid], ours):
                newest[uid] = ours
        incidents = (each.ledger.incident for each in newest.values() if each.readable)
        return next((each.id for each in incidents if each is not None and each.closing is None), "")

    async def read_live(self, key: GroupKey, workload_uid: str) -> None:
        """Read the ledger from the API server, before a decision on live facts and after a refused or lost write.

        Raises ApiError.
        """
        live = await self._store.read_ledger_live(key, workload_uid)
        if live is None:
            self.forget(key, workload_uid)
        else:
            self.keep(key, workload_uid, live)

    def keep(self, key: GroupKey, workload_uid: str, ledger: LedgerObject) -> None:
        """Remember a ledger that was just written or read."""
        self._ours.setdefault(key, {})[workload_uid] = ledger

    def forget(self, key: GroupKey, workload_uid: str) -> None:
        """Forget our ledger: the cache has caught up, or it is no longer needed."""
        written = self._ours.get(key, {})
        written.pop(workload_uid, None)
        if not written:
            self._ours.pop(key, None)


def _at_least(cached: LedgerObject, ours: LedgerObject) -> bool:
    """The cache has seen our write, or a later one. (resourceVersions of one resource are ordered: Kubernetes 1.35.)

    The UIDs do not matter: a RecoveryGroup that ours has replaced is older.
    """
    return int(cached.resource_version) >= int(ours.resource_version)
