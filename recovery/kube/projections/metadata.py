"""The parts that all kinds share: metadata, owners, conditions, lists."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from sys import intern
from typing import Annotated, Generic, TypeVar

import msgspec

from recovery.core.model.facts import Condition
from recovery.core.model.ledger_bounds import EARLIEST, LATEST

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Date = Annotated[datetime, msgspec.Meta(tz=True)]
"""A date with its time zone. A date without one cannot be compared, so an object with such a date is refused."""
INT32_MAX = 2**31 - 1
_WHOLE_NUMBER = re.compile("[0-9]{1,10}")


def clamped(date: datetime) -> datetime:
    """The date, or the nearer one of EARLIEST and LATEST."""
    if EARLIEST.year <= date.year < LATEST.year:
        return date
    return EARLIEST if date.year < EARLIEST.year else LATEST


def clamped_if_any(date: datetime | None) -> datetime | None:
    """None: the object does not say."""
    return None if date is None else clamped(date)


def whole_number(text: str, where: str) -> int:
    """The number in a label or an annotation that a controller writes. Raises ValueError naming `where` in metadata.

    `int` alone accepts signs, underscores and the digits of every script. Kubernetes counts in int32, in ASCII.
    """
    if not _WHOLE_NUMBER.fullmatch(text) or int(text) > INT32_MAX:
        raise ValueError(f"Expected a whole number up to {INT32_MAX}, got `{text[:63]}` - at `$.metadata.{where}`")
    return int(text)


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """Which state of which object it is."""

    uid: str = ""
    resource_version: str = ""


class _Versioned(msgspec.Struct, frozen=True):
    metadata: Version = Version()


decode_version = msgspec.json.Decoder(_Versioned).decode


class ObjectEntry(msgspec.Struct, Generic[T_co], frozen=True):
    """An object as an informer keeps it: its identity, and the record decoded from it."""

    namespace: str
    """Empty for cluster-scoped kinds."""
    name: str
    uid: str
    resource_version: str
    value: T_co


class OwnerReference(msgspec.Struct, frozen=True):
    """An owner of an object."""

    uid: str
    name: str
    controller: bool = False


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The part of metadata that every kind needs."""

    name: str
    uid: str
    resource_version: str
    creation_timestamp: Date
    namespace: str = ""
    generation: int = 0
    deletion_timestamp: Date | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: list[OwnerReference] = []

    def entry(self, value: T) -> ObjectEntry[T]:
        return ObjectEntry(self.namespace, self.name, self.uid, self.resource_version, value)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def created_at(self) -> datetime:
        return clamped(self.creation_timestamp)

    @property
    def deleting_since(self) -> datetime | None:
        """When the deletion was requested. None: the object is not being deleted.

        The server's timestamp is the end of the grace period, so the grace period is subtracted, in the server's
        arithmetic. Where the result is no valid date (only the server should write these fields), the value is LATEST:
        the object is being deleted, and the time of the request is not known.
        """
        if self.deletion_timestamp is None:
            return None
        try:
            asked_at = self.deletion_timestamp - _go_duration(self.deletion_grace_period_seconds or 0)
            if asked_at.microsecond:  # left over from a grace period that wrapped around; the server truncated it
                asked_at = asked_at.replace(microsecond=0) + timedelta(seconds=1)
        except OverflowError:
            return LATEST
        return asked_at if EARLIEST <= asked_at < LATEST else LATEST

    @property
    def deletion_grace_seconds(self) -> int | None:
        """The grace period of the deletion under way, at most INT32_MAX. None: the object is not being deleted."""
        grace = self.deletion_grace_period_seconds
        return None if grace is None else min(grace, INT32_MAX)


def _go_duration(seconds: int) -> timedelta:
    """The value of `time.Second * time.Duration(seconds)` in the API server (`BeforeDelete`, registry/rest/delete.go).

    It counts nanoseconds in an int64. Nothing refuses a grace period of more than 292 years, and it wraps around.
    """
    nanoseconds = (seconds * 10**9 + 2**63) % 2**64 - 2**63
    return timedelta(microseconds=nanoseconds // 1000)


class RawCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A status condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Date | None = None

    def facts(self) -> Condition:
        return Condition(
            type=intern(self.type),
            status=intern(self.status),
            reason=intern(self.reason),
            message=self.message,
            since=clamped_if_any(self.last_transition_time),
        )


def conditions(raw: Iterable[RawCondition]) -> tuple[Condition, ...]:
    return tuple(condition.facts() for condition in raw)


class BookmarkMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The position of a watch. An annotation marks the end of the initial events."""

    resource_version: str = ""
    annotations: dict[str, str] = {}


class Bookmark(msgspec.Struct, frozen=True):
    """The object of a BOOKMARK event."""

    metadata: BookmarkMetadata = BookmarkMetadata()


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """`continue_token` is empty on the last page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class ObjectList(msgspec.Struct, frozen=True):
    """One page of a list, its items undecoded. A Go list without items may be null.

    `kind` ends in List for every kind of list. Empty: the answer names no kind.
    """

    kind: str = ""
    metadata: ListMetadata = ListMetadata()
    items: list[msgspec.Raw] | None = None


decode_bookmark = msgspec.json.Decoder(Bookmark).decode
decode_list = msgspec.json.Decoder(ObjectList).decode
