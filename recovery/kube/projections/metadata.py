"""What all kinds share: metadata, owners, conditions, lists."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from sys import intern
from typing import Generic, TypeVar

import msgspec

from recovery.core.facts import Condition

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Entry(msgspec.Struct, Generic[T_co], frozen=True):
    """An object as an informer keeps it: its identity, and the record that was made of it."""

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
    creation_timestamp: datetime
    namespace: str = ""
    generation: int = 0
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: list[OwnerReference] = []

    def entry(self, value: T) -> Entry[T]:
        return Entry(self.namespace, self.name, self.uid, self.resource_version, value)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def deleting_since(self) -> datetime | None:
        """When the deletion was asked for: the timestamp that the server writes is the end of the grace period."""
        if self.deletion_timestamp is None:
            return None
        return self.deletion_timestamp - timedelta(seconds=self.deletion_grace_period_seconds or 0)


class RawCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A status condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None

    def facts(self) -> Condition:
        return Condition(
            type=intern(self.type),
            status=intern(self.status),
            reason=intern(self.reason),
            message=self.message,
            since=self.last_transition_time,
        )


def conditions(raw: Iterable[RawCondition]) -> tuple[Condition, ...]:
    return tuple(condition.facts() for condition in raw)


class Identity(msgspec.Struct, frozen=True, rename="camel"):
    """The least that a line of a watch says of its object, whatever else is wrong with it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}

    @property
    def title(self) -> str:
        """How a message names the object: `namespace/name`, or the name where there is no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class IdentityOnly(msgspec.Struct, frozen=True):
    """A bookmark, or an object that could not be decoded as its kind."""

    metadata: Identity = Identity()


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """`continue_token` is empty on the last page."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class ObjectList(msgspec.Struct, frozen=True):
    """One page of a list, its items undecoded. A Go list without items may be null.

    `kind` ends in List for every kind of list; empty: the answer said none.
    """

    kind: str = ""
    metadata: ListMetadata = ListMetadata()
    items: list[msgspec.Raw] | None = None


decode_identity = msgspec.json.Decoder(IdentityOnly).decode
decode_list = msgspec.json.Decoder(ObjectList).decode
