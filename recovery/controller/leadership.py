"""Leader election: which replica acts. It uses a Lease, with the semantics of client-go's `tools/leaderelection`.

A candidate measures by its own monotonic clock how long the record has not changed, and takes a lease that has not
changed for its whole duration. Clocks of different machines are never compared. There are three differences from
client-go. A term is counted from before its last renewal was sent. Other replicas do not create a deleted lease again
before its holder's term is over (except a candidate that has never seen it). A leader that loses the lease stands by
again instead of exiting.

A leader whose watches are silent may be the only such replica, because of its own connection. It must not just stop: if
no replica had current facts, none would continue the recoveries in progress. So it offers the lease, in an annotation
that it writes with its renewals, and keeps it. A standby reads the Lease every few seconds anyway. If its facts are
current, it accepts in a second annotation. Then the leader ends its term and names that standby as the holder. A
standby checks its facts when there is an offer, so it need not advertise them, and two terms never overlap.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from recovery.controller.leadership_guard import LeadershipTerm
from recovery.controller.lease import Handover, Lease, LeaseClient, LeaseRecord, MalformedLeaseError
from recovery.core.model.writer_lease import WriterLease
from recovery.ports import (
    AlreadyExistsError,
    ApiClient,
    ApiError,
    Clock,
    ConflictError,
    Entropy,
    ForbiddenError,
    ReadAgainError,
    RefusedError,
)

_log = structlog.get_logger("recovery.controller")

_RELEASE_TRIES = 3
_RETRY_JITTER = 1.5
"""Candidates wait up to this many retry periods, so that they do not all try at the same moment."""
ROLES_READ_WITHIN_SECONDS = 60.0
"""An API server that has just started forbids everything until it has read its roles, which takes longer on a busy
machine. A permission that is still refused after this time is missing."""


class Leadership(Protocol):
    """How a process becomes the leader, and for how long."""

    def follow(self, current: Callable[[], bool]) -> None:
        """`current`: whether the facts of this process are current. Until this is called, they count as current."""
        ...

    async def acquire(self) -> LeadershipTerm:
        """Stand by until this process leads."""
        ...

    async def hold(self, term: LeadershipTerm) -> str:
        """Keep leading as long as possible. Returns why leadership has ended. The term has ended by then."""
        ...

    async def release(self) -> None:
        """Let another candidate lead at once. Called after all work has ended. Never raises ApiError."""
        ...


class SoleLeader:
    """Leads from start to end, for a caller that knows that no other controller runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def follow(self, current: Callable[[], bool]) -> None:
        """Does nothing: no other replica could lead instead."""

    async def acquire(self) -> LeadershipTerm:
        """Lead at once."""
        return LeadershipTerm(self._clock, renewed_at=self._clock.monotonic_seconds())

    async def hold(self, term: LeadershipTerm) -> str:
        """Lead until cancelled."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nothing ends it")

    async def release(self) -> None:
        """Does nothing: no other replica waits to lead."""


class LeaseTimes(msgspec.Struct, frozen=True):
    """The times of the election, in client-go's proportions: 15 s, 10 s, 2 s."""

    lease_seconds: int
    """How long other candidates leave an unchanged lease alone."""

    @property
    def term_seconds(self) -> float:
        """How long the holder acts on a renewal: client-go's renew deadline. The rest of the lease is a margin for
        clocks that run at different rates and for requests in flight."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        return self.lease_seconds * 2 / 15

    @property
    def attempt_seconds(self) -> float:
        """When a hanging request is abandoned, so that there is time for another one."""
        return self.term_seconds / 2


class _LostError(Exception):
    """We no longer hold the lease, or hand it over. The message says why."""


class Elector:
    """A candidate for leadership. One per process."""

    def __init__(
        self, *, api: ApiClient, clock: Clock, entropy: Entropy, namespace: str, identity: str, lease_seconds: int
    ) -> None:
        """No other process may have this `identity`, not even the previous process in the same pod."""
        self._leases = LeaseClient(api, namespace)
        self._namespace = namespace
        self._clock = clock
        self._entropy = entropy
        self._identity = identity
        self._times = LeaseTimes(lease_seconds)
        self._seen: Lease | None = None
        """The newest lease read or written. It is kept when the object is deleted. None: none has been seen."""
        self._unchanged_since = 0.0
        """When its record was first seen, by our monotonic clock."""
        self._deleted_since: float | None = None
        """When the lease was first found deleted, by our monotonic clock. None: it exists, as far as we know."""
        self._may_be_ours = False
        """A write that names us as the holder was sent, and nothing read since then contradicts it."""
        self._forbidden_since: float | None = None
        """Since when every try has been forbidden, by our monotonic clock. None: the latest try was not."""
        self._said = ("", logging.NOTSET)
        self._current: Callable[[], bool] = lambda: True
        self._successor = ""
        """Identity of the standby to name as the holder once our work has ended. Empty: none."""

    def follow(self, current: Callable[[], bool]) -> None:
        self._current = current

    async def acquire(self) -> LeadershipTerm:
        """Stand by until we hold the lease. The work of the previous term must be over."""
        if self._successor:
            await self._hand_over()
        while True:
            term = await self._campaign()
            if term is not None:
                self._said = ("", logging.NOTSET)
                return term
            await self._clock.sleep(self._times.retry_seconds * self._entropy.uniform(1.0, _RETRY_JITTER))

    async def hold(self, term: LeadershipTerm) -> str:
        """Renew the lease until that has failed for a whole term, or until the lease is lost. Returns why."""
        trouble = ""
        while True:
            await self._clock.sleep(max(0.0, min(self._times.retry_seconds, term.remaining_seconds)))
            if not term.lasts:
                return f"the lease was not renewed for {self._times.term_seconds:g} s{trouble}"
            try:
                async with asyncio.timeout(min(self._times.attempt_seconds, term.remaining_seconds)):
                    await self._renew(term)
                trouble = ""
            except _LostError as lost:
                term.end()
                return str(lost)
            except (TimeoutError, ApiError, MalformedLeaseError) as error:
                trouble = f": {self._words(error)}"
                _log.warning("the lease is not renewed yet", error=self._words(error))

    async def release(self) -> None:
        """Give up the lease if it is ours: an empty holder and a duration of 1 s, like client-go's ReleaseOnCancel."""
        if not self._may_be_ours:
            return
        try:
            async with asyncio.timeout(self._times.attempt_seconds):
                for tries_left in reversed(range(_RELEASE_TRIES)):
                    try:
                        await self._release()
                        break
                    except ReadAgainError:  # a renewal that was aborted may arrive in between
                        if not tries_left:
                            raise
        except (TimeoutError, ApiError, MalformedLeaseError) as error:
            _log.warning("the lease is not released; another leads when it has expired", error=self._words(error))

    async def _campaign(self) -> LeadershipTerm | None:
        """Try once to take the lease. None: another replica leads, or it is not known which."""
        forbidden_since, self._forbidden_since = self._forbidden_since, None
        try:
            async with asyncio.timeout(self._times.attempt_seconds):
                found = await self._read_lease()
                if self._is_anothers():
                    await self._accept(found)
                    return None
                sent_at = self._clock.monotonic_seconds()
                await self._write(found)
        except (ConflictError, AlreadyExistsError):
            return None  # another replica was faster, and the next read shows which
        except (TimeoutError, ApiError, MalformedLeaseError) as error:
            if isinstance(error, ForbiddenError):
                now = self._clock.monotonic_seconds()
                self._forbidden_since = now if forbidden_since is None else forbidden_since
            self._say(
                f"cannot stand for election: {self._words(error)}",
                logging.ERROR if self._is_hopeless(error) else logging.WARNING,
            )
            return None
        term = LeadershipTerm(
            self._clock, renewed_at=sent_at, seconds=self._times.term_seconds, lease=self._writer_lease()
        )
        return term if term.lasts else None

    def _is_hopeless(self, error: Exception) -> bool:
        """Whether the next try will fail too, unless a person fixes what the error names."""
        if isinstance(error, ForbiddenError) and self._forbidden_since is not None:
            return self._clock.monotonic_seconds() - self._forbidden_since >= ROLES_READ_WITHIN_SECONDS
        return isinstance(error, RefusedError | MalformedLeaseError)

    async def _renew(self, term: LeadershipTerm) -> None:
        sent_at = self._clock.monotonic_seconds()
        try:
            await self._write(self._seen)
        except ReadAgainError:
            found = await self._read_lease()
            if found is not None and found.spec.holder_identity != self._identity:
                other = found.spec.holder_identity
                raise _LostError(f"{other} holds the lease" if other else "the lease was released") from None
            if found is not None and self._is_accepted(found.handover):
                self._successor = found.handover.accepted_by
                raise _LostError(f"what it knows of the cluster is stale, and {self._successor} knows more") from None
            sent_at = self._clock.monotonic_seconds()
            await self._write(found)
            term.lease = self._writer_lease()
        term.extend(sent_at)

    def _is_accepted(self, handover: Handover) -> bool:
        """Whether our offer has been accepted and our facts are still stale."""
        return handover.offered_by == self._identity and bool(handover.accepted_by) and not self._current()

    async def _accept(self, found: Lease | None) -> None:
        """Accept the leader's offer, if our facts are current and no other standby has accepted it."""
        if found is None or not self._current():
            return
        handover = found.handover
        if handover.offered_by != found.spec.holder_identity or handover.accepted_by:
            return
        self._seen = await self._leases.agree(found, Handover(handover.offered_by, self._identity))

    async def _hand_over(self) -> None:
        """Name the successor as the holder. If it does not begin within the lease, any candidate may take it."""
        successor, self._successor = self._successor, ""
        if self._seen is None:
            return
        now = self._now()
        record = LeaseRecord(
            holder_identity=successor,
            lease_duration_seconds=self._times.lease_seconds,
            acquire_time=now,
            renew_time=now,
            lease_transitions=(self._seen.spec.lease_transitions or 0) + 1,
        )
        try:
            async with asyncio.timeout(self._times.attempt_seconds):
                self._seen = await self._leases.replace(self._seen, record)
            self._may_be_ours = False
            self._unchanged_since = self._clock.monotonic_seconds()
            _log.info("the lease is handed over", successor=successor)
        except (TimeoutError, ApiError, MalformedLeaseError) as error:
            _log.warning("the lease is not handed over", successor=successor, error=self._words(error))

    async def _read_lease(self) -> Lease | None:
        """Read the lease and note when its record last changed. Metadata does not count as a sign of life."""
        found = await self._leases.read()
        if found is None:
            if self._deleted_since is None:
                self._deleted_since = self._clock.monotonic_seconds()
        else:
            self._deleted_since = None
            if self._seen is None or found.spec != self._seen.spec:
                self._unchanged_since = self._clock.monotonic_seconds()
            self._seen = found
            self._may_be_ours = found.spec.holder_identity == self._identity
        return found

    def _is_anothers(self) -> bool:
        """Whether another replica holds the lease and we have not seen it unchanged for long enough.

        A deleted lease may be held by a replica that we do not know of.
        """
        now = self._clock.monotonic_seconds()
        if self._seen is None:
            return False
        if self._deleted_since is not None:
            if now - self._deleted_since >= self._times.lease_seconds:
                return False
            self._say("standing by, the lease was deleted and its holder may still act", logging.INFO)
            return True
        record = self._seen.spec
        if record.holder_identity in {"", self._identity}:
            return False
        duration = record.lease_duration_seconds or self._times.lease_seconds
        if now - self._unchanged_since >= duration:
            return False
        self._say(f"standing by, {record.holder_identity} leads", logging.INFO)
        return True

    async def _write(self, found: Lease | None) -> None:
        """Write ourselves into the lease in place of `found`; None: create it."""
        now = self._now()
        known = self._seen.spec if self._seen is not None else None
        ours = known is not None and known.holder_identity == self._identity
        record = LeaseRecord(
            holder_identity=self._identity,
            lease_duration_seconds=self._times.lease_seconds,
            acquire_time=known.acquire_time if known is not None and ours else now,
            renew_time=now,
            lease_transitions=(known.lease_transitions or 0) + (not ours) if known is not None else 0,
        )
        self._may_be_ours = True
        offer = Handover() if self._current() else Handover(offered_by=self._identity)
        self._seen = await (
            self._leases.create(record) if found is None else self._leases.replace(found, record, offer)
        )
        self._deleted_since = None
        self._unchanged_since = self._clock.monotonic_seconds()

    async def _release(self) -> None:
        found = await self._read_lease()
        if found is not None and self._may_be_ours:
            now = self._now()
            await self._leases.replace(
                found,
                LeaseRecord(
                    lease_duration_seconds=1,
                    acquire_time=now,
                    renew_time=now,
                    lease_transitions=found.spec.lease_transitions,
                ),
            )
        self._may_be_ours = False

    def _writer_lease(self) -> WriterLease | None:
        """The Lease that we hold, as ledgers name it."""
        metadata = self._seen.metadata if self._seen is not None else None
        if metadata is None or metadata.creation_timestamp is None:
            return None
        return WriterLease(self._namespace, metadata.uid, metadata.creation_timestamp, self._times.lease_seconds)

    def _now(self) -> str:
        """The time as a MicroTime: the API server requires six fractional digits."""
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _words(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer from the API server within {self._times.attempt_seconds:g} s"
        return str(error)

    def _say(self, sentence: str, level: int) -> None:
        """Log the sentence once, not at every try, and again if its level has changed."""
        if (sentence, level) != self._said:
            self._said = (sentence, level)
            _log.log(level, sentence)
