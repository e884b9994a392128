"""Whether a controller leads: what the Leases of the election show, in any namespace."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from recovery import api_verbs
from recovery.cli.formatting import moment
from recovery.controller.lease import LEASE_NAME, LeaseRecord
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.decoding import decoded
from recovery.kube.response_envelopes import read_page
from recovery.ports import LEASES, ApiClient, ApiError, Clock, ForbiddenError, NotFoundError, UndecodableError

SHIPPED_NAMESPACE = "recovery-system"
"""Where the manifests install the controller, unless an overlay changes it. Only the Lease here is read for users who
may not list Leases in all namespaces."""
_FIELDS = f"metadata.name={LEASE_NAME}"
_TERM_SECONDS = 15
"""The duration of a Lease that does not state one: the default of `recovery run`."""
_RENEWED_WITHIN = 0.2
"""As a fraction of the duration. A leader renews its Lease after 2/15 of it, plus jitter of up to half as much."""
_READ_AGAIN_SECONDS_MAX = 10.0
_NOT_ELECTED = "a controller that runs with --no-leader-election has none"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str = ""


class _FoundLease(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: LeaseRecord = LeaseRecord()


_decode = msgspec.json.Decoder(_FoundLease).decode

_OF_A_LEADER = frozenset(
    {
        ProtectionReason.PROTECTED,
        ProtectionReason.BUDGET_EXHAUSTED,
        ProtectionReason.TRAINING_CONTAINER_UNKNOWN,
    }
)
"""Answers about jobs that a controller restarts, at least after some losses. Without a leader they are wrong."""


class Leader(msgspec.Struct, frozen=True):
    """Whether a controller leads, as the Leases show it."""

    leads: bool | None = None
    """None: the Leases cannot be read."""
    detail: str = ""
    """Why no controller leads, or why that is not known, or that several are elected. Empty: one leads."""

    def words(self) -> str:
        """What that means for a listing, in one line. Empty: one controller leads."""
        if self.leads is None:
            return f"it is not known whether a controller leads: {self.detail}"
        if self.leads:
            return self.detail
        return (
            f"no controller leads, so no job is recovered, and phases are as they were written last: {self.detail}; "
            "recovery explain JOB reads the pods"
        )

    def protects(self, found: Protection) -> Protection:
        """The answer about a job, replaced if it needs a leader and there is none."""
        if self.leads is not False or found.reason not in _OF_A_LEADER:
            return found
        return Protection(
            ProtectionReason.NO_CONTROLLER, found.kind, found.job, policy=found.policy, detail=self.detail
        )


class LeaderProbe:
    """Looks for a leader, once or repeatedly.

    If the time of a Lease is far from now, no controller may renew it, or the clock here may be wrong. So the probe
    does what candidates do: it reads the Lease again after a while.
    """

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._still: dict[str, LeaseRecord] = {}
        """By namespace: the Lease that was read twice without a renewal in between."""

    async def leader(self) -> Leader:
        """Whether a controller leads. Never raises ApiError."""
        shipped, unseen = await self._shipped()
        leads = bool(shipped) and await self._is_renewed(shipped[0])
        try:
            items = await self._list()
        except ApiError:
            if leads:
                return Leader(leads=True)
            unseen = f"{unseen}, and those of other namespaces cannot be listed"
            return await self._judged(shipped) if shipped else Leader(detail=unseen)
        leases = _readable(items)
        if leads:
            return Leader(leads=True, detail=self._several(leases))
        if items and not leases:
            return Leader(detail=f"Lease {LEASE_NAME} cannot be decoded")
        return await self._judged(leases)

    def _several(self, leases: Iterable[_FoundLease]) -> str:
        """That several installations elect a leader. Empty: there is one. A Lease whose time is far from now does not
        count: a listing need not wait to see whether it is renewed."""
        renewed = sorted(
            (each for each in leases if self._is_recent(each.spec)),
            key=lambda each: (each.metadata.creation_timestamp, each.metadata.uid),
        )
        if len(renewed) < 2:
            return ""
        names = [f"{each.metadata.namespace}/{LEASE_NAME}" for each in renewed]
        return (
            f"{len(renewed)} controllers are elected, by the Leases {', '.join(names)}: the controller of the first, "
            "which is the oldest, recovers the jobs, and the others hold once they see what it writes; "
            "leave one installation"
        )

    async def _judged(self, leases: list[_FoundLease]) -> Leader:
        """The answer from all Leases."""
        answers = [await self._is_renewed(lease) for lease in leases]
        if True in answers:
            return Leader(leads=True, detail=self._several(leases))
        if None in answers:
            return Leader(detail=f"Lease {LEASE_NAME} cannot be read again to see whether it is renewed")
        if leases:
            return Leader(leads=False, detail=_last_words(leases[0]))
        return Leader(leads=False, detail=f"there is no Lease {LEASE_NAME} in any namespace ({_NOT_ELECTED})")

    async def _shipped(self) -> tuple[list[_FoundLease], str]:
        """The Lease of the shipped namespace, and why it cannot be judged if the list is empty."""
        name = f"Lease {SHIPPED_NAMESPACE}/{LEASE_NAME}"
        try:
            raw = await api_verbs.get(self._client, LEASES, LEASE_NAME, namespace=SHIPPED_NAMESPACE)
        except NotFoundError:
            return [], f"there is no {name}"
        except ApiError:
            return [], f"{name} cannot be read"
        return _readable([raw]), f"{name} cannot be decoded"

    async def _list(self, namespace: str | None = None) -> Sequence[msgspec.Raw]:
        answer = await api_verbs.list_page(self._client, LEASES, namespace=namespace, field_selector=_FIELDS)
        return read_page(LEASES, answer).items or ()

    def _is_recent(self, record: LeaseRecord) -> bool:
        """Whether a leader has renewed the Lease within its duration, by the clock here."""
        at = _renewed_at(record)
        if at is None or not record.holder_identity:
            return False
        return abs(self._clock.now() - at) <= timedelta(seconds=record.lease_duration_seconds or _TERM_SECONDS)

    async def _is_renewed(self, lease: _FoundLease) -> bool | None:
        """Whether a leader renews the Lease. None: the Lease cannot be read again."""
        record, namespace = lease.spec, lease.metadata.namespace
        if not record.holder_identity or self._still.get(namespace) == record:
            return False
        if self._is_recent(record):
            return True
        seconds = record.lease_duration_seconds or _TERM_SECONDS
        await self._clock.sleep(min(seconds * _RENEWED_WITHIN, _READ_AGAIN_SECONDS_MAX))
        try:
            again = _readable(await self._list(namespace))
        except ForbiddenError:
            again, _ = await self._shipped()
        except ApiError:
            return None
        found = [each.spec for each in again if each.metadata.namespace == namespace]
        if not found:
            return None
        if found[0].holder_identity and found[0] != record:
            return True
        self._still[namespace] = record
        return False


def _readable(raw: Iterable[bytes | msgspec.Raw]) -> list[_FoundLease]:
    found = []
    for each in raw:
        try:
            found.append(decoded(LEASES, _decode, each))
        except UndecodableError:
            continue
    return found


def _renewed_at(record: LeaseRecord) -> datetime | None:
    """When the Lease was renewed. None: it has no time, or not one in the format of the API."""
    try:
        at = datetime.fromisoformat(record.renew_time or "")
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def _last_words(lease: _FoundLease) -> str:
    name, holder = f"Lease {lease.metadata.namespace}/{LEASE_NAME}", lease.spec.holder_identity
    if not holder:
        return f"no process holds {name}"
    at = _renewed_at(lease.spec)
    when = f"has not renewed it since {moment(at)}" if at is not None else "does not renew it"
    return f"{holder} holds {name} and {when}"


async def holder_words(client: ApiClient) -> str:
    """Who holds the Lease, or why that is not known. With several installations: the same for each."""
    try:
        page = read_page(LEASES, await api_verbs.list_page(client, LEASES, field_selector=_FIELDS))
    except ForbiddenError:
        return await _shipped_words(client)
    except ApiError:
        return "Leases cannot be read"
    words = [_words(raw) for raw in page.items or ()]
    return "; ".join(words) if words else f"there is no Lease {LEASE_NAME} in any namespace"


async def _shipped_words(client: ApiClient) -> str:
    name = f"Lease {SHIPPED_NAMESPACE}/{LEASE_NAME}"
    unseen = "you may not list Leases of other namespaces"
    try:
        return _words(await api_verbs.get(client, LEASES, LEASE_NAME, namespace=SHIPPED_NAMESPACE))
    except NotFoundError:
        return f"there is no {name}, and {unseen}"
    except ApiError:
        return f"{name} cannot be read, and {unseen}"


def _words(raw: bytes | msgspec.Raw) -> str:
    try:
        lease = decoded(LEASES, _decode, raw)
    except UndecodableError as error:
        return str(error)
    name = f"Lease {lease.metadata.namespace}/{LEASE_NAME}"
    if not lease.spec.holder_identity:
        return f"no process holds {name}"
    return f"{name} is held by {lease.spec.holder_identity}, renewed at {lease.spec.renew_time or 'no time'}"
