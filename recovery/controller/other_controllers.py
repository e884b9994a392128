"""Whether a controller of another installation writes ledgers too, and which of the two holds.

An election has one leader. Two installations in two namespaces have two elections, and both leaders write. So each
ledger names the Lease that elected its writer. The controller with the younger Lease holds: it keeps its Lease and
writes nothing else, until the other one has shown no sign of life for three durations of its Lease. A sign of life is a
ledger that it has written since, or a renewal of its Lease.

The ledgers answer this, and not a search for Leases of our name. A user who may edit a namespace may create a Lease
there, so one tenant could stop all recoveries with an old Lease. Only a controller may write a ledger, and no Lease is
read but the one that a ledger names by UID. To read it is a right that the controller may lack. Then only ledgers
count: the hold ends in a calm time, and begins again with the next write of the other controller. The writes before
that do no more harm than those of a leader that is too late: the ledger's compare-and-swap refuses them, or their
targets are the same.

Replicas of one Lease never hold for each other. A Lease that was deleted and created again is another one, and younger.
Its earlier UID is no longer found, so a controller that holds for it holds for three more durations at most.
"""

import asyncio
from collections.abc import Iterable

import msgspec
import structlog

from recovery import api_verbs
from recovery.controller.leadership_guard import LeadershipTerm
from recovery.controller.lease import LEASE_NAME, Lease, LeaseRecord
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.writer_lease import WriterLease
from recovery.ports import LEASES, UNDECODABLE, ApiClient, ApiError, Clock, ForbiddenError, GroupStore, NotFoundError

_log = structlog.get_logger("recovery.controller")

HELD_DURATIONS = 3
"""A hold ends when the other controller has shown no sign of life for this many durations of its Lease."""
_LOOKS_IN_A_DURATION = 3


class _Other:
    """A Lease that elects the leader of another installation."""

    def __init__(self, lease: WriterLease) -> None:
        self.lease = lease
        self.sign_at: float | None = None
        """When its controller last showed a sign of life, by our monotonic clock. None: we have seen none."""
        self.record: LeaseRecord | None = None
        """Its record as last read. None: it has not been read."""
        self.readable = True
        """It is worth reading. False: it does not exist any more, or we may not read it."""


class OtherControllers:
    """Knows the controllers of other installations. One for the life of the process."""

    def __init__(self, *, api: ApiClient, store: GroupStore, clock: Clock) -> None:
        self._api = api
        self._store = store
        self._clock = clock
        self._term: LeadershipTerm | None = None
        self._others: dict[str, _Other] = {}
        """By UID of the Lease."""
        self._ledgers: dict[str, LedgerObject] = {}
        """The newest ledgers that others have written, by UID of the RecoveryGroup."""
        self._listed = False
        """The ledgers that stood when this process first led are known. They may be older than any process."""
        self._appeared = asyncio.Event()

    def begin(self, term: LeadershipTerm) -> None:
        """The process leads in this term."""
        self._term = term
        self._look()

    def saw(self, ledger: LedgerObject) -> None:
        """A reconcile has read this ledger, from the cache or live."""
        writer, own = ledger.ledger.writer, self._own()
        if writer is None or own is None or writer.namespace == own.namespace:
            self._ledgers.pop(ledger.uid, None)
            return
        before = self._ledgers.get(ledger.uid)
        if before is not None and int(ledger.resource_version) <= int(before.resource_version):
            return
        self._ledgers[ledger.uid] = ledger
        other = self._others.setdefault(writer.uid, _Other(writer))
        # A label or an annotation on the RecoveryGroup is no write of the controller that its ledger names.
        if self._listed and (before is None or before.ledger != ledger.ledger):
            self._shown(other, own)
            other.readable = True

    def first(self) -> WriterLease | None:
        """The oldest Lease for whose controller this one holds. None: this one acts."""
        own = self._own()
        if own is None or not self._others:
            return None
        now = self._clock.monotonic_seconds()
        older = [each.lease for each in self._others.values() if each.lease.older_than(own) and _lives(each, now)]
        return min(older, key=lambda lease: (lease.created_at, lease.uid), default=None)

    async def until_first(self) -> None:
        """Return once this process has to hold."""
        while self.first() is None:
            self._appeared.clear()
            await self._wait()
            await self._read_all()

    async def until_alone(self) -> None:
        """Return once this process need not hold any more."""
        while self.first() is not None:
            self._appeared.clear()
            await self._wait()
            await self._read_all()

    def _own(self) -> WriterLease | None:
        return self._term.lease if self._term is not None else None

    def _look(self) -> None:
        """Read all ledgers in the cache: while this process holds, it reconciles nothing."""
        for ledger in self._store.ledger_objects():
            self.saw(ledger)
        self._listed = True

    def _shown(self, other: _Other, own: WriterLease) -> None:
        if not _lives(other, self._clock.monotonic_seconds()):
            which = "older: this controller holds" if other.lease.older_than(own) else "younger: that controller holds"
            _log.warning(
                f"two controllers write: the other one has the Lease {other.lease}, which is {which}; uninstall one",
                lease=str(own),
            )
        other.sign_at = self._clock.monotonic_seconds()
        if other.lease.older_than(own):
            self._appeared.set()

    async def _wait(self) -> None:
        """Wait for the next look, or until a reconcile sees a ledger of an older Lease."""
        own = self._own()
        if own is None:  # no election, so there is no second one
            await asyncio.get_running_loop().create_future()
            raise AssertionError("nothing ends it")
        appearing = asyncio.create_task(self._appeared.wait())
        sleeping = asyncio.create_task(self._clock.sleep(own.duration_seconds / _LOOKS_IN_A_DURATION))
        try:
            await asyncio.wait({appearing, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            appearing.cancel()
            sleeping.cancel()
            await asyncio.gather(appearing, sleeping, return_exceptions=True)

    async def _read_all(self) -> None:
        self._look()
        own = self._own()
        if own is not None:
            await asyncio.gather(*(self._read(each, own) for each in self._to_read(own)))

    def _to_read(self, own: WriterLease) -> Iterable[_Other]:
        return [each for each in self._others.values() if each.readable and each.lease.older_than(own)]

    async def _read(self, other: _Other, own: WriterLease) -> None:
        """Read the Lease. A record that has changed since the last time is a sign of life."""
        try:
            async with asyncio.timeout(own.duration_seconds / _LOOKS_IN_A_DURATION):
                answer = await api_verbs.get(self._api, LEASES, LEASE_NAME, namespace=other.lease.namespace)
            found = msgspec.json.decode(answer, type=Lease)
        except (NotFoundError, ForbiddenError):
            other.readable = False
            return
        except (TimeoutError, ApiError, *UNDECODABLE):
            return
        if found.metadata.uid != other.lease.uid:
            other.readable = False
            return
        if other.record is not None and found.spec != other.record and found.spec.holder_identity:
            self._shown(other, own)
        other.record = found.spec


def _lives(other: _Other, now: float) -> bool:
    return other.sign_at is not None and now - other.sign_at < HELD_DURATIONS * other.lease.duration_seconds
