"""Deletes the records of closed incidents that `RecoveryConfig.spec.incidents` no longer keeps.

It must not slow down recoveries: it sends one request at a time, a few per second, and ends a pass at the first error
until the next pass is due. It keeps a record whose incident is still in a ledger, because that incident may not be in
the totals of the fleet yet. It also keeps all records of a workload whose ledger cannot be read. A damaged ledger does
not keep records of other workloads: otherwise any user who may write a ledger could fill the API server with records.
"""

from collections.abc import Callable, Iterable, Iterator

import structlog

from recovery.core.fleet.retention import IncidentRetention, RetainedIncident, incident_retention, surplus
from recovery.core.fleet.totals import held_by
from recovery.core.model.config import ConfigSpec
from recovery.core.model.facts import UndecodableObject
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.policy.validation import config_problems
from recovery.executors.incident_retention import delete_record, retained_pages
from recovery.ports import (
    ApiClient,
    ApiError,
    Clock,
    ForbiddenError,
    GroupStore,
    NotLeadingError,
    RefusedError,
)
from recovery.workloads.naming import may_be_recovery_group_of

_log = structlog.get_logger("recovery.controller")

FIRST_AFTER_SECONDS = 300.0
"""Before the first pass: a new leader handles recoveries first."""
SWEEP_SECONDS = 3600.0
"""Between two passes."""
NEXT_SOON_SECONDS = 60.0
"""Between two passes, if the first one has left work to do."""
DELETES_MAX = 500
"""In one pass."""
LEDGERS_NAMED_MAX = 10
"""In one log line."""
_BETWEEN_REQUESTS_SECONDS = 0.1


class IncidentSweeper:
    """Sweeps the RecoveryIncidents while this process leads."""

    def __init__(
        self,
        *,
        api: ApiClient,
        store: GroupStore,
        clock: Clock,
        ledgers: Callable[[], Iterable[LedgerObject]],
    ) -> None:
        """`ledgers`: every ledger that may still have an incident to record or count."""
        self._api = api
        self._store = store
        self._clock = clock
        self._ledgers = ledgers
        self._logged: type[Exception] | None = None
        """The kind of failure that was logged last. None: the last pass had none."""
        self._unread: frozenset[str] = frozenset()
        """The unreadable ledgers when they were last compared."""

    async def run(self) -> None:
        """Sweep until cancelled, or until this process may no longer lead."""
        await self._clock.sleep(FIRST_AFTER_SECONDS)
        while True:
            left = False
            try:
                left = await self.sweep()
                self._logged = None
            except NotLeadingError:
                return
            except Exception as error:  # noqa: BLE001 - statistics must not end the groups' recoveries
                self._say(error)
            await self._clock.sleep(NEXT_SOON_SECONDS if left else SWEEP_SECONDS)

    async def sweep(self) -> bool:
        """Make one pass. Returns whether it has left work to do. Raises ApiError."""
        retention = self._retention()
        if retention is None:
            return False
        self._say_what_is_kept()
        due = await self._due(retention)
        deleted = 0
        for record in due[:DELETES_MAX]:
            await self._clock.sleep(_BETWEEN_REQUESTS_SECONDS)
            deleted += await self._delete(record)
        if deleted:
            _log.info("records of closed incidents are deleted: RecoveryConfig spec.incidents", count=deleted)
        return len(due) > DELETES_MAX

    async def _due(self, retention: IncidentRetention) -> list[RetainedIncident]:
        """The records to delete. The search ends when it has more than one pass deletes. Apart from them, only the kept
        records of one namespace are in memory."""
        due: list[RetainedIncident] = []
        kept: list[RetainedIncident] = []
        async for page in retained_pages(self._api):
            for namespace, records in _by_namespace(page):
                if kept and kept[0].namespace != namespace:
                    kept = []
                kept += records
                over = surplus(kept, retention, self._clock.now(), in_use=self._in_use())
                due += over
                gone = {each.uid for each in over}
                kept = [each for each in kept if each.uid not in gone]
            if len(due) > DELETES_MAX:
                break
            await self._clock.sleep(_BETWEEN_REQUESTS_SECONDS)
        return due

    async def _delete(self, record: RetainedIncident) -> bool:
        """Delete the record. False: it is in use, has changed, is gone, or its deletion was refused."""
        if self._in_use()(record):
            return False
        try:
            return await delete_record(self._api, record)
        except ForbiddenError:
            raise
        except RefusedError as error:  # by a webhook, maybe only in this namespace
            _log.warning("a record is not deleted", record=f"{record.namespace}/{record.name}", error=str(error))
            return False

    def _retention(self) -> IncidentRetention | None:
        """None: the RecoveryConfig cannot be used, so nothing says what may be deleted."""
        config = self._store.config()
        spec = config.spec if config is not None else ConfigSpec()
        if (config is not None and config.unreadable) or any(config_problems(spec)):
            return None
        return incident_retention(spec)

    def _in_use(self) -> Callable[[RetainedIncident], bool]:
        held: dict[str, set[int]] = {}
        unreadable: set[str] = set()
        unidentified = tuple(self._store.unidentified_ledgers())
        for group in self._ledgers():
            if not group.readable:
                unreadable.add(group.workload_uid)
            for uid, number, _ in held_by(group.workload_uid, group.ledger) if group.readable else ():
                held.setdefault(uid, set()).add(number)
        return lambda record: (
            record.workload_uid in unreadable
            or any(map(record.describes, held.get(record.workload_uid, ())))
            or any(_may_hold(ledger, record) for ledger in unidentified)
        )

    def _say_what_is_kept(self) -> None:
        """Log one line when the set of unreadable ledgers has changed."""
        why = {f"{each.namespace}/{each.name}": _why_unreadable(each) for each in self._ledgers() if not each.readable}
        why |= {each.title: each.problem for each in self._store.unidentified_ledgers()}
        unread, before = frozenset(why), self._unread
        self._unread = unread
        if unread and unread != before:
            titles = sorted(unread)
            _log.warning(
                "records of the incidents of these workloads are kept: their ledgers cannot be read",
                ledgers=titles[:LEDGERS_NAMED_MAX],
                count=len(titles),
                first_error=why[titles[0]],
            )

    def _say(self, error: Exception) -> None:
        """Log one line for a new failure, with a traceback only for a bug."""
        again = self._logged is type(error)
        self._logged = type(error)
        match error:
            case ForbiddenError():
                log = _log.info if again else _log.warning
                log("records of closed incidents are never deleted: a permission is missing", error=str(error))
            case ApiError():
                _log.info("records of closed incidents are swept later", error=str(error))
            case _:
                _log.error("a sweep of incident records failed: this is a bug", error=str(error), exc_info=error)


def _may_hold(ledger: UndecodableObject, record: RetainedIncident) -> bool:
    """Whether the ledger may be that of the record's workload. Only the ledger's name can show that."""
    same = ledger.namespace in ("", record.namespace)
    return same and may_be_recovery_group_of(ledger.name, record.workload_uid)


def _why_unreadable(ledger: LedgerObject) -> str:
    return ledger.ledger.message or f"schemaVersion {ledger.schema_version} is of another version of the controller"


def _by_namespace(page: Iterable[RetainedIncident]) -> Iterator[tuple[str, list[RetainedIncident]]]:
    """The records of each namespace, in the order of the page."""
    found: dict[str, list[RetainedIncident]] = {}
    for each in page:
        found.setdefault(each.namespace, []).append(each)
    yield from found.items()
