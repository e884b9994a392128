"""Lists RecoveryIncidents in pages for the sweep, and deletes single ones in the version that was listed."""

from collections.abc import AsyncGenerator
from datetime import datetime

import msgspec

from recovery import api_verbs
from recovery.core.fleet.retention import RetainedIncident
from recovery.core.model.folded_incidents import NumberRange
from recovery.decoding import at_any_depth
from recovery.ports import (
    RECOVERY_INCIDENTS,
    UNDECODABLE,
    ApiClient,
    ConflictError,
    NotFoundError,
    TryLaterError,
)

PAGE_OBJECTS_MAX = 500


class _ListMetadata(msgspec.Struct, frozen=True):
    next: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMetadata = _ListMetadata()
    items: tuple[msgspec.Raw, ...] = ()


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    resource_version: str
    creation_timestamp: datetime


class _WorkloadReference(msgspec.Struct, frozen=True):
    uid: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    number: int
    ended_at: datetime
    workload_ref: _WorkloadReference = _WorkloadReference()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    ended_at: datetime | None = None
    """None: the record is of only one incident."""
    numbers: tuple[NumberRange, ...] = ()


class _Record(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()


_decode_page = msgspec.json.Decoder(_Page).decode
_decode_record = msgspec.json.Decoder(_Record).decode


async def retained_pages(api: ApiClient) -> AsyncGenerator[tuple[RetainedIncident, ...], None]:
    """Yield the RecoveryIncidents of all namespaces in pages, namespace by namespace.

    A yielded page is not kept in memory. A record that this version cannot read is left out, so it is never deleted.
    Raises ApiError, and ExpiredError if the caller took so long that the list has to start again.
    """
    token = ""
    while True:
        body = await api_verbs.list_page(api, RECOVERY_INCIDENTS, limit=PAGE_OBJECTS_MAX, continue_token=token)
        try:
            page = at_any_depth(_decode_page, body)
        except UNDECODABLE as error:  # a proxy in between may answer with a page of its own
            raise TryLaterError(f"list {RECOVERY_INCIDENTS.plural}: not a list: {error}") from error
        yield tuple(found for raw in page.items if (found := _retained(raw)) is not None)
        token = page.metadata.next
        if not token:
            return


def _retained(raw: msgspec.Raw) -> RetainedIncident | None:
    try:
        found = at_any_depth(_decode_record, raw)
    except UNDECODABLE:
        return None
    if any(each is not None and each.tzinfo is None for each in (found.spec.ended_at, found.status.ended_at)):
        return None
    return RetainedIncident(
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        uid=found.metadata.uid,
        resource_version=found.metadata.resource_version,
        workload_uid=found.spec.workload_ref.uid,
        numbers=found.status.numbers or (NumberRange(found.spec.number, found.spec.number),),
        created_at=found.metadata.creation_timestamp,
        ended_at=max(found.spec.ended_at, found.status.ended_at or found.spec.ended_at),
    )


async def delete_record(api: ApiClient, record: RetainedIncident) -> bool:
    """Delete the record if it is still the version that was listed. False: it is not. Raises other ApiErrors."""
    try:
        await api_verbs.delete(
            api,
            RECOVERY_INCIDENTS,
            record.name,
            namespace=record.namespace,
            uid=record.uid,
            resource_version=record.resource_version,
        )
    except (NotFoundError, ConflictError):
        return False
    return True
